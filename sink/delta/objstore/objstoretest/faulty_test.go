package objstoretest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// TestFaultless: without faults a Faulty passes the conformance suite of stores.
func TestFaultless(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		t.Helper()
		return faulty(t, objstore.NewMem(), objstoretest.Fault{})
	})
}

func faulty(t *testing.T, s objstore.Store, f objstoretest.Fault) *objstoretest.Faulty {
	t.Helper()
	faults := objstoretest.NewFaulty(s, func(objstore.Op) objstoretest.Fault { return f })
	t.Cleanup(func() {
		if err := faults.Close(); err != nil {
			t.Error(err)
		}
	})
	return faults
}

func put(t *testing.T, s objstore.Store, body string) error {
	t.Helper()
	return s.Put(t.Context(), "key", strings.NewReader(body), objstore.IfAbsent)
}

func content(t *testing.T, s objstore.Store) string {
	t.Helper()
	r, err := s.Get(t.Context(), "key", 0, -1)
	if errors.Is(err, objstore.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBeforeAndAfterTheEffect(t *testing.T) {
	for effect, want := range map[objstoretest.Effect]string{objstoretest.Never: "", objstoretest.Done: "body", objstoretest.Late: ""} {
		m := objstore.NewMem()
		s := faulty(t, m, objstoretest.Fault{Err: objstoretest.ErrUnavailable, Effect: effect})
		if err := put(t, s, "body"); !errors.Is(err, objstoretest.ErrUnavailable) || classify.Of(err) != classify.Transient {
			t.Error(err)
		}
		if got := content(t, m); got != want {
			t.Errorf("effect %v: %q, want %q", effect, got, want)
		}
		if err := s.Delete(t.Context(), "key"); !errors.Is(err, objstoretest.ErrUnavailable) {
			t.Error(err)
		}
		if got := content(t, m); got != "" {
			t.Errorf("effect %v of a delete: %q", effect, got)
		}
	}
}

func TestClaimedErrors(t *testing.T) {
	for err, want := range map[error]error{
		objstoretest.ErrExists: objstore.ErrExists,
		objstoretest.ErrDenied: objstore.ErrRefused,
	} {
		if got := put(t, faulty(t, objstore.NewMem(), objstoretest.Fault{Err: err}), "x"); !errors.Is(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestLateLanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := objstore.NewMem()
		fault := objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: time.Minute}
		s := objstoretest.NewFaulty(m, func(o objstore.Op) objstoretest.Fault { return fault })
		ctx, cancel := context.WithCancel(t.Context())
		checks := 0
		body := []byte("late")
		if err := s.Put(objstore.WithLastCheck(ctx, func() error { checks++; return nil }), "key",
			strings.NewReader(string(body)), objstore.IfAbsent); !errors.Is(err, objstoretest.ErrTimeout) {
			t.Fatal(err)
		}
		cancel() // ends the sender; the Late put must take effect nevertheless
		time.Sleep(59 * time.Second)
		if got := content(t, m); got != "" || len(s.Flying()) != 1 {
			t.Fatalf("%q, flying %v", got, s.Flying())
		}
		time.Sleep(2 * time.Second)
		if got := content(t, m); got != "late" || len(s.Flying()) != 0 || checks != 1 {
			t.Fatalf("%q, flying %v, %d checks", got, s.Flying(), checks)
		}

		fault.Land = 0
		for range 3 {
			if err := put(t, s, "again"); !errors.Is(err, objstoretest.ErrTimeout) {
				t.Fatal(err)
			}
		}
		if err := s.Land(s.Flying()[2].N); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("landed on another's object: %v", err)
		}
		s.Drop(s.Flying()[0].N)
		if f := s.Flying(); len(f) != 1 || f[0].String() != "put-if-absent key" {
			t.Errorf("flying %v", f)
		}
		fault.Land = time.Hour
		if err := put(t, s, "never"); !errors.Is(err, objstoretest.ErrTimeout) {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil { // the Late operation would take effect only in an hour
			t.Fatal(err)
		}
	})
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := objstore.NewMem()
		s := objstoretest.NewFaulty(m, func(o objstore.Op) objstoretest.Fault {
			return objstoretest.Fault{Delay: time.Hour, Linger: time.Hour}
		})
		began := time.Now()
		for i, c := range []struct {
			after time.Duration
			sent  bool
		}{{30 * time.Minute, false}, {90 * time.Minute, true}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.after)
			err := s.Put(ctx, "key", strings.NewReader("x"), objstore.IfAbsent)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, objstore.ErrNotSent) == c.sent || (content(t, m) != "") != c.sent {
				t.Errorf("%d: %v, content %q", i, err, content(t, m))
			}
		}
		if _, err := s.Head(t.Context(), "key"); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 4*time.Hour {
			t.Errorf("took %v", d)
		}
	})
}

func TestReadsBreakOff(t *testing.T) {
	m := objstore.NewMem()
	for _, k := range []string{"a", "b", "c", "d"} {
		if err := m.Put(t.Context(), k, strings.NewReader("0123456789"), objstore.Replace); err != nil {
			t.Fatal(err)
		}
	}
	for effect, want := range map[objstoretest.Effect]struct {
		body string
		list int
	}{objstoretest.Never: {"", 0}, objstoretest.Done: {"01234", 2}, objstoretest.Late: {"", 0}} {
		s := faulty(t, m, objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: effect})
		r, err := s.Get(t.Context(), "a", 0, -1)
		var b []byte
		if effect == objstoretest.Done && err == nil {
			b, err = io.ReadAll(r)
		}
		if !errors.Is(err, objstoretest.ErrTimeout) || string(b) != want.body {
			t.Errorf("get: %q, %v", b, err)
		}
		n, failures := 0, 0
		for _, err := range s.List(t.Context(), "", "") {
			if err != nil {
				failures++
			} else {
				n++
			}
		}
		if n != want.list || failures != 1 {
			t.Errorf("list: %d objects, %d failures", n, failures)
		}
	}
}
