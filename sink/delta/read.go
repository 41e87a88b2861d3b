package delta

import (
	"context"
	"errors"

	"sluice/connector"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// Scan reads columns of the table as of a snapshot that this table returned: see [scan.Run]. The guard retries
// failures of the store until ctx ends. Errors: those of each, unchanged; a hold.Error with hold.TableUnsupported for
// a table or file that cannot be read, or with hold.StoreDenied; Canceled.
func (t *Table) Scan(ctx context.Context, s *connector.Snapshot, q scan.Query, each func(scan.Rows) error) error {
	return t.scanner(s)(ctx, q, each)
}

// scanner prepares a Scan. The returned function may run on another goroutine than the writer's.
func (t *Table) scanner(s *connector.Snapshot) func(context.Context, scan.Query, func(scan.Rows) error) error {
	state := t.stateOf(s) // if the state is nil, or names a checkpoint or commit that is gone, scan loads the state from the log
	return func(ctx context.Context, q scan.Query, each func(scan.Rows) error) error {
		return t.scan(ctx, s.Version, state, q, each)
	}
}

// stateOf returns the state of a snapshot, nil if the snapshot is not of the newest known version.
func (t *Table) stateOf(s *connector.Snapshot) *deltalog.State {
	if t.head == nil || t.head.Version != s.Version || t.head.Metadata.ID != s.TableID {
		return nil
	}
	return t.checkpoints.known(t.head.State)
}

func (t *Table) scan(ctx context.Context, version int64, state *deltalog.State, q scan.Query, each func(scan.Rows) error) error {
	var own error // the error of the caller's each
	delivered := false
	for listed := false; ; {
		var err error
		if state == nil {
			listed = true
			state, err = deltalog.LoadAt(ctx, t.store, version)
		}
		if err == nil {
			err = scan.Run(ctx, t.store, state, q, func(r scan.Rows) error {
				delivered = true
				own = each(r)
				return own
			})
		}
		switch {
		case err == nil:
			return nil
		case own != nil:
			return own
		case listed || delivered || !logMoved(err):
			return t.failed(canceledBy(ctx, err))
		}
		state = nil
	}
}

// logMoved reports whether err means that a checkpoint or commit of the known state is missing or damaged.
func logMoved(err error) bool {
	return errors.Is(err, deltalog.ErrCorrupt) || errors.Is(err, objstore.ErrNotFound) && !errors.Is(err, scan.ErrVanished)
}

// Scan reads columns of the newest version of any table, for tools: see [scan.Run]. It does each operation of the
// store once. The error is deltalog.ErrNoTable if there is none.
func Scan(ctx context.Context, store objstore.Store, q scan.Query, each func(scan.Rows) error) error {
	s, err := deltalog.Load(ctx, store)
	if err != nil {
		return err
	}
	return scan.Run(ctx, store, s, q, each)
}
