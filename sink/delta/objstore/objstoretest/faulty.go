package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/sink/delta/objstore"
)

// The errors that a test can inject. Each wraps the sentinel and has the class that a real store would give it.
var (
	// ErrUnavailable is a 503. The outcome of a put is unknown.
	ErrUnavailable = classify.Mark(errors.New("injected: 503 SlowDown"), classify.Transient)
	// ErrTimeout is a missing response. The outcome of a put is unknown.
	ErrTimeout = classify.Mark(errors.New("injected: no answer in time"), classify.Transient)
	// ErrConflict is a 409. The outcome of a put is unknown.
	ErrConflict = classify.Mark(errors.New("injected: 409 ConditionalRequestConflict"), classify.Transient)
	// ErrDenied is a 403. This try of a put has no effect.
	ErrDenied = classify.Mark(fmt.Errorf("injected: 403 AccessDenied: %w", objstore.ErrRefused), classify.Fatal)
	// ErrExists is a 412.
	ErrExists = classify.Mark(fmt.Errorf("injected: 412 PreconditionFailed: %w", objstore.ErrExists), classify.Transient)
)

// Effect is when a failing operation takes effect.
type Effect uint8

const (
	// Never means that the operation does not take effect.
	Never Effect = iota
	// Done means that the operation takes effect before the caller gets the error. A Get yields half of the bytes
	// before the error, a List half of the objects.
	Done
	// Late means that the operation takes effect after the caller got the error. For an operation that changes nothing
	// it equals Never.
	Late
)

// Fault is what happens to one operation. The zero Fault leaves the operation as it is.
type Fault struct {
	// Delay is the wait before the operation. If ctx ends meanwhile, the operation does not happen.
	Delay time.Duration
	// Err is the error that the caller gets instead of the result; nil if the caller gets the result.
	Err error
	// Effect is when an operation with Err takes effect.
	Effect Effect
	// Land is the time from the error to the effect of a Late operation. Zero means that it takes effect only when the
	// test calls [Faulty.Land].
	Land time.Duration
	// Linger is the wait between the operation and its result. If ctx ends meanwhile, the caller gets the error of ctx.
	Linger time.Duration
}

// Faulty is a store whose operations fail on command. It uses the clock of the process, so a synctest bubble makes
// its times virtual.
type Faulty struct {
	inner  objstore.Store
	decide func(objstore.Op) Fault

	mu     sync.Mutex
	n      int
	flying []*flight
	timers sync.WaitGroup
	closed bool
}

// flight is a Late operation that has not taken effect yet.
type flight struct {
	op    objstore.Op
	timer *time.Timer
	land  func() error
}

// NewFaulty returns a store that passes operations on to s. At the start of each operation it calls decide for the
// fault, possibly from many goroutines at once; while decide blocks, the operation waits.
func NewFaulty(s objstore.Store, decide func(objstore.Op) Fault) *Faulty {
	return &Faulty{inner: s, decide: decide}
}

// Close drops the Late operations that have not begun to take effect, and waits for those that have.
func (f *Faulty) Close() error {
	f.mu.Lock()
	f.closed = true
	for _, l := range f.flying {
		if l.timer != nil && l.timer.Stop() {
			f.timers.Done()
		}
	}
	f.flying = nil
	f.mu.Unlock()
	f.timers.Wait()
	return nil
}

// Flying returns the Late operations that have not taken effect, in the order in which they were sent.
func (f *Faulty) Flying() (ops []objstore.Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.flying {
		ops = append(ops, l.op)
	}
	return ops
}

// Land lets Late operation number n ([objstore.Op].N) take effect now, and returns its result, which no caller gets. It
// returns an error if that operation has taken effect or was dropped.
func (f *Faulty) Land(n int) error {
	l := f.take(n)
	if l == nil {
		return fmt.Errorf("operation %d is not flying", n)
	}
	return l.land()
}

// Drop prevents Late operation number n from taking effect, unless it has taken effect already.
func (f *Faulty) Drop(n int) { f.take(n) }

// take removes operation number n from the Late operations that have not taken effect. It returns nil if it is not
// among them.
func (f *Faulty) take(n int) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.flying, func(l *flight) bool { return l.op.N == n })
	if i < 0 {
		return nil
	}
	l := f.flying[i]
	if l.timer != nil && l.timer.Stop() {
		f.timers.Done()
	}
	f.flying = slices.Delete(f.flying, i, i+1)
	return l
}

// send adds a Late operation, whose effect is land. land is called after the given time, or if that is zero, when the
// test calls [Faulty.Land].
func (f *Faulty) send(op objstore.Op, after time.Duration, land func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	l := &flight{op: op, land: land}
	f.flying = append(f.flying, l)
	if after > 0 {
		f.timers.Add(1)
		l.timer = time.AfterFunc(after, func() {
			defer f.timers.Done()
			if f.take(op.N) != nil {
				_ = land() // no caller waits for the result
			}
		})
	}
}

