package delta

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sluice/reliability/panics"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// checkpoints writes checkpoints in the background, one at a time, after a successful commit, so that neither the
// commit nor the next batch waits for them. Commits never depend on checkpoints: an error is logged and counted, and
// the next try waits for ten more commits.
type checkpoints struct {
	mu     sync.Mutex
	busy   bool
	closed bool
	newest deltalog.Checkpoint // the newest checkpoint: one that this process wrote, or a newer one that the hint named
	after  int64               // no checkpoint is tried before this version
	failed string              // cause of the last failure that was logged, "" after a success; owned by the goroutine that writes
	cancel context.CancelFunc  // cancels the write of a checkpoint
	done   sync.WaitGroup
}

// start writes a checkpoint of the table's head in the background if one is due and none is being written. The write
// does not end with ctx, only with close.
func (c *checkpoints) start(ctx context.Context, t *Table) {
	s := t.head.State
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.closed || s.Version < c.after || !s.Know(c.newest).CheckpointDue() {
		return
	}
	s = s.Know(c.newest)
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.busy = true
	cancel := c.cancel
	c.done.Go(func() {
		defer cancel()
		newest, err := writeCheckpoint(ctx, t, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy = false
		if err != nil {
			c.after = s.Version + 10
			return
		}
		c.newest = newest
	})
}

// writeCheckpoint calls [tryCheckpoint], and logs and counts its result. A panic becomes an error, so that commits
// continue without a checkpoint.
func writeCheckpoint(ctx context.Context, t *Table, s *deltalog.State) (written deltalog.Checkpoint, err error) {
	began, anew := time.Now(), false
	err = panics.Catch(func() error {
		written, anew, err = tryCheckpoint(ctx, t, s)
		return err
	})
	switch {
	case err != nil && ctx.Err() == nil:
		t.metrics.checkpoints.WithLabelValues(resultFailed).Inc()
		level := slog.LevelDebug // a repeated cause is logged at DEBUG
		if t.checkpoints.failed != cause(err) {
			t.checkpoints.failed, level = cause(err), slog.LevelWarn
		}
		t.log.Log(ctx, level, "failed to write a checkpoint; the table is complete without it", "version", s.Version, "err", err)
	case err == nil && anew:
		t.checkpoints.failed = ""
		t.metrics.checkpoints.WithLabelValues(resultOK).Inc()
		t.log.InfoContext(ctx, "checkpoint written", "version", written.Version, "bytes", written.Size, "took", time.Since(began))
	}
	return written, err
}

// cause returns the text of the innermost error in err, because the outer texts differ each time: they name the version
// or a temporary file.
func cause(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// tryCheckpoint writes a checkpoint of s, unless another member has written one so recently that none is due. It
// returns the newest checkpoint and whether this call wrote it.
func tryCheckpoint(ctx context.Context, t *Table, s *deltalog.State) (written deltalog.Checkpoint, anew bool, err error) {
	if found, ok := deltalog.Hint(ctx, t.raw); ok && found.Version > s.Checkpoint.Version {
		if s.Know(found) == s || !s.Know(found).CheckpointDue() {
			return found, false, nil
		}
		s = s.Know(found)
	}
	written, err = deltalog.WriteCheckpoint(ctx, t.raw, s, time.Now(), t.opt.TempDir)
	if errors.Is(err, deltalog.ErrCorrupt) || errors.Is(err, objstore.ErrNotFound) {
		// The checkpoint that the new one would build on is missing or damaged. Listing the log shows which checkpoints
		// exist.
		if s, err = deltalog.Load(ctx, t.raw); err == nil {
			written, err = deltalog.WriteCheckpoint(ctx, t.raw, s, time.Now(), t.opt.TempDir)
		}
	}
	return written, true, err
}

// known returns s with the newest checkpoint that this process knows of.
func (c *checkpoints) known(s *deltalog.State) *deltalog.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.Know(c.newest)
}

func (c *checkpoints) close() {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.done.Wait()
}
