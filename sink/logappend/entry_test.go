package logappend_test

import (
	"bytes"
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
	"sluice/sink/logappend"
)

const key = "log/00000000000000000005.json"

// fixture is an Entry and its store. Puts of the entry's key fail in the given order.
type fixture struct {
	*logappend.Entry
	t        *testing.T
	store    objstore.Store
	unknowns int
	gone     bool
}

func newFixture(t *testing.T, faults ...objstoretest.Fault) *fixture {
	t.Helper()
	mem, puts := objstore.NewMem(), 0
	p := &fixture{t: t, store: mem}
	faulty := objstoretest.NewFaulty(mem, func(op objstore.Op) objstoretest.Fault {
		if op.Kind != objstore.OpPutIfAbsent {
			return objstoretest.Fault{}
		}
		if puts++; puts > len(faults) {
			return objstoretest.Fault{}
		}
		return faults[puts-1]
	})
	t.Cleanup(func() { _ = faulty.Close() })
	p.Entry = &logappend.Entry{
		Store: faulty, Key: key, Body: []byte("mine"), PreviousSeen: time.Now(),
		CheckPrevious: func(context.Context) error {
			if p.gone {
				return logappend.PreviousGone(classify.Fenced, "no version 4")
			}
			return nil
		},
		IsOurs: func(ctx context.Context) (bool, error) {
			r, err := faulty.Get(ctx, key, 0, -1)
			if err != nil {
				return false, err
			}
			defer r.Close()
			there, err := io.ReadAll(r)
			return bytes.Equal(there, p.Body), err
		},
		OnUnknown: func(context.Context, error) { p.unknowns++ },
	}
	return p
}

func (p *fixture) put(body string) {
	p.t.Helper()
	if err := p.store.Put(p.t.Context(), key, strings.NewReader(body), objstore.IfAbsent); err != nil {
		p.t.Fatal(err)
	}
}

// want calls Try once and returns its error. It fails the test unless Try returns won, an error (if any) has the class,
// and UnknownSince is set exactly if unresolved is true.
func (p *fixture) want(won bool, class classify.Class, unresolved bool) error {
	p.t.Helper()
	got, err := p.Try(p.t.Context())
	switch {
	case got != won:
		p.t.Errorf("committed is %v, want %v (%v)", got, won, err)
	case err != nil && classify.Of(err) != class:
		p.t.Errorf("%v is %v, want %v", err, classify.Of(err), class)
	case p.UnknownSince().IsZero() == unresolved:
		p.t.Errorf("unresolved since %v, want %v", p.UnknownSince(), unresolved)
	}
	return err
}

const decided = classify.Class(255) // stands for "no error is expected"

func (p *fixture) decides(won, unresolved bool) {
	p.t.Helper()
	if err := p.want(won, decided, unresolved); err != nil {
		p.t.Error(err)
	}
}

func (p *fixture) fails(class classify.Class, unresolved bool) error {
	p.t.Helper()
	err := p.want(false, class, unresolved)
	if err == nil {
		p.t.Error("conflict, want an error")
	}
	return err
}

// TestTry covers all outcomes of a put, including the unknown ones.
func TestTry(t *testing.T) {
	done := func(err error) objstoretest.Fault { return objstoretest.Fault{Err: err, Effect: objstoretest.Done} }
	never := func(err error) objstoretest.Fault { return objstoretest.Fault{Err: err, Effect: objstoretest.Never} }
	t.Run("committed", func(t *testing.T) {
		p := newFixture(t)
		p.decides(true, false)
		if p.Sent().IsZero() || p.unknowns != 0 {
			t.Errorf("sent %v, %d reports of an unknown outcome", p.Sent(), p.unknowns)
		}
	})
	t.Run("conflict", func(t *testing.T) {
		p := newFixture(t)
		p.put("another's")
		p.decides(false, true)
	})
	t.Run("exists and is ours", func(t *testing.T) {
		p := newFixture(t)
		p.put("mine")
		p.decides(true, true)
	})
	t.Run("answer lost", func(t *testing.T) {
		p := newFixture(t, done(objstoretest.ErrTimeout))
		p.decides(true, true)
	})
	t.Run("unknown until another object is there", func(t *testing.T) {
		p := newFixture(t, never(objstoretest.ErrTimeout), never(objstoretest.ErrConflict), never(objstoretest.ErrDenied))
		_ = p.fails(classify.Transient, true)
		_ = p.fails(classify.Transient, true)
		if err := p.fails(classify.Transient, true); errors.Is(err, objstore.ErrRefused) {
			t.Error("a refusal after a put of unknown outcome passes for one without effect")
		}
		if p.unknowns == 0 {
			t.Error("OnUnknown was not called")
		}
		p.put("another's")
		p.decides(false, true)
	})
	t.Run("refused", func(t *testing.T) {
		p := newFixture(t, never(objstoretest.ErrDenied))
		if err := p.fails(classify.Fatal, false); !errors.Is(err, objstore.ErrRefused) {
			t.Error(err)
		}
	})
	t.Run("not sent", func(t *testing.T) {
		p := newFixture(t, never(objstore.ErrNotSent))
		_ = p.fails(classify.Transient, false)
		p.decides(true, false)
	})
}

// TestTry_StaleCheck: before a put, knowledge of the log that is older than a minute is checked again. A put whose
// check becomes too old before it is sent is not sent.
func TestTry_StaleCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFixture(t)
		time.Sleep(time.Minute)
		p.gone = true
		if err := p.fails(classify.Fenced, false); !errors.Is(err, logappend.ErrPreviousGone) || !p.Sent().IsZero() {
			t.Errorf("%v, sent %v", err, p.Sent())
		}
		p.gone = false
		p.decides(true, false)
	})
}

func TestRecent(t *testing.T) {
	at := time.Now()
	for d, want := range map[time.Duration]bool{0: true, 59 * time.Second: true, time.Minute: false, time.Hour: false} {
		if got := logappend.Recent(at, at.Add(d)); got != want {
			t.Errorf("after %v: %v", d, got)
		}
	}
	// The monotonic clock stopped, or the wall clock was set back.
	wall := at.Round(0)
	if logappend.Recent(wall, wall.Add(-time.Minute)) {
		t.Error("a wall clock that was set back is trusted")
	}
}
