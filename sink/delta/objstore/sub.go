package objstore

import (
	"context"
	"io"
	"iter"
	"strings"
)

// Sub returns the part of a store below dir as a store of its own. dir has the form of a key; the keys of the new
// store are relative to it. Both share all resources, and the caller closes s, not the result.
func Sub(s Store, dir string) Store { return sub{s, dir + "/"} }

type sub struct {
	whole  Store
	prefix string
}

func (s sub) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return s.whole.Get(ctx, s.prefix+key, off, n)
}

func (s sub) Head(ctx context.Context, key string) (Info, error) {
	i, err := s.whole.Head(ctx, s.prefix+key)
	i.Key = strings.TrimPrefix(i.Key, s.prefix)
	return i, err
}

func (s sub) Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	return s.whole.Put(ctx, s.prefix+key, body, mode)
}

func (s sub) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	if after != "" {
		after = s.prefix + after
	}
	return func(yield func(Info, error) bool) {
		for i, err := range s.whole.List(ctx, s.prefix+prefix, after) {
			i.Key = strings.TrimPrefix(i.Key, s.prefix)
			if !yield(i, err) {
				return
			}
		}
	}
}

func (s sub) Delete(ctx context.Context, key string) error { return s.whole.Delete(ctx, s.prefix+key) }
