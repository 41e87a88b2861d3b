// Package panics turns a panic into an error that is safe to log: it says where the panic happened and quotes none of
// the data that caused it.
package panics

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Error is a recovered panic. Text is the message of a [runtime.Error]; for other values it is only their type, because
// the value may quote a record. Stack lists the innermost functions, one a line, without their arguments for the same
// reason.
type Error struct {
	Text  string
	Stack string
}

// Error returns the text without the stack.
func (e *Error) Error() string { return e.Text }

// Seen remembers the text and the place of the last panic, so that a panic that each retry repeats is logged once. The
// zero Seen is ready to use, from any goroutine.
type Seen struct {
	mu   sync.Mutex
	last string
}

// Anew returns the panic in the chain of err, or nil if there is none. anew reports whether it differs from the last
// one that Anew returned.
func (s *Seen) Anew(err error) (caught *Error, anew bool) {
	if !errors.As(err, &caught) {
		return nil, false
	}
	place, _, _ := strings.Cut(caught.Stack, "\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	anew = s.last != caught.Text+place
	s.last = caught.Text + place
	return caught, anew
}

// Catch runs op and returns its error, or an [Error] if op panics.
func Catch(op func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Of(v)
		}
	}()
	return op()
}

// Of returns the [Error] for a value that recover returned. Call it in the deferred function that recovered, because
// the stack is gone once that function returns.
func Of(v any) *Error {
	text := fmt.Sprintf("panic of type %T", v)
	if own, ok := v.(runtime.Error); ok {
		text = "panic: " + own.Error()
	}
	return &Error{text, frames()}
}

// frames lists the functions of the goroutine that panicked, from the place of the panic outwards, at most maxFrames.
func frames() string {
	const maxFrames = 12
	pcs := make([]uintptr, 64)
	all := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var lines []string
	for {
		f, more := all.Next()
		if strings.HasPrefix(f.Function, "runtime.") && strings.HasSuffix(f.Function, "gopanic") {
			lines = nil // the frames found so far belong to the recovery from the panic
		} else if !strings.HasPrefix(f.Function, "runtime.") {
			lines = append(lines, fmt.Sprintf("%s %s:%d", f.Function, path.Base(f.File), f.Line))
		}
		if !more {
			return strings.Join(lines[:min(len(lines), maxFrames)], "\n")
		}
	}
}
