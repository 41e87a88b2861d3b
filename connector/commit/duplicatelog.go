package commit

import (
	"context"
	"log/slog"
	"time"

	"sluice/connector/plan"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// skippedKept is how many duplicates of a plan are kept for the log; all are counted. At DEBUG it is hitLines.
const skippedKept = 100

// hitLines is how many duplicates the log names per second at DEBUG.
const hitLines = 1000

// duplicatesToLog returns how many duplicates of a plan a logger may need.
func duplicatesToLog(ctx context.Context, logger *slog.Logger) int {
	if logger.Enabled(ctx, slog.LevelDebug) {
		return hitLines
	}
	return skippedKept
}

// duplicateLog logs the duplicates of the commits of one table. Owned by its writer.
type duplicateLog struct {
	lines, hits *reliability.Sparse
	beyond      int64 // duplicates that plans did not keep, since the last line at DEBUG
}

func newDuplicateLog() duplicateLog {
	return duplicateLog{lines: reliability.NewSparse(skippedLines, skippedLinesEach), hits: reliability.NewSparse(hitLines, time.Second)}
}

// log logs the duplicates of a plan that was committed: at INFO a few, at DEBUG each with its fingerprint, up to hitLines a
// second.
func (l *duplicateLog) log(ctx context.Context, logger *slog.Logger, p *plan.Plan) {
	if len(p.Skipped) == 0 {
		return
	}
	for _, d := range p.Skipped[:min(len(p.Skipped), skippedKept)] {
		if left, ok := l.lines.Next(); ok {
			logger.InfoContext(ctx, "Skipping duplicate", "topic", d.Topic, "partition", d.ID, "offset", d.Offset,
				"correlation_id", deadletter.Correlation(d.Coordinates), "batch_id", p.Commit.Batch, "left_out", left)
		}
	}
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for _, d := range p.Skipped {
		if left, ok := l.hits.Next(); ok {
			logger.DebugContext(ctx, "fingerprint hit", "topic", d.Topic, "partition", d.ID, "offset", d.Offset, "fingerprint", d.Fingerprint.String(),
				"correlation_id", deadletter.Correlation(d.Coordinates), "batch_id", p.Commit.Batch, "left_out", left+l.beyond)
			l.beyond = 0
		}
	}
	for _, n := range p.Judged {
		l.beyond += n.Hits
	}
	l.beyond -= int64(len(p.Skipped))
}
