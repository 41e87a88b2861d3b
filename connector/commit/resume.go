package commit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability"
	"sluice/reliability/hold"
)

const (
	// confirmAfter is the time after which a finding about a position is checked again: a leader that was just
	// elected may not know the end of its log yet.
	confirmAfter = 5 * time.Second
	// kafkaTimeout bounds a request to Kafka, because the commits of the table wait meanwhile.
	kafkaTimeout = 10 * time.Second
)

// A resolver finds the positions of claims in the table and checks them against Kafka's logs.
type resolver struct {
	*writerState

	kafka     kafka
	committer *committer                 // makes initial commits
	window    *window                    // nil if the table declares no identity
	start     map[string]connector.Start // the start of each topic
	// rows says for which partitions without a position a search has found rows in the table. They are held.
	rows map[connector.RowsOf]rowsFound
	ends map[connector.Partition]int64 // the log ends of all partitions of the topics when Measure was first requested
}

// kafka sends requests to Kafka, each with a deadline.
type kafka struct {
	group connector.Group
	log   connector.Log
	guard *reliability.Guard
}

// resume finds the positions of claims. A claim with a position in the table continues there; one without makes its
// initial commit or is held. The order of the reads matters: the committed offsets first, the snapshot after them.
// Otherwise it could miss an initial commit that another member makes in between.
//
// If Kafka does not respond to a request in time, only the claims that need this request are held.
func (r *resolver) resume(ctx context.Context, claims map[connector.Partition]ResumeRequest) Outcome {
	result := map[connector.Partition]Found{}
	holdOne := func(p connector.Partition, reason hold.Reason, detail string) {
		result[p] = Found{Session: claims[p].Session, Hold: &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: -1}}
	}
	offsets, unanswered := r.kafka.groupOffsets(ctx, claims)
	s, err := r.table.Load(ctx)
	if err != nil {
		return r.committer.failureOutcome(ctx, nil, err)
	}
	r.snapshot = s
	if detail := plan.Replaced(r.snapshot, r.pipeline); detail != "" {
		// An error does not matter, because the ends only serve to show the lag.
		ends, _ := r.kafka.bounds(ctx, positionsAt(slices.Collect(maps.Keys(claims))))
		for p := range claims {
			holdOne(p, hold.TableReplaced, detail)
			f := result[p]
			f.Bounds = ends[p]
			result[p] = f
		}
		return Outcome{Kind: Resumed, Resumed: result}
	}
	if err := r.commitInitial(ctx, claims, offsets, unanswered, holdOne); err != nil {
		if classify.Of(err) == classify.Fenced { // another member has made the initial commit, so its positions are used
			return r.resume(ctx, claims)
		}
		return r.committer.failureOutcome(ctx, nil, err)
	}
	var at []connector.Position
	for p := range claims {
		next, known := r.snapshot.Positions[p.AppID(r.pipeline)]
		switch {
		case known:
			at = append(at, connector.Position{Partition: p, Next: next, Epoch: r.epochBefore(p, next, claims[p].Last, offsets[p.Topic])})
		case result[p].Hold == nil:
			holdOne(p, hold.KafkaDown, "the cluster's metadata do not show this partition yet")
		}
	}
	if err := r.findings(ctx, at, claims, result); err != nil {
		return r.committer.failureOutcome(ctx, nil, err)
	}
	if err := r.window.fillForResume(ctx, claims, result); err != nil {
		return r.committer.failureOutcome(ctx, nil, err)
	}
	for p, f := range result {
		if o, ok := offsets[p.Topic][p.ID]; f.Hold == nil && (!ok || o != connector.GroupOffset{Next: f.At.Next, Epoch: f.At.Epoch}) {
			f.OffsetDiffers = true
			result[p] = f
			if ok && o.Next > f.At.Next {
				r.logger.WarnContext(ctx, "committed offset is ahead of the table's position; reading from the table's position",
					"topic", p.Topic, "partition", p.ID, "position", f.At.Next, "group_offset", o.Next)
			}
		}
	}
	return Outcome{Kind: Resumed, Resumed: result}
}

// epochBefore returns the leader epoch of the last record before a position, -1 if unknown. The table's value takes
// precedence, even if it is "unknown": an operator who moved the position has checked it. If the table has none because
// an older version wrote it, the epoch comes from the reader's last position or from the committed offset, if one of
// them is exactly this position.
func (r *resolver) epochBefore(p connector.Partition, next int64, last connector.Position, offsets map[int32]connector.GroupOffset) int32 {
	if epoch, kept := r.snapshot.Epoch(r.pipeline, p); kept {
		return epoch
	}
	if last.Next == next && last.Epoch >= 0 {
		return last.Epoch
	}
	if o, ok := offsets[p.ID]; ok && o.Next == next {
		return o.Epoch
	}
	return -1
}

