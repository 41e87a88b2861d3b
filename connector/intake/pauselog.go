package intake

import (
	"time"

	"sluice/reliability"
)

// pauseLog counts and logs the pauses of reading. There are three kinds, which may overlap: too many records are
// queued; a claim waits for memory in the batch pool; or a table has a sealed batch on its way and the next one is
// full. Heartbeats and membership never pause.
type pauseLog struct {
	*base

	room *room

	queue, memory pause // the pauses for all tables; tableState has that for one table
	active        int   // how many pauses are in effect now
	counted       time.Time
	lines         *reliability.Sparse // limits the log lines about single tables
}

// pause is a period of backpressure. The zero value means that there is none.
type pause struct {
	since  time.Time
	long   bool // true once it has lasted longPause
	logged bool // true if a PAUSED line was logged
}

// pauseLines is the maximum number of log lines per minute about pauses of single tables.
const pauseLines = 100

// longPause is the duration after which a pause is logged.
const longPause = time.Second

// The causes of pauses, as they are logged.
const (
	pausedByQueue  = "queue"
	pausedByMemory = "memory"
	pausedByCommit = "commit"
)

// queueOpen reports whether the queue takes records. It counts each pause of the queue, also short ones.
func (pl *pauseLog) queueOpen() bool {
	open := pl.backpressure.IsOpen()
	pl.note(&pl.queue, !open, pausedByQueue, nil)
	return open
}

// watchPauses updates the pauses of all kinds. The reader calls it once per turn.
func (pl *pauseLog) watchPauses() {
	pl.queueOpen()
	pl.note(&pl.memory, len(pl.room.waiting) > 0 || pl.room.anyShed, pausedByMemory, nil)
	for _, t := range pl.tables {
		if on := t.full && t.behindEnd(); on || !t.commitPause.since.IsZero() {
			pl.note(&t.commitPause, on, pausedByCommit, t)
		}
	}
	pl.count(time.Now())
}

// count adds the time since the last call to the metric, if there was a pause in that time.
func (pl *pauseLog) count(now time.Time) {
	if pl.active > 0 {
		pl.Metrics.closedSeconds.Add(now.Sub(pl.counted).Seconds())
	}
	pl.counted = now
}

// note counts and logs a pause. on is true while it is in effect; t is the table for which reading pauses, nil for all
// tables.
func (pl *pauseLog) note(p *pause, on bool, cause string, t *tableState) {
	now := time.Now()
	switch lasted := now.Sub(p.since); {
	case on && p.since.IsZero():
		pl.count(now)
		pl.active++
		pl.Metrics.paused.Inc()
		p.since = now
	case on && !p.long && lasted >= longPause:
		p.long = true
		pl.Metrics.longPauses.Inc()
		attrs := []any{
			"cause", cause, "queued", pl.backpressure.Queued.Load(), "pause_at", pl.Queue.PauseAt, "resume_at", pl.Queue.ResumeAt,
			"batch_bytes", pl.Pools.Batch.Used(), "batch_limit", pl.Pools.Batch.Size(),
		}
		if p.logged = true; t != nil {
			var left int64
			if left, p.logged = pl.lines.Next(); left > 0 {
				attrs = append(attrs, "left_out", left)
			}
			attrs = append(attrs, "table", t.name)
		}
		if cause == pausedByMemory && len(pl.room.waiting) > 0 {
			attrs = append(attrs, "table", pl.room.waiting[0].table.name, "wants_bytes", pl.room.waiting[0].wantsBytes)
		}
		if p.logged {
			pl.Logger.Warn("BACKPRESSURE: PAUSED", attrs...)
		}
	case !on && !p.since.IsZero():
		pl.count(now)
		pl.active--
		pl.Metrics.resumed.Inc()
		if p.logged {
			attrs := []any{"cause", cause, "queued", pl.backpressure.Queued.Load(), "after", lasted.Round(time.Millisecond)}
			if t != nil {
				attrs = append(attrs, "table", t.name)
			}
			pl.Logger.Info("BACKPRESSURE: RESUMED", attrs...)
		}
		*p = pause{}
	}
}

func newPauseLog(of *base, memory *room) *pauseLog {
	return &pauseLog{base: of, room: memory, lines: reliability.NewSparse(pauseLines, time.Minute)}
}
