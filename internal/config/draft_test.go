package config

import (
	"strings"
	"testing"
)

// TestConnectionComments: each key of the sections kafka and storage has a comment for a draft, and no other key has.
func TestConnectionComments(t *testing.T) {
	known := map[string]bool{}
	for _, k := range Default().keys() {
		if section, _, _ := strings.Cut(k.path, "."); section != "kafka" && section != "storage" {
			continue
		}
		known[k.path] = true
		if comment := connectionComments[k.path]; !strings.HasSuffix(comment, ".") {
			t.Errorf("%s has the comment %q", k.path, comment)
		}
	}
	for path := range connectionComments {
		if !known[path] {
			t.Errorf("%s is no key", path)
		}
	}
}

// TestDraft_SetConnection: a draft takes keys of the connection that differ from their defaults, and no secrets.
func TestDraft_SetConnection(t *testing.T) {
	for _, c := range []struct{ key, text, want, problem string }{
		{"kafka.brokers", "a:1, b:2", "brokers: ['a:1', 'b:2']", ""},
		{"kafka.tls.enabled", "true", "enabled: true", ""},
		{"kafka.tls.enabled", "false", "", ""},
		{"kafka.sasl.mechanism", "none", "", ""},
		{"kafka.session", "30s", "", ""},
		{"kafka.session", "1s", "", "kafka.session: "},
		{"kafka.rack", "${RACK:-a}", "rack: ${RACK:-a}", ""},
		{"kafka.rack", "12", "rack: 12", ""},
		{"kafka.sasl.password", "${PASSWORD}", "password: ${PASSWORD}", ""},
		{"kafka.sasl.password", "geheim", "", "is a secret"},
		{"kafka.sasl.password", "geheim${PASSWORD}", "", "is a secret"},
		{"kafka.sasl.password", "${PASSWORD:-geheim}", "", "is a secret"},
		{"storage.s3.secret_key", "geheim", "", "or set storage.s3.secret_key_file"},
		{"storage.s3.secret_key_file", "key", "secret_key_file: key", ""},
		{"storage.s3.endpont", "x", "", "did you mean storage.s3.endpoint?"},
		{"pipeline", "x", "", "no key of the sections kafka and storage"},
	} {
		d := NewDraft("# head")
		err := d.SetConnection(c.key, c.text)
		text, failed := d.Text()
		if failed != nil || (err != nil) != (c.problem != "") || err != nil && (!strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%s=%s: %v, %v", c.key, c.text, err, failed)
		}
		if got := string(text); !strings.Contains(got, c.want) || c.want == "" && got != "# head\n\n{}\n" {
			t.Errorf("%s=%s: %s", c.key, c.text, got)
		}
	}
}

// TestDraft_Text: any text of a key is read back as it is, also one that looks like a variable or another YAML value.
func TestDraft_Text(t *testing.T) {
	for _, text := range []string{"a int", "n int,\nb string,\nc int", "a int /* ${HOME} # : */", "a int /* \u2028\u0085\u202e\x7f */\n", "`true` int", "a int /* 'x' \"y\" */"} {
		d := NewDraft("# head")
		d.Set("a comment", "p", "pipeline")
		d.Set("first", "old", "kafka", "rack")
		d.Set("second", "123", "kafka", "rack") // replaces the first
		d.SetList("brokers", []string{"127.0.0.1:9092"}, "kafka", "brokers")
		d.Set("folder", "file:///lake", "storage", "url")
		d.Set("columns", Literal(text), "topics", "null", "schema")
		d.SetPairs("options", map[string]string{}, "topics", "null", "column_options")
		content, err := d.Text()
		if err != nil {
			t.Fatal(err)
		}
		cfg, problems := Parse("new.yaml", content, func(string) (string, bool) { return "", false })
		if cfg == nil || cfg.Topics["null"].Schema != text || cfg.Kafka.Rack != "123" || strings.Contains(string(content), "first") {
			t.Errorf("%q: %v\n%s", text, problems, content)
		}
	}
}

// TestParseConnection: a file without topics can open connections, and other problems are still reported.
func TestParseConnection(t *testing.T) {
	env := func(string) (string, bool) { return "", false }
	const text = "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///lake}\n"
	if cfg, problems := ParseConnection("c.yaml", []byte(text), env); cfg == nil || cfg.Kafka.Brokers[0] != "a:1" {
		t.Error(problems)
	}
	if cfg, _ := Parse("c.yaml", []byte(text), env); cfg != nil {
		t.Error("Parse accepts a file without topics")
	}
	if cfg, problems := ParseConnection("c.yaml", []byte(text+"kafkas: {}\n"), env); cfg != nil || len(problems) != 1 {
		t.Error(problems)
	}
}
