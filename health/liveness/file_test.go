package liveness_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/health/liveness"
)

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// wantError fails the test unless err contains all of words. Without words, err must be nil.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	switch {
	case err == nil && len(words) == 0:
		return
	case err == nil || len(words) == 0:
		t.Errorf("error %v, want %q", err, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path, now := filepath.Join(dir, "alive"), time.Now()
	f := liveness.NewFile(path)
	wantError(t, liveness.Fresh(path, now), "no file "+path)
	wantError(t, f.Begin(now))
	wantError(t, liveness.Fresh(path, now))
	wantError(t, f.Begin(now.Add(time.Hour))) // the file of a process that was killed
	wantError(t, f.Touch(now.Add(time.Minute)))
	wantError(t, liveness.Fresh(path, now.Add(time.Minute)))
	if all := names(t, dir); len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
	// Touch replaces the temporary file of a process that was killed while it wrote.
	if err := os.WriteFile(filepath.Join(dir, ".alive.new"), []byte("2026"), 0o400); err != nil {
		t.Fatal(err)
	}
	wantError(t, f.Touch(now))
	if all := names(t, dir); len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
	wantError(t, f.Remove())
	wantError(t, f.Remove()) // the file is gone already
	wantError(t, f.Touch(now))
	wantError(t, f.End())
	wantError(t, f.Touch(now)) // has no effect after End
	wantError(t, liveness.Fresh(path, now), "no file")
	if all := names(t, dir); len(all) != 0 {
		t.Errorf("left behind: %v", all)
	}
}

func TestNoFile(t *testing.T) {
	f := liveness.NewFile("")
	wantError(t, f.Begin(time.Now()))
	wantError(t, f.Touch(time.Now()))
	wantError(t, f.Remove())
	wantError(t, f.End())
}

// TestAge: a file is fresh if its time is at most Stale before or after now. So a clock that was set back does not make
// the file of a dead process fresh for long.
func TestAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	f := liveness.NewFile(path)
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 4e9).Draw(rt, "now"), rapid.Int64Range(0, 999_999_999).Draw(rt, "part"))
		age := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(rt, "age"))
		if rapid.Bool().Draw(rt, "near") {
			age = rapid.SampledFrom([]time.Duration{liveness.Stale, -liveness.Stale}).Draw(rt, "edge") + time.Duration(rapid.IntRange(-1, 1).Draw(rt, "beside"))
		}
		if err := f.Touch(now.Add(-age)); err != nil {
			rt.Fatal(err)
		}
		err := liveness.Fresh(path, now)
		if want := age.Abs() <= liveness.Stale; (err == nil) != want {
			rt.Fatalf("age %v: %v", age, err)
		}
	})
	now := time.Now()
	wantError(t, f.Touch(now.Add(-time.Minute)))
	wantError(t, liveness.Fresh(path, now), "is old: written 1m0s ago", "every 5s")
	wantError(t, f.Touch(now.Add(time.Hour)))
	wantError(t, liveness.Fresh(path, now), "of the future, by 1h0m0s", "clock was set back")
}

// TestWhatIsNoLivenessFile: a file that is no liveness file is not overwritten and is never fresh.
func TestWhatIsNoLivenessFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"config.yaml": "pipeline: p\n", "empty": "", "long": strings.Repeat("2026", 1000)} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantError(t, liveness.NewFile(at(name)).Begin(time.Now()), name, "no liveness file", "name another file, or delete it")
		wantError(t, liveness.Fresh(at(name), time.Now()), "no liveness file")
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != text {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
	if err := os.Mkdir(at("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	wantError(t, liveness.NewFile(at("folder")).Begin(time.Now()), "is a folder: name a file in it")
	wantError(t, liveness.Fresh(at("folder"), time.Now()), "no regular file")
	wantError(t, liveness.NewFile(at("folder")).Touch(time.Now()), "folder") // the path has become a folder after the start
	wantError(t, liveness.NewFile(at("gone/alive")).Begin(time.Now()), "there is no folder "+at("gone"), "create it")
	wantError(t, liveness.NewFile(at("empty/alive")).Begin(time.Now()), "not a directory")
	wantError(t, liveness.Fresh(at("empty/alive"), time.Now()), "not a directory")
	if all := names(t, dir); len(all) != 4 {
		t.Errorf("left behind: %v", all)
	}
}

// TestALink: Begin refuses a symbolic link, and Touch never writes its target.
func TestALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "alive")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	f := liveness.NewFile(link)
	wantError(t, f.Begin(time.Now()), "is a symbolic link: name the file itself")
	// The temporary file, too, is a symbolic link to target: Touch must not write target.
	if err := os.Symlink(target, filepath.Join(dir, ".alive.new")); err != nil {
		t.Fatal(err)
	}
	wantError(t, f.Touch(time.Now()))
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := os.Lstat(link); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	wantError(t, liveness.Fresh(link, time.Now()))
}

// TestAFolderThatTakesNothing: Touch returns an error if the folder is not writable, and the old content stays until it
// is stale.
func TestAFolderThatTakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ro")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := liveness.NewFile(filepath.Join(dir, "alive"))
	wantError(t, f.Begin(time.Now()))
	if err := os.RemoveAll(dir); err != nil { // root may write to any folder, so the test removes it
		t.Fatal(err)
	}
	wantError(t, f.Touch(time.Now()), "liveness file: open "+dir, "no such file")
	wantError(t, f.Remove())
}
