// Package objstore is the bucket: the few operations that a Delta table needs, over S3, a local directory or memory.
//
// A store does each operation once and says what happened. It never retries (the AWS SDK's retries are off): who
// knows what an operation means decides whether to repeat it. Errors carry a class; those of a PUT with IfAbsent also
// say what is known of its outcome. [Explain] turns an error into a line for people and a hint.
//
// "Not found" is an answer that much depends on: the end of a log is where the next version is not found. So it counts only
// if S3 itself gives it, with the code NoSuchKey or NotFound. A 404 without such a code comes from an ingress or a proxy
// while the service behind it restarts; it is Transient, and after a PUT the outcome is unknown. The answer to a HEAD has no
// body and so no code, and no header tells all S3 services from all proxies. A HEAD that is answered with 404 is therefore
// followed by a GET of one byte, whose answer decides.
package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Store is a bucket, or a prefix or directory taken as one. All methods may be called at the same time. What Put reported
// as done survives a crash of the store's host, and every later Get, Head and List sees it.
//
// Keys are relative to the store: valid UTF-8 of at most 1024 bytes without control characters and backslashes, parts
// separated by single slashes, none of them empty, "." or "..". Other keys are refused. No key of a store should be the
// directory of another: a local directory refuses that.
//
// Contract of errors: [ErrNotFound] for a missing key, [ErrExists] for a Put with IfAbsent that certainly did not take
// effect because the key exists, Fatal for denial (401, 403) and a missing bucket, Transient for everything that passes.
// Any error of a Put with IfAbsent other than ErrExists, [ErrRefused] and an error before the request left
// (canceled before the start, [ErrNotSent]) leaves the outcome unknown.
type Store interface {
	// Get opens an object from offset off on, to its end or for n bytes if n >= 0. The caller closes it. What lies
	// beyond the end is left out, so a range wholly beyond it is empty. A read that fails has a class, too.
	Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// Head returns size and time of an object.
	Head(ctx context.Context, key string) (Info, error)
	// Put writes an object whole. It reads body from its start, wherever it stands, so that the same reader serves
	// another try. [WithLastCheck] adds a condition that is looked at when the request is ready to leave.
	Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error
	// List yields the objects below prefix (a plain string prefix) with keys after `after`, in byte order of keys. An
	// error ends it.
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

// Mode says what Put does if the key exists.
type Mode uint8

const (
	// Replace writes in any case. For hints and objects with names of their own.
	Replace Mode = iota
	// IfAbsent writes only if the key does not exist, atomically among all writers (S3: If-None-Match: *). Of all such
	// puts of one key at most one ever takes effect.
	IfAbsent
)

var (
	// ErrNotFound says that there is no object of this key.
	ErrNotFound = errors.New("object not found")
	// ErrExists says that the key exists already. It may be one's own earlier try of unknown outcome.
	ErrExists = errors.New("object exists")
	// ErrRefused says that the store refused the request before doing anything (400, 403, 501, missing bucket). After
	// an earlier try of unknown outcome it says nothing about that one.
	ErrRefused = errors.New("request refused")
	// ErrNotSent says that the request never left, so this try has no effect. It says nothing about earlier ones.
	ErrNotSent = errors.New("request not sent")
	// ErrUnsafe says that a store does not keep the promise of IfAbsent; the self-test found it out.
	ErrUnsafe = errors.New("store has no exclusive put")
)
