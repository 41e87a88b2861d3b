// Package objstoretest has test helpers for package objstore: one conformance suite for all stores, a store that
// fails on command, and an S3 server inside the process.
package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/sink/delta/objstore"
)

// Run tests a store against the contract of [objstore.Store]. open returns a new empty store for each test.
func Run(t *testing.T, open func(*testing.T) objstore.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, objstore.Store)
	}{
		{"PutAndGet", putAndGet},
		{"Ranges", ranges},
		{"Head", head},
		{"Missing", missing},
		{"Replace", replace},
		{"IfAbsent", ifAbsent},
		{"IfAbsentRaces", ifAbsentRaces},
		{"Keys", keys},
		{"BadKeys", badKeys},
		{"Sizes", sizes},
		{"Bodies", bodies},
		{"ListOrder", listOrder},
		{"ListPages", listPages},
		{"ListStops", listStops},
		{"Delete", deletes},
		{"Canceled", canceled},
		{"LastCheck", lastCheck},
		{"SelfTest", selfTest},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func put(t *testing.T, s objstore.Store, key, body string) {
	t.Helper()
	if err := s.Put(t.Context(), key, strings.NewReader(body), objstore.Replace); err != nil {
		t.Fatal(err)
	}
}

// get returns the bytes of an object from off on, at most n of them, or all if n is negative.
func get(t *testing.T, s objstore.Store, key string, off, n int64) string {
	t.Helper()
	r, err := s.Get(t.Context(), key, off, n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return string(b)
}

func list(t *testing.T, s objstore.Store, prefix, after string) (keys []string) {
	t.Helper()
	for i, err := range s.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, i.Key)
	}
	return keys
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// is fails the test unless err wraps the sentinel want and has the class, because callers depend on both.
func is(t *testing.T, err, want error, class classify.Class) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	} else if c := classify.Of(err); c != class {
		t.Errorf("%v: class %v, want %v", err, c, class)
	}
}

func putAndGet(t *testing.T, s objstore.Store) {
	t.Helper()
	same(t, "an empty store", list(t, s, "", ""), []string(nil))
	put(t, s, "t/_delta_log/00000000000000000000.json", "entry")
	same(t, "content", get(t, s, "t/_delta_log/00000000000000000000.json", 0, -1), "entry")
	same(t, "keys", list(t, s, "", ""), []string{"t/_delta_log/00000000000000000000.json"})
}

func ranges(t *testing.T, s objstore.Store) {
	t.Helper()
	const body = "0123456789"
	put(t, s, "digits", body)
	for _, c := range []struct {
		off, n int64
		want   string
	}{
		{0, -1, body},
		{0, 0, ""},
		{0, 1, "0"},
		{0, 10, body},
		{0, 11, body},
		{3, -1, "3456789"},
		{3, 4, "3456"},
		{9, 1, "9"},
		{9, 5, "9"},
		{10, -1, ""},
		{10, 3, ""},
		{12, -1, ""},
		{12, 3, ""},
		{5, 0, ""},
	} {
		same(t, fmt.Sprintf("[%d, +%d)", c.off, c.n), get(t, s, "digits", c.off, c.n), c.want)
	}
	_, err := s.Get(t.Context(), "digits", -1, 1)
	is(t, err, objstore.ErrRefused, classify.Fatal)
}

func head(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "a/b", "12345")
	i, err := s.Head(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if i.Key != "a/b" || i.Size != 5 || i.Modified.IsZero() {
		t.Errorf("%+v", i)
	}
	for l, err := range s.List(t.Context(), "a/", "") {
		if err != nil || l.Key != i.Key || l.Size != i.Size || l.Modified.IsZero() {
			t.Errorf("listed as %+v, %v; head says %+v", l, err, i)
		}
	}
}

func missing(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "dir/object", "x")
	for _, key := range []string{"no", "dir/no", "dir", "no/no/no", "dir/object2"} {
		for _, n := range []int64{-1, 0, 2} {
			_, err := s.Get(t.Context(), key, 0, n)
			is(t, err, objstore.ErrNotFound, classify.Transient)
		}
		_, err := s.Head(t.Context(), key)
		is(t, err, objstore.ErrNotFound, classify.Transient)
	}
	same(t, "list of nothing", list(t, s, "no", ""), []string(nil))
}

