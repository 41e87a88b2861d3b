package classify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"testing"

	"sluice/classify"
	"sluice/classify/classtest"
)

type status int

func (s status) Error() string       { return fmt.Sprintf("answered %d", int(s)) }
func (s status) HTTPStatusCode() int { return int(s) }

// temporary is an error with a method Temporary, such as some errors of package net have.
type temporary struct{ error }

func (temporary) Temporary() bool { return true }

func refused(call string, e syscall.Errno) error {
	return &url.Error{Op: "Put", URL: "http://store", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError(call, e)}}
}

// alert returns a TLS alert of a peer in the form in which package tls reports it: a [net.OpError] around an error of a
// private type. The result has a plain error with the same text in place of the private one.
func alert(code tls.AlertError) error {
	return &net.OpError{Op: "remote error", Err: errors.New(code.Error())}
}

// TestTable compares the classes of Go's errors with their rows in classtest/classes.txt. Each error is wrapped, as
// callers wrap errors.
func TestTable(t *testing.T) {
	known := map[string]error{
		"context.Canceled":                   context.Canceled,
		"context.DeadlineExceeded":           context.DeadlineExceeded,
		"os.ErrDeadlineExceeded":             &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded},
		"io.EOF":                             io.EOF,
		"io.ErrUnexpectedEOF":                io.ErrUnexpectedEOF,
		"io.ErrClosedPipe":                   io.ErrClosedPipe,
		"net.ErrClosed":                      net.ErrClosed,
		"net.Error that timed out":           &url.Error{Op: "Get", Err: os.ErrDeadlineExceeded},
		"net.Error that is temporary":        temporary{errors.New("hiccup")},
		"DNS: no such host":                  &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}},
		"DNS: temporary failure":             &net.DNSError{Err: "server misbehaving", IsTemporary: true},
		"DNS: timeout":                       &net.DNSError{Err: "i/o timeout", IsTimeout: true},
		"DNS: another failure of the server": &net.DNSError{Err: "cannot unmarshal DNS message"},
		"TLS: certificate not verified":      &tls.CertificateVerificationError{Err: errors.New("not for this use")},
		"x509.UnknownAuthorityError":         x509.UnknownAuthorityError{},
		"x509.HostnameError":                 x509.HostnameError{Certificate: &x509.Certificate{}, Host: "store"},
		"x509.CertificateInvalidError":       x509.CertificateInvalidError{Reason: x509.Expired},
		"x509.SystemRootsError":              x509.SystemRootsError{},
		"TLS: the other side speaks none":    tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
		"TLS alert, any other":               alert(42),
		"TLS alert bad_record_mac":           alert(20),
		"TLS alert internal_error":           tls.AlertError(80),
		"TLS alert user_canceled":            alert(90),
		"any other error":                    errors.New("connection timeout 503 AccessDenied SlowDown throttl unavailable rate limit"),
	}
	for name, errno := range map[string]syscall.Errno{
		"ECONNREFUSED": syscall.ECONNREFUSED, "ECONNRESET": syscall.ECONNRESET, "ECONNABORTED": syscall.ECONNABORTED,
		"EPIPE": syscall.EPIPE, "ETIMEDOUT": syscall.ETIMEDOUT, "ENETRESET": syscall.ENETRESET,
		"EHOSTUNREACH": syscall.EHOSTUNREACH, "EHOSTDOWN": syscall.EHOSTDOWN, "ENETUNREACH": syscall.ENETUNREACH,
		"ENETDOWN": syscall.ENETDOWN, "EADDRNOTAVAIL": syscall.EADDRNOTAVAIL, "ENOSPC": syscall.ENOSPC,
		"EDQUOT": syscall.EDQUOT, "EMFILE": syscall.EMFILE, "ENFILE": syscall.ENFILE, "ENOMEM": syscall.ENOMEM,
		"ENOBUFS": syscall.ENOBUFS, "EAGAIN": syscall.EAGAIN, "EINTR": syscall.EINTR, "EBUSY": syscall.EBUSY,
		"EIO": syscall.EIO, "ESTALE": syscall.ESTALE, "EACCES": syscall.EACCES, "EPERM": syscall.EPERM, "EROFS": syscall.EROFS,
	} {
		known[name] = refused("connect", errno)
		if c := classtest.Class(&os.PathError{Op: "write", Err: errno}); c != classtest.Class(known[name]) {
			t.Errorf("%s of a file is %s", name, c)
		}
	}
	for key, err := range known {
		known[key] = fmt.Errorf("put: %w", errors.Join(errors.New("besides"), err))
	}
	classtest.Check(t, "go", known)
}

func TestStatus(t *testing.T) {
	known := map[string]error{}
	for _, row := range classtest.Rows("http") {
		code, err := strconv.Atoi(row.Key)
		if err != nil {
			t.Fatal(err)
		}
		known[row.Key] = status(code)
		class, sure := classify.OfStatus(code)
		if c, k := classify.Known(status(code)); c != class || k != sure {
			t.Errorf("%d: %v, %v as an error and %v, %v as a number", code, c, k, class, sure)
		}
	}
	classtest.Check(t, "http", known)
	for code := 500; code < 600; code++ { // servers may respond with codes that no standard has
		if class, known := classify.OfStatus(code); !known || class != classify.Transient && code != 501 && code != 505 {
			t.Errorf("%d: %v, %v", code, class, known)
		}
	}
}

// TestMarksGoFirst: a mark takes precedence over what the error's type and methods imply.
func TestMarksGoFirst(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		err   error
		class classify.Class
	}{
		{classify.Mark(plain, classify.Poison), classify.Poison},
		{classify.Mark(status(503), classify.Fenced), classify.Fenced},
		{fmt.Errorf("put: %w", classify.Mark(plain, classify.Fatal)), classify.Fatal},
		{classify.Mark(classify.Mark(plain, classify.Transient), classify.Fatal), classify.Fatal},
		{classify.Mark(context.Canceled, classify.Fenced), classify.Fenced},
	} {
		if class, known := classify.Known(c.err); class != c.class || !known || classify.Of(c.err) != class {
			t.Errorf("%v: %v, known %v; want %v", c.err, class, known, c.class)
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
