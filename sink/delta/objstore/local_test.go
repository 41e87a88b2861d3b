//go:build unix

package objstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/classify"
)

func mustOpenLocal(t *testing.T, dir string) *Local {
	t.Helper()
	s, err := NewLocal(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func putString(t *testing.T, s Store, key, body string) error {
	t.Helper()
	return s.Put(t.Context(), key, strings.NewReader(body), IfAbsent)
}

// child returns a command that runs this test binary as another process, in which TestChild does what mode says.
// Without a mode, TestChild only checks that such a process starts.
func child(t *testing.T, mode string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	c.Env = append(os.Environ(), "SLUICE_OBJSTORE_CHILD="+strings.Join(append([]string{mode}, args...), "|"))
	return c
}

var big = bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB

func TestChild(t *testing.T) {
	args := strings.Split(os.Getenv("SLUICE_OBJSTORE_CHILD"), "|")
	switch args[0] {
	case "":
		out, err := child(t, "hello").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "child says hello") {
			t.Errorf("%v: %s", err, out)
		}
	case "hello":
		fmt.Println("child says hello")
	case "kill": // arguments dir, step and mode: kills itself at that step of its put
		s := mustOpenLocal(t, args[1])
		s.step = func(at string) {
			if at == args[2] {
				killSelf()
			}
		}
		mode := Replace
		if args[3] == "if-absent" {
			mode = IfAbsent
		}
		err := s.Put(t.Context(), "log/1.json", &slowBody{bytes.NewReader(big), args[2] == "halfway"}, mode)
		t.Fatal("still alive:", err)
	case "race": // arguments dir and name: puts all keys and prints those whose put succeeded
		s := mustOpenLocal(t, args[1])
		for k := range raceKeys {
			switch err := putString(t, s, fmt.Sprintf("log/%d", k), args[2]); {
			case err == nil:
				fmt.Println("won", k)
			case !errors.Is(err, ErrExists):
				t.Fatal(err)
			}
		}
	case "limit": // argument dir: may not write files larger than 1 MiB
		s := mustOpenLocal(t, args[1])
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		err := s.Put(t.Context(), "big", bytes.NewReader(big), IfAbsent)
		if !errors.Is(err, syscall.EFBIG) || !errors.Is(err, ErrNotSent) || classify.Of(err) != classify.Fatal {
			t.Fatal(err)
		}
		if err := putString(t, s, "small", "x"); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("unknown child %q", args)
	}
}

func killSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// slowBody is a body that yields small pieces, so that the process can be killed in the middle of a put.
type slowBody struct {
	*bytes.Reader
	die bool
}

func (k *slowBody) Read(b []byte) (int, error) {
	if k.die && k.Len() < len(big)/2 {
		killSelf()
	}
	return k.Reader.Read(b[:min(len(b), 64<<10)])
}

// TestKill: if a process is killed before the link (or the rename) of its put, the object is as before. If it is killed
// afterwards, the object is complete.
func TestKill(t *testing.T) {
	for _, mode := range []string{"if-absent", "replace"} {
		for _, c := range []struct {
			step string
			done bool
		}{{"created", false}, {"halfway", false}, {"synced", false}, {"linked", true}, {"dirsynced", true}} {
			t.Run(mode+"/"+c.step, func(t *testing.T) {
				dir := t.TempDir()
				name := filepath.Join(dir, "log/1.json")
				if mode == "replace" {
					if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(name, []byte("before"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				out, err := child(t, "kill", dir, c.step, mode).CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("child was not killed: %v %s", err, out)
				}
				want := []byte("before")
				if c.done {
					want = big
				}
				b, err := os.ReadFile(name)
				switch {
				case mode == "if-absent" && !c.done:
					if !errors.Is(err, fs.ErrNotExist) {
						t.Fatalf("%d bytes, %v", len(b), err)
					}
				case err != nil || !bytes.Equal(b, want):
					t.Fatalf("%d bytes, %v", len(b), err)
				}
				s := mustOpenLocal(t, dir)
				if left := leftovers(t, dir); len(left) != 2 { // the lock of the directory and that of this process
					t.Fatal("not swept:", left)
				}
				err = putString(t, s, "log/1.json", "second")
				if free := mode == "if-absent" && !c.done; free != (err == nil) || !free && !errors.Is(err, ErrExists) {
					t.Fatal(err)
				}
				if b, _ := os.ReadFile(name); c.done && !bytes.Equal(b, big) {
					t.Fatal("the sweep damaged the object")
				}
			})
		}
	}
}

func leftovers(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, tmpDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

const raceKeys = 100

func TestProcessesRace(t *testing.T) {
	dir := t.TempDir()
	won := map[string]string{}
	type racer struct {
		*exec.Cmd
		out *bytes.Buffer
	}
	var racers []racer
	for i := range 3 {
		c, b := child(t, "race", dir, fmt.Sprint("process ", i)), new(bytes.Buffer)
		c.Stdout, c.Stderr = b, b
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		racers = append(racers, racer{c, b})
	}
	for i, c := range racers {
		if err := c.Wait(); err != nil {
			t.Fatal(err, c.out)
		}
		for lines := bufio.NewScanner(c.out); lines.Scan(); {
			if k, ok := strings.CutPrefix(lines.Text(), "won "); ok {
				if won[k] != "" {
					t.Fatalf("key %s won twice", k)
				}
				won[k] = fmt.Sprint("process ", i)
			}
		}
	}
	for k := range raceKeys {
		b, err := os.ReadFile(filepath.Join(dir, "log", fmt.Sprint(k)))
		if err != nil || string(b) != won[fmt.Sprint(k)] {
			t.Fatalf("key %d: %q, winner %q, %v", k, b, won[fmt.Sprint(k)], err)
		}
	}
}

func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	if out, err := child(t, "limit", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "big")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("a short object appeared")
	}
}

// TestSweepSparesTheLiving: when a process opens the store, it deletes the temporary files of dead processes, but not
// those of a process that still runs.
func TestSweepSparesTheLiving(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenLocal(t, dir)
	s.step = func(at string) {
		if at == "synced" {
			mustOpenLocal(t, dir)
		}
	}
	if err := putString(t, s, "x", "data"); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsLeftOver(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenLocal(t, dir)
	for range 2 {
		if err := putString(t, s, "a", "x"); err != nil && !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
		if err := s.Put(t.Context(), "b", strings.NewReader("x"), Replace); err != nil {
			t.Fatal(err)
		}
	}
	if left := leftovers(t, dir); len(left) != 2 {
		t.Errorf("left over: %q", left)
	}
}

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	path := func(n string) string { return filepath.Join(dir, n) }
	copyFile := func(from, to string) error {
		b, err := os.ReadFile(path(from))
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path(to), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		return errors.Join(err, f.Close())
	}
	for name, link := range map[string]func(from, to string) error{
		"missing":  func(string, string) error { return &os.LinkError{Op: "link", Err: syscall.EPERM} },
		"unknown":  func(string, string) error { return syscall.ENOSYS },
		"copies":   copyFile,
		"replaces": func(from, to string) error { _ = os.Remove(path(to)); return os.Link(path(from), path(to)) },
		"no-op":    func(string, string) error { return nil },
	} {
		_, err := openLocal(t.Context(), dir, localSystem{link: link})
		if !errors.Is(err, ErrUnsafe) || classify.Of(err) != classify.Fatal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLostReply: if link(2) reports EEXIST but the name is already our own link, as can happen on NFS, the put
// succeeds.
func TestLostReply(t *testing.T) {
	dir := t.TempDir()
	s, err := openLocal(t.Context(), dir, localSystem{link: func(from, to string) error {
		if err := os.Link(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			return err
		}
		return fs.ErrExist
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(putString(t, s, "k", "v"), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLinkFails: for each error of link(2), the put returns the error that the contract of Store demands.
func TestLinkFails(t *testing.T) {
	for _, c := range []struct {
		err     error
		refused bool
		class   classify.Class
	}{
		{syscall.ENOSPC, false, classify.Transient},
		{syscall.EIO, false, classify.Transient},
		{syscall.EACCES, true, classify.Fatal},
		{syscall.EROFS, true, classify.Fatal},
	} {
		s := mustOpenLocal(t, t.TempDir())
		s.link = func(string, string) error { return &os.LinkError{Op: "link", Err: c.err} }
		err := putString(t, s, "k", "v")
		if !errors.Is(err, c.err) || errors.Is(err, ErrRefused) != c.refused || classify.Of(err) != c.class || errors.Is(err, ErrExists) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

// TestSyncs: the content of an object is synced before the object becomes visible. Each directory that gets a new entry
// is synced before the put returns.
func TestSyncs(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenLocal(t, dir)
	var order []string
	s.sync = func(f *os.File) error {
		name := strings.Replace(strings.TrimPrefix(f.Name(), dir), s.own, "OWN", 1)
		order = append(order, "sync "+regexp.MustCompile(`\d+$`).ReplaceAllString(name, "N"))
		return f.Sync()
	}
	s.step = func(at string) { order = append(order, at) }
	for _, mode := range []Mode{IfAbsent, IfAbsent, Replace} {
		if err := s.Put(t.Context(), "a/b/c", strings.NewReader("x"), mode); err != nil && !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
	}
	again := []string{"created", "sync /.tmp/OWN.N", "synced", "linked", "sync /a/b", "dirsynced"}
	want := slices.Concat(
		[]string{"created", "sync /.tmp/OWN.N", "synced", "sync /.", "sync /a", "linked", "sync /a/b", "dirsynced"}, again, again)
	if d := cmp.Diff(want, order); d != "" {
		t.Error(d)
	}
}

// TestUnsyncedDirectory: while a directory cannot be synced, the outcome of a put is unknown, and reads and lists of
// the directory fail. After the next sync the object can be read.
func TestUnsyncedDirectory(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenLocal(t, dir)
	if err := putString(t, s, "log/0", "v"); err != nil {
		t.Fatal(err)
	}
	s.sync = func(f *os.File) error {
		if fi, err := f.Stat(); err != nil || fi.IsDir() {
			// The put must not report a refusal for this error, because the object exists already.
			return errors.Join(err, syscall.EACCES)
		}
		return nil
	}
	err := putString(t, s, "log/1", "v")
	if err == nil || errors.Is(err, ErrExists) || errors.Is(err, ErrRefused) || errors.Is(err, ErrNotSent) || classify.Of(err) != classify.Transient {
		t.Fatalf("put: %v", err)
	}
	if _, err = s.Head(t.Context(), "log/1"); err == nil || errors.Is(err, ErrNotFound) {
		t.Fatalf("head: %v", err)
	}
	for i, err := range s.List(t.Context(), "", "") {
		if err == nil {
			t.Fatalf("listed %v", i)
		}
	}
	s.sync = (*os.File).Sync
	if _, err = s.Head(t.Context(), "log/1"); err != nil {
		t.Fatalf("head after the sync: %v", err)
	}
}

func TestLocalKeys(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenLocal(t, dir)
	for _, k := range []string{".tmp", ".tmp/x"} {
		if err := putString(t, s, k, ""); !errors.Is(err, ErrRefused) {
			t.Errorf("key %q: %v", k, err)
		}
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := putString(t, s, "out/x", ""); err == nil {
		t.Error("left the root by a symbolic link")
	}
	if err := putString(t, s, "d/object", "x"); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"d", "d/object/below"} { // a directory, and a key below an object
		for _, mode := range []Mode{Replace, IfAbsent} {
			err := s.Put(t.Context(), k, strings.NewReader("x"), mode)
			if !errors.Is(err, ErrRefused) || classify.Of(err) != classify.Fatal {
				t.Errorf("key %q: %v", k, err)
			}
		}
	}
}

// TestLocalListModel: for any prefix and start key, List yields the same keys as a filtered and sorted list of all
// keys. The store also has directories and files that are no objects.
func TestLocalListModel(t *testing.T) {
	part := rapid.StringOfN(rapid.SampledFrom([]rune("ab-.0_é/")), 1, 5, -1)
	rapid.Check(t, func(r *rapid.T) {
		s, err := openLocal(t.Context(), filepath.Join(t.TempDir(), "store"), localSystem{sync: func(*os.File) error { return nil }})
		if err != nil {
			r.Fatal(err)
		}
		defer s.Close()
		var keys []string
		for _, k := range rapid.SliceOfN(part, 0, 25).Draw(r, "keys") {
			err := s.Put(t.Context(), k, strings.NewReader(k), IfAbsent)
			switch {
			case err == nil:
				keys = append(keys, k)
			case !errors.Is(err, ErrRefused) && !errors.Is(err, ErrExists):
				r.Fatal(err)
			}
		}
		slices.Sort(keys)
		some := rapid.OneOf(part, rapid.SampledFrom(append([]string{"", "/", "..", "../", ".tmp/", "a//"}, keys...)))
		for range 20 {
			prefix, after := some.Draw(r, "prefix"), some.Draw(r, "after")
			prefix = prefix[:rapid.IntRange(0, len(prefix)).Draw(r, "cut")]
			var want, got []string
			for _, k := range keys {
				if strings.HasPrefix(k, prefix) && k > after {
					want = append(want, k)
				}
			}
			for i, err := range s.List(t.Context(), prefix, after) {
				if err != nil || i.Size != int64(len(i.Key)) {
					r.Fatal(i, err)
				}
				got = append(got, i.Key)
			}
			if d := cmp.Diff(want, got); d != "" {
				r.Fatalf("prefix %q after %q (-want +got):\n%s", prefix, after, d)
			}
		}
	})
}

// TestPutStreams: the memory of a put does not grow with the size of its body.
func TestPutStreams(t *testing.T) {
	s := mustOpenLocal(t, t.TempDir())
	body := bytes.NewReader(big)
	bytesPerPut := testing.Benchmark(func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			if err := s.Put(t.Context(), "part.parquet", body, Replace); err != nil {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if bytesPerPut > 256<<10 {
		t.Errorf("a put of %d bytes allocates %d", len(big), bytesPerPut)
	}
}

func BenchmarkLocalPut(b *testing.B) {
	s, err := NewLocal(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.NewReader(big[:4<<10])
	for i := 0; b.Loop(); i++ {
		if err := s.Put(b.Context(), fmt.Sprintf("t/_delta_log/%020d.json", i), body, IfAbsent); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

var _ io.Closer = (*Local)(nil)
