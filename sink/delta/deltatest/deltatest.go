// Package deltatest has test helpers for Delta tables.
package deltatest

import (
	"context"
	"iter"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// Adds yields the data files of the newest version. Files that no commit after the checkpoint added come first, with
// version -1; the others follow in the order of the commits that added them.
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
