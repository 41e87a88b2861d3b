package commit

import (
	"context"
	"log/slog"
	"time"

	"sluice/connector/plan"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// maxLoggedDuplicates is how many duplicates a plan keeps for the log if its level is above DEBUG. Counters count all
// duplicates.
const maxLoggedDuplicates = 100

// maxDebugDuplicates is how many duplicates a plan keeps for the log at level DEBUG. It is also the largest number of
// DEBUG lines about duplicates per second.
const maxDebugDuplicates = 1000

// duplicatesToLog returns how many duplicates a plan should keep for the log, which depends on the logger's level.
func duplicatesToLog(ctx context.Context, logger *slog.Logger) int {
	if logger.Enabled(ctx, slog.LevelDebug) {
		return maxDebugDuplicates
	}
	return maxLoggedDuplicates
}

// duplicateLog logs the duplicates of the commits of one table. The table's writer owns it.
type duplicateLog struct {
	lines, hits *reliability.Sparse
	beyond      int64 // how many duplicates plans have not kept since the last line at DEBUG
}

func newDuplicateLog() duplicateLog {
	return duplicateLog{lines: reliability.NewSparse(duplicateLines, duplicateLinesPer), hits: reliability.NewSparse(maxDebugDuplicates, time.Second)}
}

// log logs the duplicates of a committed plan: at INFO at most duplicateLines per minute; at DEBUG each with its
// fingerprint, at most maxDebugDuplicates per second.
func (l *duplicateLog) log(ctx context.Context, logger *slog.Logger, p *plan.Plan) {
	if len(p.Skipped) == 0 {
		return
	}
	for _, d := range p.Skipped[:min(len(p.Skipped), maxLoggedDuplicates)] {
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