func replace(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "hint", "a long first content")
	put(t, s, "hint", "second")
	same(t, "content", get(t, s, "hint", 0, -1), "second")
	i, err := s.Head(t.Context(), "hint")
	if err != nil || i.Size != 6 {
		t.Errorf("%+v, %v", i, err)
	}
}

func ifAbsent(t *testing.T, s objstore.Store) {
	t.Helper()
	put := func(key, body string) error {
		return s.Put(t.Context(), key, strings.NewReader(body), objstore.IfAbsent)
	}
	if err := put("log/1", "first"); err != nil {
		t.Fatal(err)
	}
	is(t, put("log/1", "second"), objstore.ErrExists, classify.Transient)
	is(t, put("log/1", "first"), objstore.ErrExists, classify.Transient)
	same(t, "content", get(t, s, "log/1", 0, -1), "first")
	if err := put("log/2", "next"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "log/1"); err != nil {
		t.Fatal(err)
	}
	if err := put("log/1", "again"); err != nil {
		t.Errorf("a deleted key is absent: %v", err)
	}
}

func ifAbsentRaces(t *testing.T, s objstore.Store) {
	t.Helper()
	const rounds, racers = 20, 16
	for round := range rounds {
		key := fmt.Sprintf("race/%d/entry.json", round)
		won := make([]error, racers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				<-start
				won[i] = s.Put(t.Context(), key, strings.NewReader(content(i)), objstore.IfAbsent)
			})
		}
		close(start)
		wg.Wait()
		winner := -1
		for i, err := range won {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("%s: won by %d and by %d", key, winner, i)
			case err == nil:
				winner = i
			case classify.Of(err) != classify.Transient:
				t.Fatal(err)
			}
		}
		if winner < 0 { // a store might answer 409 to all puts once; none of the tested stores does
			t.Fatalf("%s: no put succeeded: %v", key, won)
		}
		same(t, key, get(t, s, key, 0, -1), content(winner))
	}
}

// content returns the body that the goroutine with the number racer puts. Several goroutines put the same key, and
// their bodies differ in length.
func content(racer int) string { return strings.Repeat(fmt.Sprintf("racer %d ", racer), 1+racer) }

func keys(t *testing.T, s objstore.Store) {
	t.Helper()
	want := []string{
		"with space/ and another .json", "percent/%20/%2F/100%", "plus+and=equals/a=b/c+d", "ünï¢ode/日本語/😀.parquet",
		"a&b;c'd\"e", "semi;colon:and,comma@at$dollar", "(parens)!*~", "question?mark#hash", "[brackets]{braces}|^`<>",
		"date=2026-01-01 00%3A00%3A00/part.parquet", "e\u0301", "\u00e9", "..dots", "dots..", "a.b..c", "-", "_", ".hidden/x",
		strings.Repeat("l", 200) + "/" + strings.Repeat("m", 200),
	}
	for i, k := range want {
		put(t, s, k, fmt.Sprint(i))
	}
	for i, k := range want {
		same(t, k, get(t, s, k, 0, -1), fmt.Sprint(i))
		if _, err := s.Head(t.Context(), k); err != nil {
			t.Error(err)
		}
		same(t, "list of "+k, list(t, s, k, ""), []string{k})
	}
	slices.Sort(want)
	same(t, "keys", list(t, s, "", ""), want)
	for _, k := range want {
		if err := s.Delete(t.Context(), k); err != nil {
			t.Error(err)
		}
	}
	same(t, "keys after delete", list(t, s, "", ""), []string(nil))
}

func badKeys(t *testing.T, s objstore.Store) {
	t.Helper()
	for _, k := range []string{
		"", ".", "..", "/", "/a", "a/", "a//b", "../x", "a/../b", "a/./b", `a\b`, "a\x00b", "a\nb", "a\x7f", "\xff",
		strings.Repeat("x/", 512) + "x",
	} {
		is(t, s.Put(t.Context(), k, strings.NewReader("x"), objstore.Replace), objstore.ErrRefused, classify.Fatal)
		is(t, s.Put(t.Context(), k, strings.NewReader("x"), objstore.IfAbsent), objstore.ErrRefused, classify.Fatal)
		_, err := s.Get(t.Context(), k, 0, -1)
		is(t, err, objstore.ErrRefused, classify.Fatal)
		_, err = s.Head(t.Context(), k)
		is(t, err, objstore.ErrRefused, classify.Fatal)
		is(t, s.Delete(t.Context(), k), objstore.ErrRefused, classify.Fatal)
	}
	same(t, "keys", list(t, s, "", ""), []string(nil))
}

