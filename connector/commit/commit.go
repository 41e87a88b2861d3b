package commit

import (
	"context"
	"fmt"
	"log/slog"

	"sluice/connector"
	"sluice/connector/plan"
)

// commit makes a plan permanent. The order of its steps is the guarantee; the comment of each step says what a
// crash there leaves behind. The letters of the steps are those of docs/guarantees.md. reserved is the memory of
// the plan's batch in the batch pool; nil for an initial commit.
func (c *committer) commit(ctx context.Context, p *plan.Plan, reserved *reservation) (*connector.Snapshot, error) {
	// (a) Check the precondition on the latest snapshot, to avoid encoding rows for a position that has moved.
	// A crash here: nothing was written, the claims resume at their positions.
	if err := p.Precondition(c.snapshot); err != nil {
		return nil, fmt.Errorf("before encoding: %w", err)
	}

	// (b) Encode the rows and put the data files, under unique names.
	// A crash here: files that no version names. Readers never see them; a vacuum removes them.
	var staged *connector.Staged
	if len(p.Pieces) > 0 {
		var err error
		if staged, err = c.stage(ctx, p, reserved.progress); err != nil {
			return nil, fmt.Errorf("data files: %w", err)
		}
		c.logger.DebugContext(ctx, "staged", "batch_id", p.Commit.Batch, "files", staged.Count, "rows", staged.Rows, "bytes", staged.Bytes)
	}

	// (c) Write the dead letters and wait for them, before any txn passes their offsets.
	// A crash here: dead letters that no txn has passed. They are pending: the next owner reads the records again. It
	// writes the dead letters again, or makes rows of the records if the schema was changed meanwhile. Readers of dead
	// letters drop repeats by their coordinates.
	if len(p.Letters) > 0 {
		if err := c.letters.Write(ctx, p.Letters); err != nil {
			if staged != nil {
				c.table.Discard(ctx, staged)
			}
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		c.written(ctx, p.Letters)
		p.Letters = nil
		reserved.releaseLetters()
	}

	// (d) Put the next version, only if it does not exist: rows and positions become visible together. The table checks
	// the precondition again on every prefix that the version would extend.
	// A crash before the put succeeds: as in (b) and (c), files that no version names and dead letters that no txn has
	// passed. A crash after it: the commit is complete, and the next owner resumes from its positions.
	p.Commit.Staged = staged
	s, err := c.table.Commit(ctx, &p.Commit, p.Precondition)
	if err != nil {
		if staged != nil {
			c.table.Discard(ctx, staged) // keeps the files if the log may name them
		}
		return nil, fmt.Errorf("commit: %w", err)
	}

	// (e) The reader notes the offsets, and intake.Offsets commits them to the group at its next interval.
	// A crash here: the committed offsets are old. The table is right, and the next resume updates them.

	// (f) Remember the fingerprints of the rows. Never before (d): if the commit failed, the records would be read
	// again and be dropped as duplicates of rows that do not exist. A crash here: the next owner reads the fingerprints
	// from the table.
	c.window.remember(ctx, p)
	return s, nil
}

// stage is step (b) of a commit. A panic of the encoder becomes a [connector.LocalError].
func (c *committer) stage(ctx context.Context, p *plan.Plan, progress func(int, int64)) (s *connector.Staged, err error) {
	defer func() {
		if v := recover(); v != nil {
			s, err = nil, connector.Recovered(encoding, v)
		}
	}()
	snapshot, err := c.grow(ctx, p.Commit.Batch, p.Pieces)
	if err != nil {
		return nil, err
	}
	if s, err = c.table.Stage(ctx, snapshot, p.Commit.Batch, p.Pieces, progress); err == nil {
		c.encoded = true
	}
	return s, err
}

// grow returns the snapshot for which pieces are encoded: with columns for fields that the table lacks, if the topics of
// the table ask for them. batch is the id of the sealed batch, "" in a rehearsal.
func (c *committer) grow(ctx context.Context, batch string, pieces []connector.Piece) (*connector.Snapshot, error) {
	s, full, err := connector.Grow(c.decoder, c.snapshot, pieces)
	switch {
	case err != nil:
		return nil, connector.Local(encoding, err)
	case batch == "":
	case full:
		c.metrics.full.Inc()
		c.full.Failed(ctx, c.logger, slog.LevelWarn, "new fields got no column because new_columns allows no more now; their values are in the column _rescued", "batch_id", batch)
	default:
		c.full.Over(ctx, c.logger, "new fields get columns again")
	}
	return s, nil
}
