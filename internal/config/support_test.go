package config

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// update makes tests write the files in testdata and docs with the actual results instead of comparing them.
var update = flag.Bool("update", false, "write what is found into testdata and docs")

const shipped = "../../config.yaml"

func noEnv(string) (string, bool) { return "", false }

func mustLoad(t *testing.T, path string, env map[string]string) *Config {
	t.Helper()
	c, problems := Load(path, lookup(env))
	for _, p := range problems {
		t.Log(p)
	}
	if c == nil {
		t.Fatalf("%s was refused", path)
	}
	return c
}

// onlyTopic returns the one topic of a configuration.
func onlyTopic(t *testing.T, c *Config) (string, Topic) {
	t.Helper()
	names := c.TopicNames()
	if len(names) != 1 {
		t.Fatalf("topics %q, want one", names)
	}
	return names[0], c.Topics[names[0]]
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// encodeValues writes the values of a configuration as JSON, as config print does.
func encodeValues(w io.Writer, c *Config) error {
	values, err := c.Values()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(values)
}
