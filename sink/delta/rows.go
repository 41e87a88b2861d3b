package delta

import (
	"context"

	"sluice/connector"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// HasRows implements connector.Table. A table that drops old txns is always searched thoroughly: in such a table one
// topic can lose its positions while others keep theirs.
func (t *Table) HasRows(ctx context.Context, s *connector.Snapshot, of []connector.RowsOf, thorough bool) (map[connector.RowsOf]bool, error) {
	state, err := t.stateOf(s), error(nil)
	listed := state == nil
	if listed {
		state, err = deltalog.LoadAt(ctx, t.store, s.Version)
	}
	var found map[connector.RowsOf]bool
	if err == nil {
		found, err = hasRows(ctx, t.store, state, of, thorough)
	}
	if err != nil && !listed && logMoved(err) {
		if state, err = deltalog.LoadAt(ctx, t.store, s.Version); err == nil {
			found, err = hasRows(ctx, t.store, state, of, thorough)
		}
	}
	if err != nil {
		return nil, t.failed(canceledBy(ctx, err))
	}
	return found, nil
}

// HasRows is [Table.HasRows] for tools: it searches the newest version of any table, and does each operation of the
// store once.
func HasRows(ctx context.Context, store objstore.Store, of []connector.RowsOf, thorough bool) (map[connector.RowsOf]bool, error) {
	s, err := deltalog.Load(ctx, store)
	if err != nil {
		return nil, err
	}
	return hasRows(ctx, store, s, of, thorough)
}

func hasRows(ctx context.Context, store objstore.Store, s *deltalog.State, of []connector.RowsOf, thorough bool) (map[connector.RowsOf]bool, error) {
	_, expire := txnRetention(s.Metadata)
	return scan.Present(ctx, store, s, of, thorough || expire)
}
