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

	expect(t, 2, "", "only tells whether a process lives", "probe", "ready", "--file", path)
	expect(t, 2, "", "--file is empty", "probe", "--file", "")
	expect(t, 2, "", "[config url file] are set", "probe", "--file", path, "--url", "http://127.0.0.1:1")
	expect(t, 2, "", "[config url file] are set", "probe", "--file", path, "--config", shipped)
}

// TestProbeConfigWithAFile: the file is looked at only where nobody answers over HTTP.
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
	expect(t, 2, "", "only tells whether a process lives", "probe", "startup", "--config", cfg)

	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.Path }))
	defer server.Close()
	cfg = write(t, "health: {listen: '"+strings.TrimPrefix(server.URL, "http://")+"', liveness_file: gone}\n"+rest)
	expect(t, 0, "ok\n", "", "probe", "startup", "--config", cfg)
	if asked != "/health/startup" {
		t.Errorf("asked %q", asked)
	}
}

// TestALivenessFileThatCannotBe ends a connector before it does anything, with the reason.
func TestALivenessFileThatCannotBe(t *testing.T) {
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

// TestALiveConnector: every loop of a running connector is seen, the file is fresh while it runs and gone behind it.
func TestALiveConnector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	l := newLake(t, "topics: {orders: {}}").as("health: {enabled: false}", "health: {enabled: false, liveness_file: "+path+"}")
	l.Create("orders", 2)
	t.Run("runs", func(t *testing.T) {
		in := *l
		in.T = t
		s := in.start()
		want := map[string]bool{
			"reader": true, "lane 0": true, "writer orders": true, "offsets": true, "fetcher 0": true, "fetcher 0 tail": true,
		}
		in.Await("all loops turn", func() bool {
			seen := map[string]bool{}
			for _, loop := range s.loops.States() {
				if loop.Turns > 0 {
					seen[loop.Name] = true
				}
			}
			for name := range want {
				if name == "offsets" || name == "lane 0" {
					continue // which have nothing to do yet
				}
				if !seen[name] {
					return false
				}
			}
			return true
		})
		names := map[string]bool{}
		for _, loop := range s.loops.States() {
			names[loop.Name] = true
		}
		for name := range want {
			if !names[name] {
				t.Errorf("no loop %s in %v", name, names)
			}
		}
		if err := s.watchdog.Live(); err != nil {
			t.Error(err)
		}
		expect(t, 0, "ok\n", "", "probe", "--file", path)
	})
	expect(t, 1, "", "no file", "probe", "--file", path)
}

// TestEveryLoopEnds: what has ended is not seen any more, so that nobody is judged by it.
func TestEveryLoopEnds(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	s, err := wire(t.Context(), mustLoad(t, l.Config, nil), wireOptions{untilCurrent: true}, l.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if left := s.loops.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
