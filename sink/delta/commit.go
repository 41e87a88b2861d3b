package delta

import (
	"context"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// Commit implements connector.Table: it appends one version to the log. It tolerates any answer of the store and any
// number of concurrent writers. The order of its steps is the guarantee. The comment of each step says what is
// durable after it and what a crash there leaves behind.
//
// Errors: the error of pre unchanged; Fenced if the staged files became invalid or the snapshot is too old;
// hold.Error with hold.TableReplaced, hold.TableUnsupported, hold.SchemaConflict or hold.StoreDenied; Canceled when
// ctx ends. connector.ErrUndecided is in the chain whenever the outcome is unknown: the files then stay, and only the
// log shows whether the commit happened.
func (t *Table) Commit(ctx context.Context, c *connector.Commit, pre func(*connector.Snapshot) error) (*connector.Snapshot, error) {
	files, err := appendable(c.Staged)
	if err != nil {
		return nil, err
	}
	if files == nil {
		return t.commit(ctx, c, nil, nil, pre)
	}
	return t.commit(ctx, c, files, &files.evolution, pre)
}

// commit is Commit with files, nil if there are none, and with what the version changes in the schema, nil for nothing.
func (t *Table) commit(
	ctx context.Context, c *connector.Commit, files *staged, change *evolution, pre func(*connector.Snapshot) error,
) (*connector.Snapshot, error) {
	began, table := time.Now(), t.tableID
	if err := t.turn.yield(ctx); err != nil {
		return nil, err
	}
	for losses := 0; ; losses++ {
		// 1. Refresh: every version that exists now becomes part of the snapshot. The effect of other writers'
		// commits on ours is read from the resulting state, not from the commits.
		//
		// Durable: the data files, under names that no version refers to. After a crash a vacuum removes them.
		if err := t.refresh(ctx, t.store.of(c.Batch)); err != nil {
			return nil, t.failed(err)
		}

		// 2. Validate the table: is it still the same one, may this version write it, and do the files fit its
		// schema, with the columns that this commit adds? They are merged into the schema of this very prefix, so that
		// two members may add columns at once.
		columns, err := t.admits(table, files, change)
		if err != nil {
			return nil, err
		}

		// 3. Precondition: does the table still have every claim at the position where the commit starts?
		if err := pre(t.head.snapshot); err != nil {
			return nil, err
		}

		// 4. Encode version N with a txnId of its own. From here on only these bytes are put as N.
		p, err := t.propose(c, files, columns)
		if err != nil {
			return nil, err
		}

		// 5. Put N if it is absent, until the outcome is known. A crash here leaves a put that may or may not take
		// effect, now or later. The next owner reads the log: either it finds the whole commit, or its own commit
		// takes N for good.
		outcome, err := t.append(ctx, p, files)
		if err != nil {
			return nil, err
		}
		t.turn.attempted(p)
		if outcome == conflict {
			// 6a. Conflict: N is another writer's, so this commit has not happened and none of its puts can still
			// take effect. The files stay valid; the next try is N+1 or later under a new txnId.
			t.metrics.commits.WithLabelValues(resultConflict).Inc()
			t.log.DebugContext(ctx, "commit conflict; retrying with the next version", "batch_id", p.batch, "version", p.version, "losses", losses+1)
			if err := t.turn.afterLoss(ctx, losses); err != nil {
				return nil, err
			}
			continue
		}

		// 6b. Committed: rows and positions are durable and visible together. After a crash the next owner of the claims
		// finds both in the log.
		if err := t.committed(ctx, p, c, files); err != nil {
			return nil, t.failed(err)
		}
		t.metrics.seconds.Observe(time.Since(began).Seconds())

		// 7. If one is due, a checkpoint is written in the background. It makes loading the table faster; correctness
		// never needs it.
		t.checkpoints.start(ctx, t)
		return t.head.snapshot, nil
	}
}

// admits returns the schema of the table after the commit if the newest version still allows it, else a hold.Error or
// a Fenced error. table is the id of the table before the refresh, "" if none was loaded. files and change may be
// nil.
func (t *Table) admits(table string, files *staged, change *evolution) (*schema.Schema, error) {
	switch {
	case table != "" && table != t.head.Metadata.ID:
		return nil, replaced("it was table %s, now it is %s", table, t.head.Metadata.ID)
	case t.head.refusal != nil:
		return nil, t.head.refusal
	}
	if err := t.retained(); err != nil {
		return nil, err
	}
	switch {
	case change == nil:
		return t.head.schema, nil
	case files == nil:
	case files.table != t.head.Metadata.ID:
		return nil, replaced("the files were staged for table %s, now it is %s", files.table, t.head.Metadata.ID)
	case time.Since(files.at) > maxStaged || time.Since(files.at.Round(0)) > maxStaged:
		return nil, fenced(fmt.Errorf("the data files were staged at %s, a vacuum may have deleted them since", files.at.UTC().Format(time.RFC3339)))
	}
	columns, err := change.on(t.head.schema)
	if err != nil {
		return nil, fenced(fmt.Errorf("the table's schema changed: %w", err))
	}
	return columns, nil
}

// fenced marks err as Fenced: the sealed batch is dropped and its claims resume from the log. The result does not
// wrap err, so a [hold.Error] inside err does not count: the new snapshot decides about holds.
func fenced(err error) error { return classify.Mark(logappend.Text(err), classify.Fenced) }

func replaced(format string, args ...any) error {
	return hold.New(hold.TableReplaced, "another table is in the place of the one that was written: "+fmt.Sprintf(format, args...), nil)
}

// committed makes our new version the head, and remembers it as our last own version. It also remembers the time of
// the commit, by which the field turn chooses when to put the next one, and updates the metrics.
func (t *Table) committed(ctx context.Context, p *proposal, c *connector.Commit, files *staged) error {
	s, err := t.head.After(deltalog.Commit{Version: p.version, Bytes: int64(len(p.Body)), Actions: p.heads})
	if err != nil {
		return fmt.Errorf("version %d is ours and cannot be replayed: %w", p.version, err)
	}
	s.ReadAt = p.Sent() // the version was the newest one when it was committed, which was not before the put
	t.setHead(s, objstore.Info{})
	t.turn.committed = time.Now()
	t.own = &ownCommit{version: p.version, txnID: p.txnID, txns: c.Txns}
	if files != nil {
		for i := range files.adds {
			t.metrics.size.Observe(float64(files.adds[i].Size))
		}
	}
	t.metrics.commits.WithLabelValues(resultCommitted).Inc()
	t.metrics.version.Set(float64(p.version))
	t.evolved(ctx, p)
	return nil
}
