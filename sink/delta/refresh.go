package delta

import (
	"context"
	"errors"
	"fmt"

	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// refresh brings head up to the newest version. It reads from the table's store, which is the same one for a batch while a
// batch waits for it. The error is deltalog.ErrNoTable if there is no table and never was one.
func (t *Table) refresh(ctx context.Context, store retried) error {
	if t.head == nil {
		return t.reload(ctx, store)
	}
	switch stands, err := t.ownStands(ctx, store); {
	case err != nil:
		return err
	case !stands:
		return t.reload(ctx, store)
	}
	switch stands, err := t.headStands(ctx, store); {
	case err != nil:
		return err
	case !stands:
		before, table := t.head.Version, t.tableID
		if err := t.reload(ctx, store); err != nil {
			return err
		}
		if t.tableID != table { // reload has logged it
			return nil
		}
		t.metrics.overwritten.Inc()
		t.log.ErrorContext(ctx, "the table's log was set back or rewritten; what it does not have any more is read again from Kafka, as far as that has it",
			"version_before", before, "version_now", t.head.Version)
		return nil
	}
	s, err := deltalog.Refresh(ctx, store, t.checkpoints.known(t.head.State))
	if errors.Is(err, deltalog.ErrCorrupt) { // or the log was cleaned up meanwhile, which a load shows
		return t.reload(ctx, store)
	}
	if err != nil {
		return err
	}
	if s.Version == t.head.Version {
		t.setHead(s, t.head.stamp)
		return nil
	}
	t.setHead(s, s.Object)
	return nil
}

// headStands looks whether the newest version that we know is still the one that we read. Whoever restores an older copy
// of the table takes it away, or writes another one in its place: the next version would follow a hole, and positions that
// the table does not have any more would be gone on from. A version of our own is known by its id: see ownStands.
func (t *Table) headStands(ctx context.Context, store retried) (bool, error) {
	if t.own != nil && t.own.version == t.head.Version || t.head.stamp.Key == "" {
		return true, nil
	}
	now, err := store.Head(ctx, deltalog.CommitKey(t.head.Version))
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return now.Size == t.head.stamp.Size && now.Modified.Equal(t.head.stamp.Modified), nil
}

// reload forgets everything and reads the log anew.
func (t *Table) reload(ctx context.Context, store retried) error {
	t.head = nil
	s, err := deltalog.Load(ctx, store)
	if errors.Is(err, deltalog.ErrNoTable) && t.tableID != "" {
		return hold.New(hold.TableReplaced, fmt.Sprintf("the folder has no Delta log: table %s, which was written here, is gone", t.tableID), nil)
	}
	if err != nil {
		return err
	}
	before := t.tableID
	t.setHead(s, s.Object)
	if before != "" && before != t.tableID { // neither its versions nor its positions say anything of the table before
		t.own = nil
		t.log.WarnContext(ctx, "another table is in the place of the one that was written; reading its positions", "table_id_before", before, "table_id_now", t.tableID)
		return nil
	}
	if own := t.own; own != nil {
		t.own = nil
		if own.overwritten {
			t.handleConflict(ctx, own, "found_txn_id", own.foundTxnID)
			return nil
		}
		for _, txn := range own.txns {
			if now, ok := s.Txns[txn.AppID]; !ok || now.Version < txn.Version {
				t.handleConflict(ctx, own, "position_now", now.Version, "position_committed", txn.Version)
				break
			}
		}
	}
	return nil
}

// ownStands looks whether the version that we last won still holds our commit. A writer without conditional puts can
// overwrite it; rows and positions are lost together then, and what follows from the log is right again.
func (t *Table) ownStands(ctx context.Context, store retried) (bool, error) {
	if t.own == nil {
		return true, nil
	}
	c, err := deltalog.ReadCommit(ctx, store, t.own.version, deltalog.KindCommitInfo)
	switch id := c.Info().TxnID; {
	case errors.Is(err, objstore.ErrNotFound):
		return false, nil // cleaned up, or worse: reload compares the positions
	case err != nil:
		return false, err
	case id != t.own.txnID:
		t.own.overwritten, t.own.foundTxnID = true, id // a loss, unless reload finds another table
		return false, nil
	}
	return true, nil
}

func (t *Table) handleConflict(ctx context.Context, own *ownCommit, details ...any) {
	t.metrics.overwritten.Inc()
	t.log.ErrorContext(ctx, "a commit was overwritten by another writer; its rows are read again from Kafka. Make that writer use conditional puts",
		append([]any{"version", own.version, "txn_id", own.txnID}, details...)...)
}
