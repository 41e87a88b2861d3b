package terminal

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/config"
)

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(config.Log{Level: "warn", Format: "auto"}, &b)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud", "pause", 3)
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["msg"] != "loud" || line["level"] != "WARN" {
		t.Errorf("%v %s", err, &b)
	}
	b.Reset()
	if log, err = NewLogger(config.Log{Level: "debug", Format: "text"}, &b); err != nil {
		t.Fatal(err)
	}
	log.Debug("words", "n", 1)
	if got := b.String(); !strings.Contains(got, `level=DEBUG msg=words n=1`) {
		t.Error(got)
	}
	if _, err := NewLogger(config.Log{Level: "loud"}, &b); err == nil {
		t.Error("a level that does not exist")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if Is(f) || Is(&b) {
		t.Error("a file is taken for a terminal")
	}
}
