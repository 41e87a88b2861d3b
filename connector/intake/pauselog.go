package intake

import (
	"time"

	"sluice/reliability"
)

// pauseLog counts and logs the pauses of reading. There are three kinds, which may overlap: too many records are queued,
// a claim waits for room in the batch pool, or a table has one sealed batch on its way and the next one is full. Heartbeats
// and membership never pause.
type pauseLog struct {
	*base

	room *room

	queue, memory pause // of all tables; that of one table is in its tableState
	active        int   // that last now
	counted       time.Time
	lines         *reliability.Sparse // of pauses of single tables
}

// pause is one time of backpressure. The zero value is none.
type pause struct {
	since  time.Time
	long   bool // it has lasted longPause
	logged bool // PAUSED was logged
}

// pauseLines is how many pauses of single tables the log names per minute.
const pauseLines = 100

// longPause is how long a pause lasts before it is worth a line.
const longPause = time.Second

// causes of pauses, as the log and the metrics name them.
const (
	pausedByQueue  = "queue"
	pausedByMemory = "memory"
	pausedByCommit = "commit"
)

// queueOpen tells whether the valve is. It counts each time that the valve closes, however short.
func (b *pauseLog) queueOpen() bool {
	open := b.backpressure.IsOpen()
	b.note(&b.queue, !open, pausedByQueue, nil)
	return open
}

// watchPauses follows all kinds of pauses, once each turn.
func (b *pauseLog) watchPauses() {
	b.queueOpen()
	b.note(&b.memory, len(b.room.waiting) > 0 || b.room.sheds, pausedByMemory, nil)
	for _, t := range b.tables {
		if on := t.stuck && t.behindEnd(); on || !t.stopped.since.IsZero() {
			b.note(&t.stopped, on, pausedByCommit, t)
		}
	}
	b.count(time.Now())
}

// count adds the time since the last call to the metric, if there was a pause.
func (b *pauseLog) count(now time.Time) {
	if b.active > 0 {
		b.Metrics.closedSeconds.Add(now.Sub(b.counted).Seconds())
	}
	b.counted = now
}

// note follows a pause: on is whether it lasts. t is the table whose reading is paused, nil if it is that of all.
func (b *pauseLog) note(p *pause, on bool, cause string, t *tableState) {
	now := time.Now()
	switch lasted := now.Sub(p.since); {
	case on && p.since.IsZero():
		b.count(now)
		b.active++
		b.Metrics.paused.Inc()
		p.since = now
	case on && !p.long && lasted >= longPause:
		p.long = true
		b.Metrics.longPauses.Inc()
		said := []any{
			"cause", cause, "queued", b.backpressure.Queued.Load(), "pause_at", b.Queue.PauseAt, "resume_at", b.Queue.ResumeAt,
			"batch_bytes", b.Pools.Batch.Used(), "batch_limit", b.Pools.Batch.Size(),
		}
		if p.logged = true; t != nil {
			var left int64
			if left, p.logged = b.lines.Next(); left > 0 {
				said = append(said, "left_out", left)
			}
			said = append(said, "table", t.name)
		}
		if cause == pausedByMemory && len(b.room.waiting) > 0 {
			said = append(said, "table", b.room.waiting[0].table.name, "wants_bytes", b.room.waiting[0].wantsBytes)
		}
		if p.logged {
			b.Logger.Warn("BACKPRESSURE: PAUSED", said...)
		}
	case !on && !p.since.IsZero():
		b.count(now)
		b.active--
		b.Metrics.resumed.Inc()
		if p.logged {
			said := []any{"cause", cause, "queued", b.backpressure.Queued.Load(), "after", lasted.Round(time.Millisecond)}
			if t != nil {
				said = append(said, "table", t.name)
			}
			b.Logger.Info("BACKPRESSURE: RESUMED", said...)
		}
		*p = pause{}
	}
}

func newPauseLog(of *base, memory *room) *pauseLog {
	return &pauseLog{base: of, room: memory, lines: reliability.NewSparse(pauseLines, time.Minute)}
}
