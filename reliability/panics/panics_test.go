package panics_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sluice/reliability/panics"
)

func TestCatch_NoPanic(t *testing.T) {
	if err := panics.Catch(func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := panics.Catch(func() error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestCatch: the error of a panic names its place and quotes nothing of its value.
func TestCatch(t *testing.T) {
	secret := "geheim"
	var none []int
	for want, op := range map[string]func() error{
		"panic: runtime error: index out of range [6] with length 0": func() error { _ = none[len(secret)]; return nil },
		"panic of type string":              func() error { panic("value " + secret) },
		"panic of type *errors.errorString": func() error { panic(errors.New(secret)) },
	} {
		err := panics.Catch(op)
		var caught *panics.Error
		if !errors.As(err, &caught) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
			continue
		}
		if first, _, _ := strings.Cut(caught.Stack, "\n"); !strings.Contains(first, "TestCatch.func") || !strings.Contains(first, "panics_test.go:") {
			t.Errorf("the first frame is %s of\n%s", first, caught.Stack)
		}
		if strings.Contains(err.Error()+caught.Stack, secret) {
			t.Errorf("quotes: %v\n%s", err, caught.Stack)
		}
	}
}

// throws panics. It must not be inlined, so that all of its panics have the same place.
//
//go:noinline
func throws(value any) error { panic(value) }

// TestSeen: a panic counts as new if its text or its place differs from that of the panic before.
func TestSeen(t *testing.T) {
	fails := func(value any) error { return panics.Catch(func() error { return throws(value) }) }
	var s panics.Seen
	for i, tt := range []struct {
		err  error
		anew bool
	}{{fails(io.EOF), true}, {fails("a"), true}, {fails("b"), false}, {fmt.Errorf("load: %w", fails("c")), false}, {fails(io.EOF), true}} {
		caught, anew := s.Anew(tt.err)
		if caught == nil || anew != tt.anew {
			t.Errorf("%d: %v, anew %v", i, caught, anew)
		}
	}
	for _, err := range []error{nil, io.EOF} {
		if caught, anew := s.Anew(err); caught != nil || anew {
			t.Errorf("%v: %v, anew %v", err, caught, anew)
		}
	}
}
