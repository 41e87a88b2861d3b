package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestDocsBlocks checks the blocks of pages about running the connector that no test executes: configurations are valid, and
// documents parse. Each block must be of a kind that some test checks.
func TestDocsBlocks(t *testing.T) {
	t.Parallel()
	checked := map[string]int{}
	for _, name := range []string{"aws", "backup", "migrating", "sizing", "systemd", "upgrade"} {
		for _, b := range blocks(read(t, filepath.Join("../../docs", name+".md"))) {
			checked[b.lang]++
			switch b.lang {
			case "yaml":
				checkYAML(t, name, b.text)
			case "json":
				if !json.Valid([]byte(b.text)) {
					t.Errorf("%s: not JSON: %s", name, b.text)
				}
			case "sh needs-aws", "sh needs-root": // TestOtherCommandsInDocs checks these
			case "console": // TestDocsBackup executes these
				if name != "backup" {
					t.Errorf("%s: no test executes %s", name, b.text)
				}
			case "text": // TestDowngrade_Configuration compares it
				if name != "upgrade" {
					t.Errorf("%s: no test compares %s", name, b.text)
				}
			default:
				t.Errorf("%s: no test knows a block of %q", name, b.lang)
			}
		}
	}
	for _, lang := range []string{"yaml", "json", "sh needs-aws", "sh needs-root"} {
		if checked[lang] == 0 {
			t.Errorf("no block of %s found", lang)
		}
	}
}

// checkYAML checks a configuration of ours, or parses another document.
func checkYAML(t *testing.T, page, text string) {
	t.Helper()
	if !strings.HasPrefix(text, "pipeline:") {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil || v["kind"] == nil {
			t.Errorf("%s: neither a configuration nor a manifest: %v\n%s", page, err, text)
		}
		return
	}
	for key, line := range map[string]string{"defaults:": "defaults: {schema: n int}\n", "topics:": "topics: {orders: {}}\n"} {
		if !strings.Contains("\n"+text, "\n"+key) {
			text += line
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := connectorRun(t, "validate", "--no-secrets", "--config", file); code != exitOK {
		t.Errorf("%s: %s\n%s", page, errs, text)
	}
}

var s3Action = regexp.MustCompile(`"?(s3:[A-Z]\w+)`)

// TestDocsAWS_Policy expects the policy in docs/aws.md to allow the actions that docs/security.md asks for, and no others.
func TestDocsAWS_Policy(t *testing.T) {
	t.Parallel()
	var policy struct {
		Statement []struct {
			Effect   string
			Action   any
			Resource any
		}
	}
	text := firstBlock(t, read(t, "../../docs/aws.md"), "json")
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		t.Fatal(err)
	}
	allowed, wanted := map[string]bool{}, map[string]bool{}
	for _, s := range policy.Statement {
		if s.Effect == "Allow" {
			action, _ := json.Marshal(s.Action)
			for _, m := range s3Action.FindAllStringSubmatch(string(action), -1) {
				allowed[m[1]] = true
			}
		}
	}
	_, rights, _ := strings.Cut(read(t, "../../docs/security.md"), "\n## Rights in S3\n")
	rights, _, _ = strings.Cut(rights, "\n`s3:ListBucket`")
	for _, m := range s3Action.FindAllStringSubmatch(rights, -1) {
		wanted[m[1]] = true
	}
	if len(wanted) < 4 || !maps.Equal(allowed, wanted) {
		t.Errorf("the policy allows %v, the rights are %v", slices.Sorted(maps.Keys(allowed)), slices.Sorted(maps.Keys(wanted)))
	}
}