func sizes(t *testing.T, s objstore.Store) {
	t.Helper()
	random := make([]byte, 20<<20)
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(random) // a Read of rng does not fail
	for _, n := range []int{0, 1, 4096, 1<<20 + 1, len(random)} {
		for _, mode := range []objstore.Mode{objstore.Replace, objstore.IfAbsent} {
			key := fmt.Sprintf("size/%d-%d", n, mode)
			if err := s.Put(t.Context(), key, bytes.NewReader(random[:n]), mode); err != nil {
				t.Fatal(err)
			}
			if get(t, s, key, 0, -1) != string(random[:n]) {
				t.Errorf("%s: other content", key)
			}
			if i, err := s.Head(t.Context(), key); err != nil || i.Size != int64(n) {
				t.Errorf("%s: %+v, %v", key, i, err)
			}
		}
	}
	const off, n = 7_000_001, 3_000_000
	if get(t, s, "size/20971520-0", off, n) != string(random[off:off+n]) {
		t.Error("range of a large object: other content")
	}
}

// bodies tests that a put writes its body from the start, also if the body was read before, and that the store keeps
// its own copy. If a body fails, the put must fail without an effect.
func bodies(t *testing.T, s objstore.Store) {
	t.Helper()
	r := strings.NewReader("the whole body")
	if _, err := r.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"one", "two"} {
		if err := s.Put(t.Context(), key, r, objstore.IfAbsent); err != nil {
			t.Fatal(err)
		}
		same(t, key, get(t, s, key, 0, -1), "the whole body")
	}
	is(t, s.Put(t.Context(), "one", r, objstore.IfAbsent), objstore.ErrExists, classify.Transient)
	if err := s.Put(t.Context(), "three", r, objstore.Replace); err != nil {
		t.Fatal(err)
	}
	same(t, "three", get(t, s, "three", 0, -1), "the whole body")

	b := []byte("before")
	if err := s.Put(t.Context(), "own copy", bytes.NewReader(b), objstore.Replace); err != nil {
		t.Fatal(err)
	}
	copy(b, "after ")
	same(t, "own copy", get(t, s, "own copy", 0, -1), "before")

	for _, mode := range []objstore.Mode{objstore.Replace, objstore.IfAbsent} {
		err := s.Put(t.Context(), "broken", &brokenBody{Reader: strings.NewReader(strings.Repeat("x", 100_000))}, mode)
		is(t, err, errBroken, classify.Transient)
		_, err = s.Head(t.Context(), "broken")
		is(t, err, objstore.ErrNotFound, classify.Transient)
	}
}

var errBroken = errors.New("the body broke")

// brokenBody is a body whose second half cannot be read.
type brokenBody struct{ *strings.Reader }

func (b *brokenBody) Read(p []byte) (int, error) {
	left := int64(b.Len()) - b.Size()/2
	if left <= 0 {
		return 0, errBroken
	}
	return b.Reader.Read(p[:min(int64(len(p)), left)])
}

// WriteTo hides the WriteTo of strings.Reader, which would not fail.
func (b *brokenBody) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{b}) }

func listOrder(t *testing.T, s objstore.Store) {
	t.Helper()
	// A walk through directories by name would give another order: directory "a" comes before "a-b", but key "a-b"
	// comes before "a/c".
	want := []string{"a-b", "a.b", "a/b", "a/b-c", "a/b/c", "a0", "aé", "b", "ba/a", "bb", "é/x", "日/x", "😀"}
	// In a directory store, a/b cannot be both an object and the directory of a/b/c.
	want = slices.DeleteFunc(want, func(k string) bool { return k == "a/b" })
	for _, k := range want {
		put(t, s, k, k)
	}
	slices.Sort(want)
	prefixes := []string{"", "a", "a/", "a-", "a/b", "a/b/", "b", "b/", "bb", "é", "\xc3", "z", "😀"}
	for _, prefix := range prefixes {
		for _, after := range append(slices.Clone(want), "", "a", "a/", "a/b", "a/b/", "a/z", "0", "zz", "\U0010ffff") {
			var model []string
			for _, k := range want {
				if strings.HasPrefix(k, prefix) && k > after {
					model = append(model, k)
				}
			}
			if prefix == "\xc3" { // S3 does not accept this string
				continue
			}
			same(t, fmt.Sprintf("prefix %q after %q", prefix, after), list(t, s, prefix, after), model)
		}
	}
}

