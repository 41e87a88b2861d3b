// Package objstore is the object store: the few operations that a Delta table needs, on S3, a local directory or
// memory.
//
// A store does each operation once and reports the result. It never retries, and the AWS SDK's retries are off: only
// the caller knows what an operation means and whether to repeat it. Errors have a class. Those of a Put with
// IfAbsent also say what is known about its outcome. [Explain] turns an error into a line for people and a hint.
//
// Much depends on "not found": a log ends where the next version is not found. So it counts only from S3 itself, with
// the code NoSuchKey or NotFound. A 404 without such a code comes from an ingress or a proxy while the service behind
// it restarts. It is Transient, and after a Put the outcome is unknown. The response to a HEAD has no body, hence no
// code, and no header distinguishes all S3 services from all proxies. So after a HEAD with 404 the store sends a GET
// of one byte, whose response decides.
package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Store is a bucket, a prefix of one, or a directory. All methods are safe for concurrent use. A Put that succeeded
// survives a crash of the store's host, and every later Get, Head and List sees it.
//
// Keys are relative to the store. A key is valid UTF-8 of at most 1024 bytes without control characters and
// backslashes. Its parts are separated by single slashes, and none is empty, "." or "..". Other keys are refused. A
// key should not be the directory of another one: a local directory refuses that.
//
// Errors: [ErrNotFound] for a missing key; [ErrExists] for a Put with IfAbsent that certainly had no effect because
// the key exists; Fatal for denial (401, 403) and a missing bucket; Transient for everything that can pass. After a
// Put with IfAbsent the outcome is known only with ErrExists, [ErrRefused], or an error before the request was sent
// (ctx ended before the start, [ErrNotSent]). Any other error leaves it unknown.
type Store interface {
	// Get opens an object from offset off on, to its end or for n bytes if n >= 0. The caller must close it. Bytes
	// beyond the end are left out, so a range completely beyond it is empty. Errors of Read have a class, too.
	Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// Head returns size and time of an object.
	Head(ctx context.Context, key string) (Info, error)
	// Put writes a whole object. It reads body from its start, regardless of its position, so that the caller can
	// pass the same reader again. [WithLastCheck] adds a condition that is checked when the request is ready to be
	// sent.
	Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error
	// List yields the objects below prefix (a plain string prefix) with keys after `after`, in byte order of keys. An
	// error ends the list.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
	// Delete removes an object. A missing one is no error.
	Delete(ctx context.Context, key string) error
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}

// Mode decides what Put does if the key exists.
type Mode uint8

const (
	// Replace always writes. It is for hints and for objects with unique names.
	Replace Mode = iota
	// IfAbsent writes only if the key does not exist, atomically among all writers (S3: If-None-Match: *). Of all
	// such puts of one key at most one ever takes effect.
	IfAbsent
)

var (
	// ErrNotFound means that no object has this key.
	ErrNotFound = errors.New("object not found")
	// ErrExists means that the key already exists. The object may be the caller's own earlier put of unknown outcome.
	ErrExists = errors.New("object exists")
	// ErrRefused means that the store refused the request without any effect (400, 403, 501, missing bucket). It says
	// nothing about an earlier put of unknown outcome.
	ErrRefused = errors.New("request refused")
	// ErrNotSent means that the request was never sent, so it has no effect. It says nothing about earlier requests.
	ErrNotSent = errors.New("request not sent")
	// ErrUnsafe means that a store breaks a promise that commits rely on: an exclusive IfAbsent, reads and lists that
	// see each put, or lists in byte order.
	ErrUnsafe = errors.New("store has no exclusive put")
)
