package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// reading is what one request has shown about a position.
type reading struct {
	bounds connector.Bounds
	gone   bool  // true if the partition no longer exists; then there are no bounds
	hold   error // a finding about the position, which counts only if a later reading confirms it
	err    error // a transient error, if the request failed
}

// Bounds asks the leaders for the ends of partitions; see [connector.Log]. The result is what the leaders say now,
// which may be wrong for a moment: a caller that acts on a position outside its log, or on a missing partition, must
// ask again after a while to confirm it. A position with a negative Next asks for the ends only.
//
// While the cluster answers and only leaders are missing, Bounds retries for a few seconds, or until ctx ends. If the
// cluster does not answer, Bounds returns the error at once, and the caller's guard retries.
//
// DivergedAt is the end of the part of the log that agrees with the records read before, -1 if all of them agree. It is
// one below the position if the leader only knows that the record before the position differs.
func (q *questions) Bounds(ctx context.Context, positions []connector.Position) (map[connector.Partition]connector.Bounds, error) {
	readings, err := q.readings(ctx, positions)
	bounds := make(map[connector.Partition]connector.Bounds, len(readings))
	for p, r := range readings {
		if !r.gone && r.err == nil {
			bounds[p] = r.bounds
		}
	}
	return bounds, err
}

const readingBounds = "reading the bounds of partitions"

// readings reads the bounds of positions, and repeats this for those that failed. It ends when all are read, the
// cluster does not answer, only an operator can end all remaining errors, boundsRetryFor is over, or ctx ends. The
// error is an UnreadError with the positions that failed while the cluster answered; if the cluster did not answer, it
// is another error.
func (q *questions) readings(ctx context.Context, positions []connector.Position) (map[connector.Partition]reading, error) {
	all := make(map[connector.Partition]reading, len(positions))
	began := time.Now()
	for failures := 1; ; failures++ {
		read, err := q.readOnce(ctx, positions)
		if err != nil {
			q.metrics.failed(err)
			return all, AsHold(readingBounds, err)
		}
		maps.Copy(all, read)
		if positions = unread(positions, read); len(positions) == 0 {
			return all, nil
		}
		err = unreadError(positions, read)
		q.metrics.failed(err)
		if classify.Of(err) == classify.Fatal || time.Since(began) >= boundsRetryFor || reliability.Wait(ctx, retryPause(failures)) != nil {
			return all, err
		}
	}
}

// unread returns the positions whose reading has an error.
func unread(positions []connector.Position, read map[connector.Partition]reading) (left []connector.Position) {
	for _, p := range positions {
		if read[p.Partition].err != nil {
			left = append(left, p)
		}
	}
	return left
}

// unreadError returns an error with the positions that were not read. It is Fatal if an operator must end each of their
// errors, otherwise Transient.
func unreadError(positions []connector.Position, read map[connector.Partition]reading) error {
	e := &connector.UnreadError{Causes: map[connector.Partition]error{}}
	class := classify.Fatal
	for _, p := range positions {
		cause := AsHold(readingBounds, fmt.Errorf("bounds of %v: %w", p.Partition, read[p.Partition].err))
		if e.Causes[p.Partition] = cause; classify.Of(cause) != classify.Fatal {
			class = classify.Transient
		}
	}
	return classify.Mark(e, class)
}