func listPages(t *testing.T, s objstore.Store) {
	t.Helper()
	const n, workers = 1105, 16
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("t/_delta_log/%020d.json", i))
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if err := s.Put(t.Context(), want[i], strings.NewReader("x"), objstore.Replace); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	put(t, s, "t/_delta_logs", "x")
	same(t, "all", list(t, s, "t/_delta_log/", ""), want)
	same(t, "from the middle", list(t, s, "t/_delta_log/", want[50]), want[51:])
	same(t, "the last one", list(t, s, "t/_delta_log/", want[n-2]), want[n-1:])
	same(t, "none", list(t, s, "t/_delta_log/", want[n-1]), []string(nil))
	var some []string
	for i, err := range s.List(t.Context(), "t/_delta_log/", "") {
		if err != nil {
			t.Fatal(err)
		}
		if some = append(some, i.Key); len(some) == 3 {
			break
		}
	}
	same(t, "a reader that stops", some, want[:3])
}

// listStops tests that List yields nothing after an error.
func listStops(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "a", "")
	put(t, s, "b", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	yields := 0
	for _, err := range s.List(ctx, "", "") {
		yields++
		if classify.Of(orNone(err)) != classify.Canceled {
			t.Errorf("error %v, want canceled", err)
		}
	}
	same(t, "yields", yields, 1)
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func deletes(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "d/a", "1")
	put(t, s, "d/b", "2")
	for range 2 {
		if err := s.Delete(t.Context(), "d/a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), "never/was/there"); err != nil {
		t.Error(err)
	}
	_, err := s.Get(t.Context(), "d/a", 0, -1)
	is(t, err, objstore.ErrNotFound, classify.Transient)
	same(t, "keys", list(t, s, "", ""), []string{"d/b"})
}

// canceled tests that an operation whose ctx has ended before its start does nothing and returns the error of ctx.
func canceled(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "there", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "there", 0, -1)
	is(t, err, context.Canceled, classify.Canceled)
	_, err = s.Head(ctx, "there")
	is(t, err, context.Canceled, classify.Canceled)
	is(t, s.Delete(ctx, "there"), context.Canceled, classify.Canceled)
	for _, mode := range []objstore.Mode{objstore.Replace, objstore.IfAbsent} {
		err := s.Put(ctx, "new", strings.NewReader("x"), mode)
		is(t, err, context.Canceled, classify.Canceled)
		is(t, err, objstore.ErrNotSent, classify.Canceled)
	}
	same(t, "keys", list(t, s, "", ""), []string{"there"})
}

func lastCheck(t *testing.T, s objstore.Store) {
	t.Helper()
	stale := classify.Mark(errors.New("the snapshot is too old"), classify.Fenced)
	for _, mode := range []objstore.Mode{objstore.Replace, objstore.IfAbsent} {
		checks := 0
		ctx := objstore.WithLastCheck(t.Context(), func() error { checks++; return stale })
		err := s.Put(ctx, "key", strings.NewReader("x"), mode)
		is(t, err, stale, classify.Fenced)
		is(t, err, objstore.ErrNotSent, classify.Fenced)
		same(t, "checks", checks, 1)
		same(t, "keys", list(t, s, "", ""), []string(nil))
	}
	checks := 0
	ctx := objstore.WithLastCheck(t.Context(), func() error { checks++; return nil })
	if err := s.Put(ctx, "key", strings.NewReader("x"), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(ctx, "key"); err != nil {
		t.Fatal(err)
	}
	same(t, "checks", checks, 1)
}

func selfTest(t *testing.T, s objstore.Store) {
	t.Helper()
	put(t, s, "already/here", "x")
	for range 2 {
		if err := objstore.SelfTest(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "keys afterwards", list(t, s, "", ""), []string{"already/here"})
}
