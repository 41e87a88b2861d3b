package delta

import (
	"context"
	"errors"
	"fmt"

	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// refresh brings head up to the newest version. store is the table's store. If a batch waits, the store is one that
// names the batch in the log lines of its retries. The error is deltalog.ErrNoTable if there is no table and t never
// saw one.
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
		if t.tableID != table { // reload has logged the replaced table
			return nil
		}
		t.metrics.overwritten.Inc()
		t.log.ErrorContext(ctx, "table log was set back or rewritten; rereading the missing records from Kafka",
			"version_before", before, "version_now", t.head.Version)
		return nil
	}
	s, err := deltalog.Refresh(ctx, store, t.checkpoints.known(t.head.State))
	if errors.Is(err, deltalog.ErrCorrupt) { // an ErrCorrupt may come from a log cleanup during the read; a reload handles that
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

// headStands reports whether the newest version that we know is still the one that we read. An operator who restores an
// older copy of the table removes that version or puts another one in its place. Without this check the next commit
// would follow a gap, and claims would continue from positions that the table no longer has. A version of our own is
// recognized by its txnId: see ownStands.
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

// reload reads the log anew from the newest checkpoint and makes its newest version the head. If the table is gone, it
// returns a hold.Error with hold.TableReplaced. If our last commit is no longer in the log, it logs and counts that.
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
	if before != "" && before != t.tableID { // versions and positions of the old table say nothing about the new table
		t.own = nil
		t.log.WarnContext(ctx, "table was replaced by another; reading its positions", "table_id_before", before, "table_id_now", t.tableID)
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

// ownStands reports whether the last version that we committed still holds our commit. A writer without conditional
// puts can overwrite it. Its rows and positions are then gone together, so claims that resume from the log read the
// records again.
func (t *Table) ownStands(ctx context.Context, store retried) (bool, error) {
	if t.own == nil {
		return true, nil
	}
	c, err := deltalog.ReadCommit(ctx, store, t.own.version, deltalog.KindCommitInfo)
	switch id := c.Info().TxnID; {
	case errors.Is(err, objstore.ErrNotFound):
		return false, nil // the version was removed by log cleanup, or overwritten: reload compares the positions
	case err != nil:
		return false, err
	case id != t.own.txnID:
		t.own.overwritten, t.own.foundTxnID = true, id // reload reports the overwritten commit, unless it finds another table
		return false, nil
	}
	return true, nil
}

func (t *Table) handleConflict(ctx context.Context, own *ownCommit, details ...any) {
	t.metrics.overwritten.Inc()
	t.log.ErrorContext(ctx, "another writer overwrote a commit; rereading its rows from Kafka",
		append([]any{"version", own.version, "txn_id", own.txnID}, details...)...)
}
