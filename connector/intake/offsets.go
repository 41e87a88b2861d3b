package intake

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/pulse"
)

// Offsets writes group offsets: a hint for tools, always behind the table. What the reader notes is written at most
// every interval, when a generation ends, and on drain. An entry is removed only after it was written.
type Offsets struct {
	group   connector.Group
	every   time.Duration
	logger  *slog.Logger
	metrics *Metrics
	loops   *pulse.Loops
	failing reliability.FailureLog
	early   chan struct{}

	mu    sync.Mutex
	noted map[connector.Partition]noted
}

// noted is an offset to write, and the batch that brought the table there, "" if none did.
type noted struct {
	connector.GroupOffset
	batch string
}

// NewOffsets returns offsets that Run writes every so often.
func NewOffsets(g connector.Group, every time.Duration, logger *slog.Logger, m *Metrics, loops *pulse.Loops) *Offsets {
	return &Offsets{group: g, every: every, logger: logger, metrics: m, loops: loops, early: make(chan struct{}, 1), noted: map[connector.Partition]noted{}}
}

// note keeps an offset for the next turn.
func (k *Offsets) note(p connector.Partition, o connector.GroupOffset, batch string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.noted[p] = noted{o, batch}
}

// soon asks for a turn now: the generation is about to end.
func (k *Offsets) soon() {
	select {
	case k.early <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends.
func (k *Offsets) Run(ctx context.Context) {
	loop := k.loops.Begin("offsets")
	defer loop.End()
	ctx = pulse.With(ctx, loop)
	turn := time.NewTicker(k.every)
	defer turn.Stop()
	for {
		loop.Rest()
		select {
		case <-turn.C:
		case <-k.early:
		case <-ctx.Done():
			return
		}
		loop.Work()
		k.write(ctx)
	}
}

// write commits what was noted. A failure keeps it for the next turn.
func (k *Offsets) write(ctx context.Context) {
	k.mu.Lock()
	all := maps.Clone(k.noted)
	k.mu.Unlock()
	if len(all) == 0 {
		k.logger.DebugContext(ctx, "Nothing to be checkpointed")
		return
	}
	offsets := make(map[connector.Partition]connector.GroupOffset, len(all))
	for p, o := range all {
		offsets[p] = o.GroupOffset
	}
	loop := pulse.Of(ctx)
	loop.Wait()
	err := k.group.CommitOffsets(ctx, offsets)
	loop.Done()
	if err != nil {
		k.metrics.offsetFailures.Inc()
		class := classify.Of(err)
		level := slog.LevelWarn
		switch class {
		case classify.Fenced, classify.Canceled:
			level = slog.LevelDebug // between generations there is nobody to write for
		case classify.Fatal, classify.Poison:
			level = slog.LevelError
		case classify.Transient:
		}
		about := []any{"partitions", len(offsets), "class", class.String(), "err", err}
		if level != slog.LevelDebug {
			k.failing.Failed(ctx, k.logger, level, "Exception during checkpointing loop: group offsets are not written, and kept for the next turn", about...)
		} else {
			k.logger.DebugContext(ctx, "Exception during checkpointing loop: group offsets are not written, and kept for the next turn", about...)
		}
		return
	}
	k.failing.Over(ctx, k.logger, "group offsets are written again")
	k.logger.InfoContext(ctx, "Scheduled checkpointing", "partitions", len(offsets))
	if k.logger.Enabled(ctx, slog.LevelDebug) {
		for _, p := range slices.SortedFunc(maps.Keys(offsets), connector.Partition.Compare) {
			k.logger.DebugContext(ctx, "Scheduled checkpointing of a partition", "topic", p.Topic, "partition", p.ID,
				"offset", all[p].Next, "batch_id", all[p].batch)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for p, o := range all {
		if k.noted[p] == o {
			delete(k.noted, p)
		}
	}
}

// flush writes until everything is written or ctx ends.
func (k *Offsets) flush(ctx context.Context) {
	for n := 1; ; n++ {
		k.write(ctx)
		k.mu.Lock()
		left := len(k.noted)
		k.mu.Unlock()
		if left == 0 || n == 3 || reliability.Wait(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}