// begin numbers an operation, gets its fault, and waits for the delay.
func (f *Faulty) begin(ctx context.Context, k objstore.OpKind, key, after string) (objstore.Op, Fault, error) {
	f.mu.Lock()
	op := objstore.Op{Kind: k, Key: key, After: after, N: f.n}
	f.n++
	f.mu.Unlock()
	fault := f.decide(op)
	if err := pause(ctx, fault.Delay); err != nil {
		return op, fault, fmt.Errorf("%v: %w: %w", op, objstore.ErrNotSent, err)
	}
	return op, fault, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// change runs do, the effect of a Put or Delete, and returns its result. If the fault has an error, change returns that
// error instead. The fault's Effect then says whether do runs before that, later or never.
func (f *Faulty) change(ctx context.Context, op objstore.Op, fault Fault, do func(context.Context) error) error {
	if fault.Err != nil && fault.Effect != Done {
		if fault.Effect == Late {
			late := objstore.WithLastCheck(context.WithoutCancel(ctx), nil)
			f.send(op, fault.Land, func() error { return do(late) })
		}
		return fmt.Errorf("%v: %w", op, fault.Err)
	}
	err := do(ctx)
	if e := pause(ctx, fault.Linger); e != nil {
		return fmt.Errorf("%v: %w", op, e)
	}
	if fault.Err != nil {
		return fmt.Errorf("%v: %w", op, fault.Err)
	}
	return err
}

// Put implements [objstore.Store].
func (f *Faulty) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	op, fault, err := f.begin(ctx, objstore.PutKind(mode), key, "")
	if err != nil {
		return err
	}
	if fault.Err != nil && fault.Effect == Late {
		// The request would be sent now, so this is the time for the last check.
		if err := objstore.LastCheck(ctx); err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return err
		}
		b, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	return f.change(ctx, op, fault, func(ctx context.Context) error { return f.inner.Put(ctx, key, body, mode) })
}

// Delete implements [objstore.Store].
func (f *Faulty) Delete(ctx context.Context, key string) error {
	op, fault, err := f.begin(ctx, objstore.OpDelete, key, "")
	if err != nil {
		return err
	}
	return f.change(ctx, op, fault, func(ctx context.Context) error { return f.inner.Delete(ctx, key) })
}

// Head implements [objstore.Store].
func (f *Faulty) Head(ctx context.Context, key string) (i objstore.Info, err error) {
	op, fault, err := f.begin(ctx, objstore.OpHead, key, "")
	if err == nil {
		err = f.read(ctx, op, fault, func() (err error) { i, err = f.inner.Head(ctx, key); return err })
	}
	return i, err
}

// read runs do, an operation that changes nothing. If the fault has an error, read returns the error and does not run
// do.
func (f *Faulty) read(ctx context.Context, op objstore.Op, fault Fault, do func() error) error {
	err := fault.Err
	if err != nil {
		err = fmt.Errorf("%v: %w", op, err)
	} else {
		err = do()
	}
	if e := pause(ctx, fault.Linger); e != nil {
		return fmt.Errorf("%v: %w", op, e)
	}
	return err
}

// Get implements [objstore.Store].
func (f *Faulty) Get(ctx context.Context, key string, off, n int64) (r io.ReadCloser, err error) {
	op, fault, err := f.begin(ctx, objstore.OpGet, key, "")
	if err != nil {
		return nil, err
	}
	breaks := fault.Err
	if fault.Effect == Done {
		fault.Err = nil
	}
	err = f.read(ctx, op, fault, func() (err error) { r, err = f.inner.Get(ctx, key, off, n); return err })
	if err != nil || breaks == nil {
		return r, err
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), brokenReader{fmt.Errorf("%v: %w", op, breaks)})), nil
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

// List implements [objstore.Store].
func (f *Faulty) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		op, fault, err := f.begin(ctx, objstore.OpList, prefix, after)
		if err == nil {
			err = pause(ctx, fault.Linger)
		}
		if err == nil && fault.Err == nil {
			f.inner.List(ctx, prefix, after)(yield)
			return
		}
		if err == nil {
			err = fmt.Errorf("%v: %w", op, fault.Err)
			var all []objstore.Info
			for i, e := range f.inner.List(ctx, prefix, after) {
				if e != nil {
					break
				}
				all = append(all, i)
			}
			if fault.Effect != Done {
				all = nil
			}
			for _, i := range all[:len(all)/2] {
				if !yield(i, nil) {
					return
				}
			}
		}
		yield(objstore.Info{}, err)
	}
}
