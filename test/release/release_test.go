//go:build long

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/gosym"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// maxSize bounds the size of a release's binary, in bytes. A larger one needs a reason in docs/adr/0024-releases.md.
const maxSize = 62_000_000

// TestBinary reads a binary that is built as that of a release for amd64. It must be static and stripped, and have no
// code that lets a template call any method: that code makes the linker keep all methods of all types, a quarter of the
// size.
func TestBinary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "connector")
	if err := (platform{"linux", "amd64"}).build(t.Context(), top, path, "-buildvcs=false"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(content))
	if len(content) > maxSize {
		t.Errorf("%d bytes, more than %d: find the import that adds them", len(content), maxSize)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 || f.Section(".symtab") != nil || f.Section(".debug_info") != nil || f.Section(".zdebug_info") != nil {
		t.Errorf("libraries %v, %v, or a table of symbols: the binary is not static and stripped", libraries, err)
	}
	functions := functionsOf(t, f)
	if len(functions) < 10_000 || !functions["main.main"] {
		t.Fatalf("%d functions: the table cannot be read", len(functions))
	}
	for _, unwanted := range []string{"text/template.(*state).evalField", "golang.org/x/net/trace.init.0", "net/http/pprof.init.0"} {
		if functions[unwanted] {
			t.Errorf("the binary has %s: go build -ldflags=-dumpdep says who needs it", unwanted)
		}
	}
}

// functionsOf returns the names of the functions of a binary, which it has without a table of symbols, too.
func functionsOf(t *testing.T, f *elf.File) map[string]bool {
	t.Helper()
	lines, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(lines, f.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, fn := range table.Funcs {
		names[fn.Name] = true
	}
	return names
}

// TestRelease_Twice builds a release from two clones of one commit, in different folders, the second with an empty
// cache and other settings of the caller. All checksums must be equal. The archive and the list of modules must be what they say.
func TestRelease_Twice(t *testing.T) {
	first, second := t.TempDir(), filepath.Join(t.TempDir(), "a longer name")
	var sums [2]string
	for i, out := range []string{first, second} {
		from := filepath.Join(out, "clone")
		if i == 0 {
			clone(t, from)
		} else { // a copy of the first clone, because the working tree may change while the first release is built
			if text, err := exec.CommandContext(t.Context(), "git", "clone", "-q", filepath.Join(first, "clone"), from).CombinedOutput(); err != nil {
				t.Fatalf("git clone: %v: %s", err, text)
			}
			t.Setenv("GOAMD64", "v3")
			t.Setenv("GOFLAGS", "-tags=nodemo")
			t.Setenv("TZ", "Asia/Tokyo")
			t.Setenv("GOCACHE", filepath.Join(out, "cache"))
		}
		var err error
		if sums[i], err = release(t.Context(), from, filepath.Join(out, "release")); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s", sums[0])
	if sums[0] != sums[1] {
		t.Errorf("the second release differs:\n%s", sums[1])
	}
	files := strings.Fields(sums[0])
	if len(files) != 8 {
		t.Fatalf("%d words", len(files))
	}
	for i := 1; i < len(files); i += 2 {
		content, err := os.ReadFile(filepath.Join(first, "release", files[i]))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(files[i], ".cdx.json") {
			checkList(t, content)
		}
	}
	for _, p := range platforms {
		archive := slices.IndexFunc(files, func(f string) bool { return strings.HasSuffix(f, "_"+p.system+"_"+p.arch+".tar.gz") })
		if archive < 0 {
			t.Fatalf("no archive for %v in %v", p, files)
		}
		name := strings.TrimSuffix(files[archive], ".tar.gz")
		binary := unpack(t, filepath.Join(first, "release", files[archive]), name)
		list, err := os.ReadFile(filepath.Join(first, "release", name+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		matches(t, list, binary, name)
	}
}

// clone makes a clone with one commit that has the files of this working tree, also those that are not committed.
func clone(t *testing.T, dir string) {
	t.Helper()
	git := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
			"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file := range strings.SplitSeq(git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		content, err := os.ReadFile(filepath.Join(top, file))
		if file == "" || errors.Is(err, fs.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		to := filepath.Join(dir, file)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	git(dir, "init", "-q")
	git(dir, "add", "-A", "-f")
	git(dir, "commit", "-q", "-m", "test")
	git(dir, "tag", "v1.2.3")
}

// unpack returns the binary of an archive, and checks the names, modes and times of its files.
func unpack(t *testing.T, path, name string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var binary []byte
	var names []string
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		file, ok := strings.CutPrefix(h.Name, name+"/")
		if names = append(names, file); !ok || h.ModTime.Unix() != 0 || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%+v", h)
		}
		if file != "connector" {
			continue
		}
		if binary, err = io.ReadAll(r); err != nil || h.Mode != 0o755 {
			t.Errorf("mode %o, %v", h.Mode, err)
		}
	}
	if want := append([]string{"connector"}, packed[:]...); !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	return binary
}

// list is what the test reads of a list of modules.
type list struct {
	SerialNumber string
	Metadata     struct {
		Timestamp string
		Component struct {
			Version string
			Hashes  []struct{ Content string }
		}
	}
	Components []struct {
		Name, Version, PURL string
		Licenses            []struct{ Expression string }
	}
}

// matches expects the list to have exactly the modules of the binary, its version and its checksum.
func matches(t *testing.T, text, binary []byte, name string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	var l list
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatal(err)
	}
	if l.SerialNumber != "" || l.Metadata.Timestamp != "" {
		t.Error("the list has a serial number or a time")
	}
	here, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{here, strings.TrimSpace(string(goroot)), filepath.Join("pkg", "mod"), "clone"} {
		if bytes.Contains(binary, []byte(folder+"/")) {
			t.Errorf("the binary of %s names the folder %s", name, folder)
		}
	}
	if c := l.Metadata.Component; c.Version != "v1.2.3" || info.Main.Version != "v1.2.3" || !strings.HasPrefix(name, "connector_v1.2.3_linux_") ||
		len(c.Hashes) != 1 || c.Hashes[0].Content != fmt.Sprintf("%x", sha256.Sum256(binary)) {
		t.Errorf("%s: %+v", name, c)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go")}
	for _, d := range info.Deps {
		want = append(want, packageURL(d.Path, d.Version))
	}
	var got []string
	for _, c := range l.Components {
		got = append(got, c.PURL)
		if len(c.Licenses) != 1 || c.Licenses[0].Expression == "" {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	if !slices.Equal(got, want) || len(want) < 40 {
		t.Errorf("%v, want %v", got, want)
	}
}
