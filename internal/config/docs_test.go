package config

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// entry is one key or section of the shipped config.yaml.
type entry struct {
	path    string
	comment string
	section bool
}

// documented returns the entries of the shipped file in their order. The first entry is the comment at the head of the
// file.
func documented(t *testing.T) []entry {
	t.Helper()
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	root := doc.Content[0]
	comment := func(s string) string {
		lines := strings.Split(s, "\n")
		for i, line := range lines {
			lines[i] = strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
		}
		return strings.TrimSpace(strings.Join(lines, "\n"))
	}
	all := []entry{{"", comment(doc.HeadComment), true}}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if k.FootComment != "" || k.LineComment != "" || v.LineComment != "" {
				t.Errorf("line %d: a comment that does not stand above its key", k.Line)
			}
			section := v.Kind == yaml.MappingNode
			all = append(all, entry{prefix + k.Value, comment(k.HeadComment), section})
			if section && k.Value != "topics" {
				walk(prefix+k.Value+".", v)
			}
		}
	}
	walk("", root)
	return all
}

// TestConfigurationPage compares docs/configuration.md with the comments of config.yaml and the bounds of the loader.
// -update writes the page.
func TestConfigurationPage(t *testing.T) {
	c := Default()
	keys := c.keys()
	for _, k := range c.Defaults.keys() {
		k.path = "defaults." + k.path
		keys = append(keys, k)
	}
	var b strings.Builder
	b.WriteString("# Configuration\n\n<!-- Generated from config.yaml: go test ./internal/config -run TestConfigurationPage -update -->\n")
	for _, e := range documented(t) {
		switch i := slices.IndexFunc(keys, func(k key) bool { return k.path == e.path }); {
		case e.path == "":
			b.WriteString("\n" + e.comment + "\n")
		case i >= 0:
			k := keys[i]
			b.WriteString("\n`" + e.path + "`: " + k.allowed)
			n := k.node()
			switch {
			case k.missing != "":
				b.WriteString("; **required**")
			case k.list:
				var texts []string
				for _, t := range n.Content {
					texts = append(texts, t.Value)
				}
				b.WriteString("; default `[" + strings.Join(texts, ", ") + "]`")
			case n.Value != "":
				b.WriteString("; default `" + n.Value + "`")
			}
			b.WriteString("\n\n> " + strings.ReplaceAll(e.comment, "\n", "\n> ") + "\n")
		default:
			b.WriteString("\n")
			if !strings.Contains(e.path, ".") {
				b.WriteString("## " + e.path + "\n")
				if e.comment != "" {
					b.WriteString("\n" + e.comment + "\n")
				}
			} else {
				b.WriteString("### " + e.path + "\n")
				if e.comment != "" {
					b.WriteString("\n" + e.comment + "\n")
				}
			}
		}
	}
	const page = "../../docs/configuration.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(got)); d != "" {
		t.Errorf("docs/configuration.md is not up to date, run with -update (-want +got):\n%s", d)
	}
}
