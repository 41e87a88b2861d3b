package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"sluice/internal/config"
)

// update makes tests write the files in testdata and docs with the actual results instead of comparing them.
var update = flag.Bool("update", false, "write what is found into testdata and docs")

const shipped = "../../config.yaml"

func noEnv(string) (string, bool) { return "", false }

func mustLoad(t *testing.T, path string, env map[string]string) *config.Config {
	t.Helper()
	c, problems := config.Load(path, envOf(env))
	for _, p := range problems {
		t.Log(p)
	}
	if c == nil {
		t.Fatalf("%s was refused", path)
	}
	return c
}

// envOf returns a function that looks variables up in a map, in place of os.LookupEnv.
func envOf(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := vars[name]
		return value, set
	}
}

// onlyTopic returns the one topic of a configuration.
func onlyTopic(t *testing.T, c *config.Config) (string, config.Topic) {
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

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// documentedKeys returns the keys of a configuration that docs/configuration.md lists.
func documentedKeys(t *testing.T) (paths []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?m)^`([a-z0-9_.]+)`: ").FindAllStringSubmatch(read(t, "../../docs/configuration.md"), -1) {
		paths = append(paths, m[1])
	}
	if len(paths) < 90 {
		t.Fatalf("only %d keys found", len(paths))
	}
	return paths
}
