package connector

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sluice/classify"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
)

func TestLocal(t *testing.T) {
	for _, err := range []error{
		nil, classify.Mark(io.EOF, classify.Poison), classify.Mark(io.EOF, classify.Fenced), classify.Mark(io.EOF, classify.Canceled),
		fmt.Errorf("with a cause: %w", hold.New(hold.StoreDown, "no route", nil)), Local("encode", io.EOF),
	} {
		if got := Local("decode", err); got != err { //nolint:errorlint // the very same
			t.Errorf("%v became %v", err, got)
		}
	}
	for _, err := range []error{io.EOF, classify.Mark(io.EOF, classify.Transient), classify.Mark(io.EOF, classify.Fatal)} {
		local := (*LocalError)(nil)
		if got := Local("decode", err); !errors.As(got, &local) || local.Doing != "decode" || !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// TestRecovered: the error of a panic names its place and quotes none of its data.
func TestRecovered(t *testing.T) {
	secret := "geheim"
	deep := func(f func()) (err error) {
		defer func() { err = Recovered("decode", recover()) }()
		f()
		return nil
	}
	var none []int
	for _, c := range []struct {
		f    func()
		want string
	}{
		{func() {}, ""},
		{func() { _ = none[len(secret)] }, "decode: panic: runtime error: index out of range [6] with length 0"},
		{func() { panic("value " + secret) }, "decode: panic of type string"},
		{func() { panic(errors.New(secret)) }, "decode: panic of type *errors.errorString"},
	} {
		err := deep(c.f)
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		local := (*LocalError)(nil)
		if !errors.As(err, &local) || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
			continue
		}
		caught := (*panics.Error)(nil)
		if !errors.As(err, &caught) {
			t.Errorf("%v has no stack", err)
			continue
		}
		at := caught.Stack
		if first, _, _ := strings.Cut(at, "\n"); !strings.Contains(first, "TestRecovered.func") || !strings.Contains(first, "local_test.go:") {
			t.Errorf("the first frame is %s of\n%s", first, at)
		}
		if strings.Contains(err.Error()+at, secret) {
			t.Errorf("quotes: %v\n%s", err, at)
		}
	}
}