// withTimeout calls op through the guard, which retries, for at most kafkaTimeout. what names the result of op for the
// error. The error is a [hold.Error] or Canceled.
func (k *kafka) withTimeout(ctx context.Context, what string, op func(context.Context) error) error {
	asking, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	err := k.guard.Do(asking, op)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return classify.Mark(context.Cause(ctx), classify.Canceled)
	}
	if _, _, held := hold.Of(err); held {
		return err
	}
	return hold.New(hold.KafkaDown, "Kafka did not return "+what, err)
}

// groupOffsets returns the group's committed offsets of the claims' topics. Only an initial commit depends on them; for
// everything else they are a hint. unanswered has the topics whose offsets could not be read.
func (k *kafka) groupOffsets(ctx context.Context, claims map[connector.Partition]ResumeRequest) (offsets map[string]map[int32]connector.GroupOffset, unanswered map[string]error) {
	offsets, unanswered = map[string]map[int32]connector.GroupOffset{}, map[string]error{}
	topics := map[string]bool{}
	for p := range claims {
		topics[p.Topic] = true
	}
	var mu sync.Mutex
	inParallel(slices.Sorted(maps.Keys(topics)), func(topic string) {
		var of map[int32]connector.GroupOffset
		err := k.withTimeout(ctx, "the group's committed offsets", func(ctx context.Context) (err error) {
			of, err = k.group.Offsets(ctx, topic)
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			unanswered[topic] = err
			return
		}
		offsets[topic] = of
	})
	return offsets, unanswered
}

// maxParallel is the maximum number of topics to request at once.
const maxParallel = 16

// inParallel calls ask for each topic, for up to maxParallel topics at a time. It does so because a call may take until
// its deadline, and the commits of the table wait for all calls.
func inParallel(topics []string, ask func(topic string)) {
	var asking sync.WaitGroup
	room := make(chan struct{}, maxParallel)
	for _, topic := range topics {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			ask(topic)
		})
	}
	asking.Wait()
}

// commitInitial makes the initial commit for claims without a position. A missing txn does not prove that a partition
// was never read, so commitInitial holds the claims whose partition may have been read before.
func (r *resolver) commitInitial(ctx context.Context, claims map[connector.Partition]ResumeRequest, offsets map[string]map[int32]connector.GroupOffset,
	unanswered map[string]error, holdOne func(connector.Partition, hold.Reason, string),
) error {
	missing, err := r.selectInitial(claims, offsets, unanswered, holdOne)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	planned, failures := map[string]*plan.Initial{}, map[string]error{}
	inParallel(slices.Sorted(maps.Keys(missing)), func(name string) {
		initial, err := r.initialPositions(ctx, name, slices.SortedFunc(slices.Values(missing[name]), connector.Partition.Compare))
		mu.Lock()
		defer mu.Unlock()
		planned[name], failures[name] = initial, err
	})
	r.rejectWithRows(ctx, planned, failures, holdOne)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		err := failures[name]
		if reason, detail, held := hold.Of(err); held {
			for _, p := range missing[name] {
				holdOne(p, reason, detail)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("initial commit of topic %q: %w", name, err)
		}
		if len(planned[name].Positions) == 0 {
			continue // all partitions of this topic are held, because the table has rows of them
		}
		first := planned[name].Plan(r.snapshot, r.pipeline)
		s, err := r.committer.commit(ctx, first, nil)
		if err != nil {
			return fmt.Errorf("initial commit of topic %q: %w", name, err)
		}
		r.snapshot = s
		r.logger.InfoContext(ctx, "initial commit finished", "topic", name, "from", r.start[name].String(), "partitions", len(first.Next), "version", s.Version)
	}
	return nil
}

// selectInitial returns, by topic, those claims without a position for which txns and committed offsets allow an
// initial commit. It holds the other claims without a position. So the error is never a [hold.Error].
func (r *resolver) selectInitial(claims map[connector.Partition]ResumeRequest, offsets map[string]map[int32]connector.GroupOffset, unanswered map[string]error,
	holdOne func(connector.Partition, hold.Reason, string),
) (map[string][]connector.Partition, error) {
	missing, known := map[string][]connector.Partition{}, map[string][]plan.Past{}
	for _, p := range slices.SortedFunc(maps.Keys(claims), connector.Partition.Compare) {
		if _, ok := r.snapshot.Positions[p.AppID(r.pipeline)]; ok {
			continue
		}
		if _, ok := known[p.Topic]; !ok {
			known[p.Topic] = plan.History(r.snapshot, p.Topic)
		}
		reason, detail, held := hold.Of(unanswered[p.Topic])
		if err := unanswered[p.Topic]; err != nil && !held {
			return nil, fmt.Errorf("initial commit of topic %q: %w", p.Topic, err)
		}
		if !held {
			reason, detail = plan.JudgePast(p, r.snapshot, known[p.Topic], offsets[p.Topic], r.pipeline)
		}
		if reason != "" {
			holdOne(p, reason, detail)
			continue
		}
		missing[p.Topic] = append(missing[p.Topic], p)
	}
	return missing, nil
}

