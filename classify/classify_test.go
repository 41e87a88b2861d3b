package classify_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"sluice/classify"
)

type status int

func (s status) Error() string       { return fmt.Sprintf("answered %d", int(s)) }
func (s status) HTTPStatusCode() int { return int(s) }

// TestTable is the table of docs/guarantees.md, as far as this version meets its rows.
func TestTable(t *testing.T) {
	plain := errors.New("connection timeout 503 AccessDenied") // a text must not steer: it can quote a record
	for _, c := range []struct {
		err   error
		class classify.Class
		known bool
	}{
		{status(401), classify.Fatal, true},
		{status(403), classify.Fatal, true},
		{status(404), classify.Transient, false},
		{status(408), classify.Transient, true},
		{status(409), classify.Transient, true},
		{status(429), classify.Transient, true},
		{status(500), classify.Transient, true},
		{status(503), classify.Transient, true},
		{context.Canceled, classify.Canceled, true},
		{context.DeadlineExceeded, classify.Transient, true},
		{os.ErrDeadlineExceeded, classify.Transient, true},
		{&net.DNSError{IsTimeout: true}, classify.Transient, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, classify.Transient, true},
		{syscall.ECONNRESET, classify.Transient, true},
		{syscall.EPIPE, classify.Transient, true},
		{io.ErrUnexpectedEOF, classify.Transient, true},
		{&os.PathError{Op: "write", Err: syscall.ENOSPC}, classify.Transient, true},
		{syscall.EMFILE, classify.Transient, true},
		{&os.PathError{Op: "open", Err: syscall.EACCES}, classify.Fatal, true},
		{syscall.EROFS, classify.Fatal, true},
		{plain, classify.Transient, false},
		{classify.Mark(plain, classify.Poison), classify.Poison, true},
		{classify.Mark(status(503), classify.Fenced), classify.Fenced, true},
		{fmt.Errorf("put: %w", classify.Mark(plain, classify.Fatal)), classify.Fatal, true},
		{classify.Mark(classify.Mark(plain, classify.Transient), classify.Fatal), classify.Fatal, true},
	} {
		class, known := classify.Known(c.err)
		if class != c.class || known != c.known || classify.Of(c.err) != class {
			t.Errorf("%v: %v, known %v; want %v, %v", c.err, class, known, c.class, c.known)
		}
	}
}

func TestMarkKeepsTheCause(t *testing.T) {
	if classify.Mark(nil, classify.Fatal) != nil {
		t.Error("nil became an error")
	}
	if err := classify.Mark(io.EOF, classify.Poison); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
		t.Errorf("mark changed the error: %v", err)
	}
}

func TestNames(t *testing.T) {
	for c, want := range map[classify.Class]string{
		classify.Transient: "transient", classify.Poison: "poison", classify.Fatal: "fatal",
		classify.Fenced: "fenced", classify.Canceled: "canceled", 9: "class(9)",
	} {
		if c.String() != want {
			t.Errorf("%d is %q, want %q", c, c, want)
		}
	}
}
