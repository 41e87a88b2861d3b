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

// Offsets commits the positions of claims to the group, as a hint for tools. They are written after the table's commit,
// so they are ahead of the table only if the table was set back. Members use them only where the table has no txn
// ([plan.JudgePast]) or no epoch.
//
// Run writes the offsets that the reader notes: at each interval, when a generation ends, and during the drain. An
// offset stays noted until it was written.
type Offsets struct {
	group   connector.Group
	every   time.Duration
	logger  *slog.Logger
	metrics *Metrics
	loops   *pulse.Loops
	failing reliability.FailureLog
	wake    chan struct{} // makes Run write at once

	mu      sync.Mutex
	pending map[connector.Partition]pendingOffset
}

// pendingOffset is an offset that is to be written, and the id of the batch whose commit set the position; "" if there
// is none.
type pendingOffset struct {
	connector.GroupOffset
	batch string
}

// NewOffsets returns Offsets whose Run writes at this interval.
func NewOffsets(g connector.Group, every time.Duration, logger *slog.Logger, m *Metrics, loops *pulse.Loops) *Offsets {
	return &Offsets{group: g, every: every, logger: logger, metrics: m, loops: loops, wake: make(chan struct{}, 1), pending: map[connector.Partition]pendingOffset{}}
}

// note keeps an offset to be written. It replaces an older offset of the same partition. batch is the id of the batch
// whose commit set the position, "" if there is none.
func (k *Offsets) note(p connector.Partition, o connector.GroupOffset, batch string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending[p] = pendingOffset{o, batch}
}

// soon makes Run write at once, because the generation is about to end.
func (k *Offsets) soon() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run writes offsets until ctx ends.
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
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		loop.Work()
		k.write(ctx)
	}
}

// write commits the noted offsets to the group. If that fails, they stay noted for the next interval. "Checkpoint" in
// the log lines means committed offsets, not a checkpoint of Delta.
func (k *Offsets) write(ctx context.Context) {
	k.mu.Lock()
	all := maps.Clone(k.pending)
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
			level = slog.LevelDebug // this is expected between two generations
		case classify.Fatal, classify.Poison:
			level = slog.LevelError
		case classify.Transient:
		}
		about := []any{"partitions", len(offsets), "class", class.String(), "err", err}
		if level != slog.LevelDebug {
			k.failing.Failed(ctx, k.logger, level, "Exception during checkpointing loop: failed to commit offsets; retrying at the next interval", about...)
		} else {
			k.logger.DebugContext(ctx, "Exception during checkpointing loop: failed to commit offsets; retrying at the next interval", about...)
		}
		return
	}
	k.failing.Over(ctx, k.logger, "offsets are committed again")
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
		if k.pending[p] == o {
			delete(k.pending, p)
		}
	}
}

// flush writes until all noted offsets are written, but at most three times, or until ctx ends.
func (k *Offsets) flush(ctx context.Context) {
	for n := 1; ; n++ {
		k.write(ctx)
		k.mu.Lock()
		left := len(k.pending)
		k.mu.Unlock()
		if left == 0 || n == 3 || reliability.Wait(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}
