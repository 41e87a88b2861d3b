package connector

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"

	"sluice/classify"
)

// LocalError is a failure of our own work on rows for a reason that nobody knows: neither a bad record nor a dependency. A
// decoder or an encoder that panics is one. It has no class: what is found about it decides. See [writer.broken].
type LocalError struct {
	Doing string // "decode" or "encode"
	Err   error  // never with bytes of a record
}

// Error says what failed.
func (e *LocalError) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LocalError) Unwrap() error { return e.Err }

// Local makes an error of our own work a LocalError, unless it is one, or is known to be anything else: Poison, Fenced,
// Canceled, a [HoldError]. nil stays nil.
func Local(doing string, err error) error {
	if err == nil || errors.As(err, new(*LocalError)) || errors.As(err, new(*HoldError)) {
		return err
	}
	switch classify.Of(err) {
	case classify.Poison, classify.Fenced, classify.Canceled:
		return err
	case classify.Transient, classify.Fatal:
	}
	return &LocalError{doing, err}
}

// Recovered makes what recover returned a LocalError, nil if it returned nil. The value of a panic may quote a record, so
// only that of the runtime is kept, and of others their type.
func Recovered(doing string, v any) error {
	if v == nil {
		return nil
	}
	text := fmt.Sprintf("panic of type %T", v)
	if own, ok := v.(runtime.Error); ok {
		text = "panic: " + own.Error()
	}
	return &LocalError{doing, &panicked{text, frames()}}
}

// panicked is what is known of a panic.
type panicked struct {
	text  string
	stack stack
}

func (p *panicked) Error() string { return p.text }
func (p *panicked) Unwrap() error { return p.stack }

// stack is the innermost functions of a panic, without their arguments, which may be parts of a record.
type stack string

func (s stack) Error() string { return string(s) }

// frames are those of the goroutine that panics, from the place where it did.
func frames() stack {
	const most = 12
	pcs := make([]uintptr, 64)
	all := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var lines []string
	for {
		f, more := all.Next()
		if strings.HasPrefix(f.Function, "runtime.") && strings.HasSuffix(f.Function, "gopanic") {
			lines = nil // what lies above only recovers
		} else if !strings.HasPrefix(f.Function, "runtime.") {
			lines = append(lines, fmt.Sprintf("%s %s:%d", f.Function, path.Base(f.File), f.Line))
		}
		if !more {
			return stack(strings.Join(lines[:min(len(lines), most)], "\n"))
		}
	}
}
