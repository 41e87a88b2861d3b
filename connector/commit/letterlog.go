package commit

import (
	"context"
	"log/slog"
	"time"

	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// letterLog logs dead letters without flooding the log: it writes a limited number of lines per minute and table, and
// one line per causeInterval about each cause. Counters count all dead letters. The writer of the table owns it.
type letterLog struct {
	lines *reliability.Sparse
	// givenUp limits the lines about records that failed all attempts.
	givenUp *reliability.Sparse
	causes  map[cause]*reliability.Sparse // the limiter for each topic and reason
}

type cause struct {
	topic  string
	reason deadletter.Reason
}

const (
	letterLines    = 100
	letterLinesPer = time.Minute
	causeInterval  = 10 * time.Minute
)

func newLetterLog() letterLog {
	lines := func() *reliability.Sparse { return reliability.NewSparse(letterLines, letterLinesPer) }
	return letterLog{lines(), lines(), map[cause]*reliability.Sparse{}}
}

// written counts and logs dead letters that have just become durable.
func (c *committer) written(ctx context.Context, letters []deadletter.Letter) {
	for i := range letters {
		topic, reason := letters[i].Source.Topic, letters[i].Reason
		c.metrics.lettersByTopic.WithLabelValues(topic).Inc()
		c.metrics.letters.WithLabelValues(topic, string(reason)).Inc()
		c.letterLog.log(ctx, c.logger, &letters[i])
	}
}

// log logs one dead letter, unless the limits are reached.
func (l *letterLog) log(ctx context.Context, logger *slog.Logger, d *deadletter.Letter) {
	why := cause{d.Source.Topic, d.Reason}
	if l.causes[why] == nil {
		l.causes[why] = reliability.NewSparse(1, causeInterval)
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