// readOnce reads the bounds of each position once: it finds the leaders in new metadata, asks them for the ends of the
// logs at the epochs in these metadata, and reads the topic ids again, because the ends are requested by topic name.
// The response of a leader that was deposed meanwhile does not count. The error means that the cluster did not answer.
func (q *questions) readOnce(ctx context.Context, positions []connector.Position) (map[connector.Partition]reading, error) {
	var names []string
	for _, p := range positions {
		names = append(names, p.Partition.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	all := make(map[connector.Partition]reading, len(positions))
	before, err := q.client.metadata(ctx, names...)
	if err != nil {
		return nil, err
	}
	leaders := map[int32][]connector.Position{}
	epochs := map[connector.Partition]int32{}
	for _, p := range positions {
		led, r := q.placed(p, before)
		if r.hold != nil || r.err != nil {
			all[p.Partition] = r
			continue
		}
		leaders[led.Leader] = append(leaders[led.Leader], p)
		epochs[p.Partition] = led.Epoch
	}
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for leader, at := range leaders {
		wg.Go(func() {
			got := q.client.boundsAt(ctx, leader, at, epochs)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, got)
		})
	}
	wg.Wait()
	after, err := q.client.metadata(ctx, names...)
	if err != nil {
		return nil, err
	}
	for _, p := range positions {
		led, r := q.placed(p, after)
		switch asked, ok := epochs[p.Partition]; {
		case r.hold != nil:
			if all[p.Partition].hold == nil {
				all[p.Partition] = r
			}
		case r.err == nil && ok && led.Epoch > asked:
			all[p.Partition] = reading{err: errOldMetadata}
		}
	}
	return all, nil
}

// placed returns the leader of a position's partition according to m, and records the leader's epoch. If an epoch newer
// than that in m was recorded before, the reading has errOldMetadata. For a partition that is gone, placed drops the
// recorded epoch.
func (q *questions) placed(p connector.Position, m *clusterMetadata) (partitionMetadata, reading) {
	led, r := placed(p, m)
	switch {
	case r.gone:
		q.epochs.forget(p.Partition)
	case r.err == nil && !q.epochs.newest(p.Partition, led.Epoch):
		r.err = errOldMetadata
	}
	return led, r
}

// placed returns the leader of a position's partition according to m, or a reading that says why there is none.
func placed(p connector.Position, m *clusterMetadata) (partitionMetadata, reading) {
	t := m.topic(p.Partition.Topic)
	if t == nil {
		return partitionMetadata{}, reading{err: errMalformed}
	}
	led, h, err := leaderOf(p.Partition, m, t)
	return led, reading{gone: h != nil, hold: h, err: err}
}

// boundsAt reads the bounds of positions that have the same leader and compares the positions with them. epochs are
// the leader epochs in the metadata that named the leader.
func (c *Client) boundsAt(ctx context.Context, leader int32, positions []connector.Position,
	epochs map[connector.Partition]int32,
) map[connector.Partition]reading {
	slices.SortFunc(positions, func(a, b connector.Position) int {
		return cmp.Or(cmp.Compare(a.Partition.Topic, b.Partition.Topic), cmp.Compare(a.Partition.ID, b.Partition.ID))
	})
	parts := make([]ledPartition, len(positions))
	for i, p := range positions {
		parts[i] = ledPartition{p.Partition.Topic, p.Partition.ID, epochs[p.Partition]}
	}
	readings := make([]reading, len(positions))
	for i := range readings {
		readings[i].bounds = connector.Bounds{LeaderEpoch: parts[i].leaderEpoch, DivergedAt: -1}
	}
	note := func(answers []offsetAt, err error, take func(i int, a offsetAt)) {
		for i := range readings {
			switch {
			case readings[i].err != nil:
			case err != nil:
				readings[i].err = err
			case answers[i].err != 0:
				readings[i].err = answers[i].err
			default:
				take(i, answers[i])
			}
		}
	}
	// In this order, a log that grows meanwhile still shows start ≤ last stable ≤ high watermark.
	answers, err := c.listOffsets(ctx, leader, endLogStart, parts)
	note(answers, err, func(i int, a offsetAt) { readings[i].bounds.LogStart = a.offset })
	if err == nil {
		answers, err = c.listOffsets(ctx, leader, endLastStable, parts)
		note(answers, err, func(i int, a offsetAt) { readings[i].bounds.LastStable = a.offset })
	}
	if err == nil {
		answers, err = c.listOffsets(ctx, leader, endHighWatermark, parts)
		note(answers, err, func(i int, a offsetAt) { readings[i].bounds.HighWatermark = a.offset })
	}
	if err == nil {
		c.noteDivergence(ctx, leader, positions, parts, readings)
	}
	all := make(map[connector.Partition]reading, len(positions))
	for i, p := range positions {
		if readings[i].err == nil {
			readings[i].hold = outside(p, readings[i].bounds)
		}
		all[p.Partition] = readings[i]
	}
	return all
}

// noteDivergence asks the leader whether its log still has the records before each position (KIP-320). It stores in
// readings the offset from which on the log differs. It skips positions without an epoch, positions at offset 0, and
// those whose bounds could not be read.
func (c *Client) noteDivergence(ctx context.Context, leader int32, positions []connector.Position, parts []ledPartition,
	readings []reading,
) {
	var (
		at     []int
		known  []ledPartition
		epochs []int32
	)
	for i, p := range positions {
		if p.Epoch >= 0 && p.Next > 0 && readings[i].err == nil {
			at, known, epochs = append(at, i), append(known, parts[i]), append(epochs, p.Epoch)
		}
	}
	if len(at) == 0 {
		return
	}
	answers, err := c.offsetsForEpochs(ctx, leader, known, epochs)
	for k, i := range at {
		r, p := &readings[i], positions[i]
		switch {
		case err != nil:
			r.err = err
		case answers[k].err != 0:
			r.err = answers[k].err
		default:
			r.bounds.DivergedAt = diverged(p, parts[i].leaderEpoch, answers[k])
		}
	}
}

// diverged compares a position with a, the end of the position's epoch in the leader's log. It returns the offset from
// which on the leader's log differs from the records that were read, or -1 if it does not differ.
func diverged(p connector.Position, leaderEpoch int32, a offsetAt) int64 {
	switch {
	case a.epoch < 0 || a.offset < 0:
		if p.Epoch <= leaderEpoch { // the leader no longer has this part of its epoch history, so it cannot contradict the position
			return -1
		}
		return p.Next - 1 // the leader never had such an epoch
	case a.offset < p.Next:
		return a.offset
	case a.epoch < p.Epoch: // the log has records of another epoch at this offset
		return p.Next - 1
	}
	return -1
}

// outside returns a finding if a position lies outside its log, and nil if not.
func outside(p connector.Position, b connector.Bounds) error {
	if p.Next < 0 { // the caller wants only the bounds
		return nil
	}
	switch reason := b.Unreadable(p.Next); reason {
	case hold.BehindLogStart:
		return hold.New(reason, fmt.Sprintf(
			"the position is %d, but the log starts at %d: %d offsets were deleted before they were read",
			p.Next, b.LogStart, b.LogStart-p.Next), nil)
	case hold.AheadOfLogEnd:
		return hold.New(reason, fmt.Sprintf(
			"the position is %d, but the log ends at %d: the cluster lost records, or the position is not of this log",
			p.Next, b.HighWatermark), nil)
	case hold.Truncated:
		return hold.New(reason, fmt.Sprintf(
			"the position is %d, but what was read before it differs from the log from offset %d on: the log was truncated (KIP-320)",
			p.Next, b.DivergedAt), nil)
	default:
		return nil
	}
}
