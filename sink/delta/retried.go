package delta

import (
	"context"
	"errors"
	"io"
	"iter"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/pulse"
	"sluice/sink/delta/objstore"
)

// retried is a store whose operations outlast an outage: the guard retries each one until the store answers. A broken
// read of a body continues where it stopped. That is right for objects that never change. The only object that
// changes is the hint to the last checkpoint: readers treat it as a hint, so a mix of two contents does no harm.
//
// retried does not repeat a put with IfAbsent, because only the commit can judge its outcome. [sluice/sink/logappend]
// repeats such puts.
type retried struct {
	store objstore.Store
	guard *reliability.Guard
	about []any // attributes for the log lines of retries
}

// of returns the same store with a batch id in the log lines of its retries. A commit of positions alone has no batch
// id.
func (s retried) of(batch string) retried {
	if batch == "" {
		return s
	}
	s.about = []any{"batch_id", batch}
	return s
}

// do retries op until the store answers. "Not found" and "exists" are answers.
func (s retried) do(ctx context.Context, op func(context.Context) error) error {
	var answer error
	err := s.guard.Do(ctx, func(ctx context.Context) error {
		answer = op(ctx)
		if errors.Is(answer, objstore.ErrNotFound) || errors.Is(answer, objstore.ErrExists) {
			return nil
		}
		return answer
	}, s.about...)
	if err != nil {
		return canceledBy(ctx, err)
	}
	return answer
}

// canceledBy marks a Transient error as Canceled if ctx has ended.
func canceledBy(ctx context.Context, err error) error {
	if ctx.Err() != nil && classify.Of(err) == classify.Transient {
		return classify.Mark(err, classify.Canceled)
	}
	return err
}

func (s retried) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	b := &body{ctx: ctx, from: s, key: key, off: off, left: n}
	err := s.do(ctx, func(ctx context.Context) (err error) {
		b.part, err = s.store.Get(ctx, key, off, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s retried) Head(ctx context.Context, key string) (i objstore.Info, err error) {
	err = s.do(ctx, func(ctx context.Context) (err error) {
		i, err = s.store.Head(ctx, key)
		return err
	})
	return i, err
}

func (s retried) Put(ctx context.Context, key string, content io.ReadSeeker, mode objstore.Mode) error {
	if mode == objstore.IfAbsent {
		return s.store.Put(ctx, key, content, mode)
	}
	return s.do(ctx, func(ctx context.Context) error { return s.store.Put(ctx, key, content, mode) })
}

func (s retried) Delete(ctx context.Context, key string) error {
	return s.do(ctx, func(ctx context.Context) error { return s.store.Delete(ctx, key) })
}

// List continues after the last key if the store fails in the middle.
func (s retried) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		stopped := false
		err := s.do(ctx, func(ctx context.Context) error {
			for i, err := range s.store.List(ctx, prefix, after) {
				if err != nil {
					return err
				}
				after = i.Key
				if !yield(i, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(objstore.Info{}, err)
		}
	}
}

// body reads one object over as many requests as needed.
type body struct {
	ctx  context.Context //nolint:containedctx // of the Get that it answers
	from retried
	key  string
	off  int64
	left int64 // number of bytes still to read; -1 means to the end of the object
	part io.ReadCloser
	err  error // error of the last read, other than io.EOF; if it is not nil, the next read opens a new request
}

func (b *body) Read(p []byte) (int, error) {
	if b.err == nil {
		n, err := b.took(b.wait(p))
		if err == nil || errors.Is(err, io.EOF) {
			return n, err
		}
		if b.err = err; n > 0 {
			return n, nil
		}
	}
	var n int
	var end error
	err := b.from.do(b.ctx, func(ctx context.Context) error {
		if b.left == 0 {
			end = io.EOF
			return nil
		}
		_ = b.part.Close() // the request of this part failed
		part, err := b.from.store.Get(ctx, b.key, b.off, b.left)
		if err != nil {
			b.part = io.NopCloser(nil)
			return err
		}
		b.part = part
		n, err = b.took(part.Read(p))
		if errors.Is(err, io.EOF) {
			end, err = io.EOF, nil
		}
		return err
	})
	if err != nil {
		return n, err
	}
	b.err = nil
	return n, end
}

// wait reads the next bytes. Meanwhile the goroutine counts as waiting for the store, as in every request behind a
// guard, so that the watchdog does not take it for stuck: the body of a large object may take minutes.
func (b *body) wait(p []byte) (int, error) {
	loop := pulse.Of(b.ctx)
	loop.Wait()
	defer loop.Done()
	return b.part.Read(p)
}

func (b *body) took(n int, err error) (int, error) {
	b.off += int64(n)
	if b.left > 0 {
		b.left -= int64(n)
	}
	return n, err
}

func (b *body) Close() error { return b.part.Close() }
