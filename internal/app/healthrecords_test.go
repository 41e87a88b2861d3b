package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/internal/config"
)

// TestHealthSecretFile: a secret file that cannot be used is an error at the start of a member. Later it is a log line,
// and the old secret stays in force; neither text shows a secret.
func TestHealthSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	if _, err := openSecret(t.Context(), path, logger); err == nil {
		t.Error("a missing file is accepted")
	}
	write("\n")
	if _, err := openSecret(t.Context(), path, logger); err == nil || out.Len() > 0 {
		t.Errorf("an empty file: %v, the log says %q", err, out.String())
	}
	write("geheim one\r\n")
	f, err := openSecret(t.Context(), path, logger)
	if err != nil {
		t.Fatal(err)
	}
	secret := heldSecrets{path: f}.of(config.Topic{HealthRecords: config.HealthRecords{Drop: true, SecretFile: path}}).Secret
	for _, c := range []struct{ text, want, line string }{
		{"geheim one", "geheim one", ""},
		{"", "geheim one", "failed to read a changed file"},
		{" ", "geheim one", ""}, // the failure was logged already
		{"geheim two", "geheim two", "using the new secret"},
		{"", "geheim two", "failed to read a changed file"},
	} {
		out.Reset()
		write(c.text)
		if err := f.Refresh(t.Context()); err != nil || secret() != c.want {
			t.Errorf("%q: %v, %q", c.text, err, secret())
		}
		if got := out.String(); (got != "") != (c.line != "") || !strings.Contains(got, c.line) || strings.Contains(got, "geheim") {
			t.Errorf("%q: the log says %q, want %q", c.text, got, c.line)
		}
	}
}

// TestHealthRecords_DeadLetters: a dead letter with a health-check header is not dropped.
func TestHealthRecords_DeadLetters(t *testing.T) {
	t1 := config.Topic{Format: "dead_letter", HealthRecords: config.HealthRecords{Drop: true}}
	if (heldSecrets{}).of(t1).Drop {
		t.Error("letters are dropped")
	}
	t1.Format = "json"
	if !(heldSecrets{}).of(t1).Drop {
		t.Error("records are not dropped")
	}
}

// TestHealthRecords_NewSecret: a member uses a new secret without a restart.
func TestHealthRecords_NewSecret(t *testing.T) {
	t.Parallel()
	l := newLake(t, `
defaults: {schema: "n int", commit: {every: 100ms}, health_records: {secret_file: secret}}
topics: {guarded: {}}`)
	secret := filepath.Join(l.Dir, "secret")
	write := func(text string) {
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(value string) {
		t.Helper()
		r := &kgo.Record{Topic: "guarded", Value: []byte(`{"n":7}`), Headers: []kgo.RecordHeader{
			{Key: "HEALTHCHECK", Value: []byte("TRUE")}, {Key: connector.HealthSecretHeader, Value: []byte(value)},
		}}
		if err := l.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	l.Create("guarded", 1)
	l.Produce("guarded", 1, 0) // offset 0
	check("first")             // offset 1
	check("second")            // offset 2
	s := l.start()
	l.Awaits("guarded", map[string][]int64{"guarded:0": {0, 2}})
	look := func() {
		t.Helper()
		for _, h := range s.secrets {
			if err := h.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}

	write("") // an empty file, as while another process writes it
	look()
	check("first")             // offset 3
	l.Produce("guarded", 1, 0) // offset 4
	l.Awaits("guarded", map[string][]int64{"guarded:0": {0, 2, 4}})

	write("second\n")
	look()
	check("first")             // offset 5
	check("second")            // offset 6
	l.Produce("guarded", 1, 0) // offset 7
	l.Awaits("guarded", map[string][]int64{"guarded:0": {0, 2, 4, 5, 7}})
}
