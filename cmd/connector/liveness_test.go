package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/health/liveness"
)

func TestProbeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	expect(t, 1, "", "connector: probe: no file "+path, "probe", "--file", path)
	touch := func(at time.Time) {
		t.Helper()
		if err := liveness.NewFile(path).Touch(at); err != nil {
			t.Fatal(err)
		}
	}
	touch(time.Now())
	expect(t, 0, "ok\n", "", "probe", "--file", path)
	expect(t, 0, "ok\n", "", "probe", "live", "--file", path)
	touch(time.Now().Add(-time.Minute))
	expect(t, 1, "", "is old: written 1m0s ago", "probe", "--file", path)
	touch(time.Now().Add(time.Hour))
	expect(t, 1, "", "clock was set back", "probe", "--file", path)

	expect(t, 2, "", "only shows whether a process is alive", "probe", "ready", "--file", path)
	expect(t, 2, "", "--file is empty", "probe", "--file", "")
	expect(t, 2, "", "[config url file] are set", "probe", "--file", path, "--url", "http://127.0.0.1:1")
	expect(t, 2, "", "[config url file] are set", "probe", "--file", path, "--config", shipped)
}

// TestProbeConfigWithAFile expects probe --config to read the liveness file if the configuration turns the health
// server off. Otherwise it must ask the health server.
func TestProbeConfigWithAFile(t *testing.T) {
	const rest = "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///d}\ndefaults: {schema: a int}\ntopics: {t: {}}\n"
	cfg := write(t, "health: {enabled: false, liveness_file: alive}\n"+rest)
	path := filepath.Join(filepath.Dir(cfg), "alive")
	expect(t, 1, "", "no file "+path, "probe", "--config", cfg)
	if err := liveness.NewFile(path).Touch(time.Now()); err != nil {
		t.Fatal(err)
	}
	expect(t, 0, "ok\n", "", "probe", "--config", cfg)
	expect(t, 0, "ok\n", "", "probe", "live", "--config", cfg)
	expect(t, 2, "", "only shows whether a process is alive", "probe", "startup", "--config", cfg)

	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.Path }))
	defer server.Close()
	cfg = write(t, "health: {listen: '"+strings.TrimPrefix(server.URL, "http://")+"', liveness_file: gone}\n"+rest)
	expect(t, 0, "ok\n", "", "probe", "startup", "--config", cfg)
	if asked != "/health/startup" {
		t.Errorf("asked %q", asked)
	}
}

// TestLivenessFile_Unusable expects a connector to end at its start, with the reason, if it cannot write its liveness
// file.
func TestLivenessFile_Unusable(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "gone", "alive"): "there is no folder " + filepath.Join(dir, "gone"),
		filepath.Join(dir, "precious"):      "no liveness file",
		dir:                                 "is a folder: name a file in it",
	} {
		cfg := write(t, "health: {enabled: false, liveness_file: "+file+"}\npipeline: p\nkafka: {brokers: ['127.0.0.1:1']}\n"+
			"storage: {url: file://"+filepath.Join(dir, "lake")+"}\ndefaults: {schema: a int}\ntopics: {t: {}}\n")
		expect(t, exitUsage, "", "connector: health.liveness_file: ", "run", "--config", cfg)
		expect(t, exitUsage, "", want, "run", "--config", cfg)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "precious")); err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
}
