package config

import "testing"

func TestPasted(t *testing.T) {
	for file, want := range map[string]string{
		"config.yaml": "connector holds", "": "connector holds", "etc/a.yaml": "connector holds --config etc/a.yaml",
		"my conf/it's.yaml": `connector holds --config 'my conf/it'\''s.yaml'`,
	} {
		if got := (&Config{file: file}).Pasted("connector holds"); got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
	if got := (&Config{file: "x.yaml"}).Pasted(""); got != "" {
		t.Error(got)
	}
}
