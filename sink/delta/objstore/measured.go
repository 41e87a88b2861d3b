package objstore

import (
	"context"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Observed returns a store that does the operations of s and calls note after each of them. A Get is finished when the
// object is open. The duration of a List excludes the time of its reader. note may be called from many goroutines.
func Observed(s Store, note func(o Op, err error, took time.Duration)) Store {
	return &observed{inner: s, note: note}
}

// Measured returns a store that does the operations of s and records their durations in the histogram
// sluice_store_operation_seconds, by operation and outcome ([Outcome]). A Get is finished when the object is open. The
// duration of a List excludes the time of its reader.
func Measured(s Store, reg prometheus.Registerer) (Store, error) {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_store_operation_seconds",
		Help:    "Duration of operations on the object store, by operation and outcome.",
		Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
	}, []string{"operation", "outcome"})
	if err := reg.Register(h); err != nil {
		return nil, err
	}
	return Observed(s, func(o Op, err error, d time.Duration) {
		h.WithLabelValues(o.Kind.String(), Outcome(err)).Observe(d.Seconds())
	}), nil
}

// observed reports each operation with its error and duration.
type observed struct {
	inner Store
	note  func(Op, error, time.Duration)
	n     atomic.Int64
}

func (s *observed) begin(k OpKind, key, after string) (Op, time.Time) {
	return Op{Kind: k, Key: key, After: after, N: int(s.n.Add(1) - 1)}, time.Now()
}

func (s *observed) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	o, began := s.begin(OpGet, key, "")
	r, err := s.inner.Get(ctx, key, off, n)
	s.note(o, err, time.Since(began))
	return r, err
}

func (s *observed) Head(ctx context.Context, key string) (Info, error) {
	o, began := s.begin(OpHead, key, "")
	i, err := s.inner.Head(ctx, key)
	s.note(o, err, time.Since(began))
	return i, err
}

func (s *observed) Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	o, began := s.begin(PutKind(mode), key, "")
	err := s.inner.Put(ctx, key, body, mode)
	s.note(o, err, time.Since(began))
	return err
}

func (s *observed) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		o, began := s.begin(OpList, prefix, after)
		var failure error
		var others time.Duration
		for i, err := range s.inner.List(ctx, prefix, after) {
			failure = err
			left := time.Now()
			more := yield(i, err)
			others += time.Since(left)
			if !more {
				break
			}
		}
		s.note(o, failure, time.Since(began)-others)
	}
}

func (s *observed) Delete(ctx context.Context, key string) error {
	o, began := s.begin(OpDelete, key, "")
	err := s.inner.Delete(ctx, key)
	s.note(o, err, time.Since(began))
	return err
}
