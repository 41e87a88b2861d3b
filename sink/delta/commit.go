package delta

import (
	"context"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// Commit implements connector.Table: it appends one version to the log, whatever the store answers and whoever else
// writes. The order of its steps is the guarantee; each says what is durable after it and what a crash there means.
//
// Errors: that of pre as it is; Fenced if the staged files became invalid or the snapshot too old to judge by; hold.Error
// with hold.TableReplaced, hold.TableUnsupported, hold.SchemaConflict or hold.StoreDenied; Canceled when ctx ends.
// connector.ErrUndecided is in the chain whenever the outcome is not known: then the files stay, and only the log says
// whether the commit happened.
func (t *Table) Commit(ctx context.Context, c *connector.Commit, pre func(*connector.Snapshot) error) (*connector.Snapshot, error) {
	began := time.Now()
	files, err := appendable(c.Staged)
	if err != nil {
		return nil, err
	}
	table := t.tableID
	if err := t.turn.yield(ctx); err != nil {
		return nil, err
	}
	for losses := 0; ; losses++ {
		// 1. Look at the log: every version that exists now becomes part of the snapshot. What winners in between mean
		// for us is read off the prefix that they made, not off their commits.
		// Durable: the data files, under names that nobody knows. A crash leaves them to a vacuum.
		if err := t.refresh(ctx, t.store.of(c.Batch)); err != nil {
			return nil, t.failed(err)
		}

		// 2. Judge the prefix: is it still the same table, one that we may write, and do the files fit its schema?
		if err := t.admits(table, files); err != nil {
			return nil, err
		}

		// 3. PRE: does every claim still stand in this prefix where the commit starts from?
		if err := pre(t.head.snapshot); err != nil {
			return nil, err
		}

		// 4. Write down version N with an id of its own. From here on these bytes are all that is ever offered for N.
		p, err := t.propose(c, files)
		if err != nil {
			return nil, err
		}

		// 5. Put N if it is absent, until it is known whose N is. Meanwhile a crash leaves a put that may land or not,
		// now or later: whoever resumes reads the log, and sees the commit whole or takes N from it for ever.
		outcome, err := t.append(ctx, p, files)
		if err != nil {
			return nil, err
		}
		t.turn.attempted(p)
		if outcome == conflict {
			// 6a. N is another's, so this commit has not happened and no put of it can still land. The files are as
			// good as before; the next version is N+1 or later, under a new id.
			t.metrics.commits.WithLabelValues(resultConflict).Inc()
			t.log.DebugContext(ctx, "another commit came first", "batch_id", p.batch, "version", p.version, "losses", losses+1)
			if err := t.turn.afterLoss(ctx, losses); err != nil {
				return nil, err
			}
			continue
		}

		// 6b. N is ours: rows and positions are durable and visible, together. A crash now loses nothing but the news.
		if err := t.committed(p, c, files); err != nil {
			return nil, t.failed(err)
		}
		t.metrics.seconds.Observe(time.Since(began).Seconds())

		// 7. If it is time, a checkpoint is written in the background. It is worth time to readers and never needed.
		t.checkpoints.start(ctx, t)
		return t.head.snapshot, nil
	}
}

// admits says whether the newest version still admits the commit, hold.Error or Fenced if not. table is the id that the
// caller has seen.
func (t *Table) admits(table string, files *staged) error {
	switch {
	case table != "" && table != t.head.Metadata.ID:
		return replaced("it was table %s, now it is %s", table, t.head.Metadata.ID)
	case t.head.refusal != nil:
		return t.head.refusal
	}
	if err := t.retained(); err != nil {
		return err
	}
	switch {
	case files == nil:
		return nil
	case files.table != t.head.Metadata.ID:
		return replaced("the files were staged for table %s, now it is %s", files.table, t.head.Metadata.ID)
	case time.Since(files.at) > maxStaged || time.Since(files.at.Round(0)) > maxStaged:
		return fenced(fmt.Errorf("the data files lie since %s, a vacuum may have taken them", files.at.UTC().Format(time.RFC3339)))
	}
	if err := t.head.schema.Fits(files.schema); err != nil {
		return fenced(fmt.Errorf("the table's schema changed: %w", err))
	}
	return nil
}

// fenced marks err: the cut is dropped and everything resumes from the log. A hold inside of it is none.
func fenced(err error) error { return classify.Mark(logappend.Text(err), classify.Fenced) }

func replaced(format string, args ...any) error {
	return hold.New(hold.TableReplaced, "another table is in the place of the one that was written: "+fmt.Sprintf(format, args...), nil)
}

// committed makes the version that is known to be ours the newest one.
func (t *Table) committed(p *proposal, c *connector.Commit, files *staged) error {
	s, err := t.head.After(deltalog.Commit{Version: p.version, Bytes: int64(len(p.Body)), Actions: p.heads})
	if err != nil {
		return fmt.Errorf("version %d is ours and cannot be replayed: %w", p.version, err)
	}
	s.ReadAt = p.Sent() // it was the newest when it landed, which was not before
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
	return nil
}
