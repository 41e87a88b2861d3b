package commit

import (
	"context"
	"log/slog"
	"time"

	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// letterLog tells of dead letters without filling the log: so many lines a minute for each table, and a cause once in a
// while. The counters are exact. Owned by a writer.
type letterLog struct {
	lines *reliability.Sparse
	// givenUp is for records that are given up after attempts.
	givenUp *reliability.Sparse
	causes  map[cause]*reliability.Sparse // as many as there are topics and reasons
}

type cause struct {
	topic  string
	reason deadletter.Reason
}

const (
	letterLines     = 100
	letterLinesEach = time.Minute
	causeEach       = 10 * time.Minute
)

func newLetterLog() letterLog {
	lines := func() *reliability.Sparse { return reliability.NewSparse(letterLines, letterLinesEach) }
	return letterLog{lines(), lines(), map[cause]*reliability.Sparse{}}
}

// written counts letters that are durable, and tells of them.
func (c *committer) written(ctx context.Context, letters []deadletter.Letter) {
	for i := range letters {
		topic, reason := letters[i].Source.Topic, letters[i].Reason
		c.metrics.lettersOf.WithLabelValues(topic).Inc()
		c.metrics.letters.WithLabelValues(topic, string(reason)).Inc()
		c.letterLog.log(ctx, c.logger, &letters[i])
	}
}

// log writes what the log may take of one letter.
func (l *letterLog) log(ctx context.Context, logger *slog.Logger, d *deadletter.Letter) {
	why := cause{d.Source.Topic, d.Reason}
	if l.causes[why] == nil {
		l.causes[why] = reliability.NewSparse(1, causeEach)
	}
	if left, ok := l.causes[why].Next(); ok {
		logger.ErrorContext(ctx, "non-retriable failure: such records become dead letters", "topic", d.Source.Topic, "reason", string(d.Reason),
			"class", d.Class.String(), "detail", d.Detail, "correlation_id", d.Correlation, "batch_id", d.Batch, "left_out", left)
	}
	if left, ok := l.lines.Next(); ok {
		logger.InfoContext(ctx, "DEAD LETTER", "topic", d.Source.Topic, "partition", d.Source.ID, "offset", d.Source.Offset,
			"reason", string(d.Reason), "class", d.Class.String(), "retries", d.Retries,
			"correlation_id", d.Correlation, "batch_id", d.Batch, "left_out", left)
	}
}