// topic returns a topic from the cluster's metadata.
func (k *kafka) topic(ctx context.Context, name string) (topic connector.Topic, err error) {
	err = k.withTimeout(ctx, "topic "+name, func(ctx context.Context) (err error) {
		topic, err = k.log.Topic(ctx, name)
		return err
	})
	return topic, err
}

// positionsAt returns positions without an offset. For these, bounds only reads the log ends of the partitions.
func positionsAt(partitions []connector.Partition) []connector.Position {
	at := make([]connector.Position, len(partitions))
	for i, p := range partitions {
		at[i] = connector.Position{Partition: p, Next: -1, Epoch: -1}
	}
	return at
}

// bounds returns the log ends of partitions. Together with an error it returns the log ends that it could read;
// boundsError has the cause for each of the other partitions.
func (k *kafka) bounds(ctx context.Context, at []connector.Position) (map[connector.Partition]connector.Bounds, error) {
	bounds := map[connector.Partition]connector.Bounds{}
	var unread *connector.UnreadError
	err := k.withTimeout(ctx, "the log ends of partitions", func(ctx context.Context) error {
		got, err := k.log.Bounds(ctx, at)
		maps.Copy(bounds, got)
		if errors.As(err, &unread) {
			return nil // the cluster answers, and a missing leader must not open the breaker that all requests to Kafka share
		}
		unread = nil
		return err
	})
	if err == nil && unread != nil {
		err = unread
	}
	return bounds, err
}

// boundsError returns why the bounds of a partition are unknown: a [hold.Error], or Canceled. err is the error that
// bounds returned. boundsError returns nil if the bounds are known or the partition no longer exists.
func boundsError(err error, p connector.Partition) error {
	var unread *connector.UnreadError
	if !errors.As(err, &unread) {
		return err
	}
	cause := unread.Causes[p]
	if _, _, held := hold.Of(cause); cause == nil || held {
		return cause
	}
	return hold.New(hold.KafkaDown, "failed to read the partition's log ends", cause)
}

// maxReadings is how often a resume compares a position with its log at most while the leader keeps changing.
const maxReadings = 4

// findings compares positions with the log ends of their partitions, and puts the results into result. A finding counts
// only if a second reading, confirmAfter later and under the same leader epoch, repeats it, because a leader that was
// just elected may not know the end of its log yet.
func (r *resolver) findings(ctx context.Context, at []connector.Position, claims map[connector.Partition]ResumeRequest, result map[connector.Partition]Found) error {
	before := map[connector.Partition]sighting{}
	for reading := 1; len(at) > 0; reading++ {
		bounds, err := r.kafka.bounds(ctx, at)
		if ctx.Err() != nil {
			return err
		}
		var doubtful []connector.Position
		for _, pos := range at {
			p := pos.Partition
			b, there := bounds[p]
			f := Found{Session: claims[p].Session, At: pos, Bounds: b}
			if reason, detail, held := hold.Of(boundsError(err, p)); held && !there {
				f.Hold = &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: pos.Next}
			} else if f.Hold = plan.Finding(pos, b, there); f.Hold != nil && !claims[p].isKnown(f.Hold.Reason) {
				seen, first := sighting{f.Hold.Reason, b.LeaderEpoch}, before[p]
				if seen != first && reading < maxReadings {
					before[p], doubtful = seen, append(doubtful, pos)
					continue
				}
				if seen != first {
					f.Hold = &hold.Hold{Partition: p, Reason: hold.KafkaDown, Detail: "its leader keeps changing while the position is compared with the log", Offset: pos.Next}
				}
			}
			result[p] = f
		}
		if at = doubtful; len(at) > 0 {
			if err := reliability.Wait(ctx, confirmAfter); err != nil {
				return classify.Mark(err, classify.Canceled)
			}
		}
	}
	return nil
}

// sighting is a finding about a position that one reading has shown, and the leader epoch of that reading.
type sighting struct {
	reason hold.Reason
	epoch  int32
}

// isKnown reports whether a finding counts without a second reading, because the claim is already held for the same
// reason or is paused.
func (q ResumeRequest) isKnown(reason hold.Reason) bool { return q.Paused || q.Held == reason }
