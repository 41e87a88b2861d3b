// Package deltatest is test equipment for tables.
package deltatest

import (
	"context"
	"iter"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// Adds yields the data files of the newest version, in the order in which they were committed as far as it is known: the
// version of a file is -1 if only a checkpoint knows it, and those come first.
func Adds(ctx context.Context, store objstore.Store) iter.Seq2[deltalog.File, error] {
	return func(yield func(deltalog.File, error) bool) {
		s, err := deltalog.Load(ctx, store)
		if err != nil {
			yield(deltalog.File{}, err)
			return
		}
		deltalog.Files(ctx, store, s)(yield)
	}
}
