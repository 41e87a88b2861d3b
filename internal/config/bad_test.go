package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goodSections are added to the cases of testdata/bad_configs.txt that lack these sections.
var goodSections = [...]string{
	"pipeline: orders", "kafka: {brokers: [127.0.0.1:9092]}", "storage: {url: file:///data}", "defaults: {schema: a int}", "topics: {orders: {}}",
}

// TestBadConfigs loads each bad configuration in testdata/bad_configs.txt. The problems that it reports must equal the
// golden ones literally, because operators read them.
func TestBadConfigs(t *testing.T) {
	golden := filepath.Join("testdata", "bad_configs.txt")
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"secret": "geheim", "rediss-url": "rediss://u:geheim@cache:6379", "redis-url": "redis://u:geheim@cache:6379",
		"postgres-url": "postgres://u:geheim@db/x", "near-url": "postgres://u:geheim@127.0.0.1/x",
		"tokens": "ada admin " + strings.Repeat("ab", 32) + "\n", "web-users": "basic_auth_users: {ada: $2y$10$geheim}\n",
		"web-plain": "rate_limit: {burst: 10, interval: 1s}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	head, rest, _ := strings.Cut(string(data), "\n=== ")
	var got strings.Builder
	got.WriteString(head)
	for c := range strings.SplitSeq(rest, "\n=== ") {
		name, body, _ := strings.Cut(c, "\n")
		input, _, found := strings.Cut(body, ">>>\n")
		if !found {
			t.Fatalf("case %q has no line >>>", name)
		}
		fmt.Fprintf(&got, "\n=== %s\n%s>>>\n", name, input)
		for _, p := range loadCase(t, dir, input) {
			got.WriteString(strings.ReplaceAll(p.String(), dir+string(filepath.Separator), "") + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(string(data), got.String()); d != "" && !*update {
		t.Errorf("problems differ (-want +got), look and run with -update:\n%s", d)
	}
}

func loadCase(t *testing.T, dir, input string) []Problem {
	t.Helper()
	vars := map[string]string{}
	bare := false
	for {
		line, rest, _ := strings.Cut(input, "\n")
		assignment, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			break
		}
		input = rest
		if name, v, ok := strings.Cut(assignment, "="); ok {
			vars[name] = v
		} else {
			bare = true
		}
	}
	for _, s := range goodSections {
		if section, _, _ := strings.Cut(s, ":"); !bare && !strings.Contains("\n"+input, "\n"+section+":") {
			input += s + "\n"
		}
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	config, problems := Load(path, lookup(vars))
	bad := false
	for _, p := range problems {
		bad = bad || !p.Warning
	}
	if len(problems) == 0 {
		t.Errorf("nothing is wrong with:\n%s", input)
	}
	if (config == nil) != bad {
		t.Errorf("config is nil: %v, problems: %v", config == nil, problems)
	}
	return problems
}

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}
