package commit

import (
	"context"
	"fmt"

	"sluice/connector"
	"sluice/connector/plan"
)

// commit makes a plan permanent. The order of its steps is the guarantee; after each it says what a crash there means.
// The letters are those of docs/guarantees.md. holding is what the plan's cut has of the batch pool; nil for a START.
func (c *committer) commit(ctx context.Context, p *plan.Plan, reserved *reservation) (*connector.Snapshot, error) {
	// (a) PRE on the snapshot at hand: not worth encoding what the log has passed already.
	// A crash: nothing happened, the claims resume at their positions.
	if err := p.Precondition(c.snapshot); err != nil {
		return nil, fmt.Errorf("before encoding: %w", err)
	}

	// (b) Encode the rows and put the data files, under names of their own.
	// A crash: files that no version names. Readers never see them; a vacuum removes them.
	var staged *connector.Staged
	if len(p.Pieces) > 0 {
		var err error
		if staged, err = c.stage(ctx, p, reserved.progress); err != nil {
			return nil, fmt.Errorf("data files: %w", err)
		}
		c.logger.DebugContext(ctx, "staged", "batch_id", p.Commit.Batch, "files", staged.Count, "rows", staged.Rows, "bytes", staged.Bytes)
	}

	// (c) Write the dead letters and await them, before any txn passes their offsets.
	// A crash: letters without a txn behind them, which are void. The next owner reads the records again and writes the
	// letters again, or makes rows of the records if the table's schema was changed for them; readers collapse repeats by
	// their coordinates.
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

	// (d) One put-if-absent of the next version: rows and positions become visible together. PRE is looked at again on
	// every prefix that the version would extend.
	// A crash before it lands: as in (b). After: the commit is whole, and whoever resumes finds its positions.
	p.Commit.Staged = staged
	s, err := c.table.Commit(ctx, &p.Commit, p.Precondition)
	if err != nil {
		if staged != nil {
			c.table.Discard(ctx, staged) // keeps what may be in the log
		}
		return nil, fmt.Errorf("commit: %w", err)
	}

	// (e) The reader notes the group offsets of what has settled, and writes them at its next turn.
	// A crash: the group offsets are old. The table is right, the next resume mends them.

	// (f) Remember the fingerprints of the rows. Never before (d): those of rows that are not in the table would make the
	// records that are read again duplicates of nothing.
	// A crash: the next owner reads them from the table.
	c.window.remember(ctx, p)
	return s, nil
}

// stage is step (b) of a commit.
func (c *committer) stage(ctx context.Context, p *plan.Plan, progress func(int, int64)) (s *connector.Staged, err error) {
	defer func() {
		if v := recover(); v != nil {
			s, err = nil, connector.Recovered(encoding, v)
		}
	}()
	if s, err = c.table.Stage(ctx, c.snapshot, p.Commit.Batch, p.Pieces, progress); err == nil {
		c.encoded = true
	}
	return s, err
}
