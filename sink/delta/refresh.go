package delta

import (
	"context"
	"errors"
	"time"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// maxAge is how old the knowledge that a version is the newest may be when the next one is put. Log cleanup never takes
// what is younger than a day, so within it "absent" means "not yet" and never "no more".
const maxAge = 60 * time.Second

// young says whether something known at a time is younger than maxAge. Both clocks must say so: the monotonic one stands
// still while a machine sleeps, the wall clock may be set back.
func young(at, now time.Time) bool {
	mono, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return mono < maxAge && wall < maxAge && wall > -time.Second
}

// refresh brings head up to the newest version. The error is deltalog.ErrNoTable if there is no table and never was one.
func (t *Table) refresh(ctx context.Context) error {
	if t.head == nil {
		return t.reload(ctx)
	}
	switch stands, err := t.ownStands(ctx); {
	case err != nil:
		return err
	case !stands:
		return t.reload(ctx)
	}
	s, err := deltalog.Refresh(ctx, t.store, t.checkpoints.known(t.head.State))
	if err != nil {
		return err
	}
	if s.Version == t.head.Version && !young(t.head.ReadAt, s.ReadAt) {
		// Nothing newer, says a log that we have not looked at for long. If it has been cleaned up beyond our version,
		// what follows ours is gone as well.
		switch _, err := t.store.Head(ctx, deltalog.CommitKey(s.Version)); {
		case errors.Is(err, objstore.ErrNotFound):
			return t.reload(ctx)
		case err != nil:
			return err
		}
	}
	t.setHead(s)
	return nil
}

// reload forgets everything and reads the log anew.
func (t *Table) reload(ctx context.Context) error {
	t.head = nil
	s, err := deltalog.Load(ctx, t.store)
	if errors.Is(err, deltalog.ErrNoTable) && t.tableID != "" {
		return replaced("table %s is gone", t.tableID)
	}
	if err != nil {
		return err
	}
	t.setHead(s)
	if own := t.own; own != nil {
		t.own = nil
		for _, txn := range own.txns {
			if now, ok := s.Txns[txn.AppID]; !ok || now.Version < txn.Version {
				t.commitLost(ctx, own, "position_now", now.Version, "position_committed", txn.Version)
				break
			}
		}
	}
	return nil
}

// ownStands looks whether the version that we last won still holds our commit. A writer without conditional puts can
// overwrite it; rows and positions are lost together then, and what follows from the log is right again.
func (t *Table) ownStands(ctx context.Context) (bool, error) {
	if t.own == nil {
		return true, nil
	}
	c, err := deltalog.ReadCommit(ctx, t.store, t.own.version, deltalog.KindCommitInfo)
	switch id := c.Info().TxnID; {
	case errors.Is(err, objstore.ErrNotFound):
		return false, nil // cleaned up, or worse: reload compares the positions
	case err != nil:
		return false, err
	case id != t.own.txnID:
		t.commitLost(ctx, t.own, "found_txn_id", id)
		t.own = nil
		return false, nil
	}
	return true, nil
}

func (t *Table) commitLost(ctx context.Context, own *ownCommit, details ...any) {
	t.metrics.overwritten.Inc()
	t.log.ErrorContext(ctx, "a commit was overwritten by another writer; its rows are read again from Kafka. Make that writer use conditional puts",
		append([]any{"version", own.version, "txn_id", own.txnID}, details...)...)
}
