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
	// confirmAfter is the time after which a finding about a position must show again before it counts: a leader that has
	// just been elected may not know its own end yet.
	confirmAfter = 5 * time.Second
	// kafkaTimeout bounds a question to Kafka: the commits of the table wait behind it.
	kafkaTimeout = 10 * time.Second
)

// A resolver finds out where claims stand: in the table, and against Kafka's logs.
type resolver struct {
	*current

	kafka     kafka
	committer *committer                     // of first positions
	window    *window                        // of duplicates; nil if the table declares no identity
	start     map[string]connector.Start     // by topic
	rows      map[connector.RowsOf]rowsFound // for which partitions are held
	ends      map[connector.Partition]int64  // of all partitions of the topics, when they were first asked for
}

// kafka asks Kafka, with a deadline for each question.
type kafka struct {
	group connector.Group
	log   connector.Log
	guard *reliability.Guard
}

// resume finds where claims stand. Where the table has a position that is it; where it has none, START or a hold. The
// order of the looks matters: group offsets first, the snapshot after, so that a START that another member commits in
// between is seen.
//
// A question that Kafka does not answer in time holds the claims that it was about, and nobody else.
func (r *resolver) resume(ctx context.Context, claims map[connector.Partition]ResumeRequest) Outcome {
	result := map[connector.Partition]Found{}
	holdOne := func(p connector.Partition, reason hold.Reason, detail string) {
		result[p] = Found{Session: claims[p].Session, Hold: &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: -1}}
	}
	offsets, unanswered := r.kafka.groupOffsets(ctx, claims)
	s, err := r.table.Load(ctx)
	if err != nil {
		return r.committer.unsettled(ctx, nil, err)
	}
	r.snapshot = s
	if detail := plan.Replaced(r.snapshot, r.pipeline); detail != "" {
		ends, _ := r.kafka.bounds(ctx, positionsAt(slices.Collect(maps.Keys(claims)))) // only for the lag that is shown
		for p := range claims {
			holdOne(p, hold.TableReplaced, detail)
			f := result[p]
			f.Bounds = ends[p]
			result[p] = f
		}
		return Outcome{Kind: Resumed, Resumed: result}
	}
	if err := r.startMissing(ctx, claims, offsets, unanswered, holdOne); err != nil {
		if classify.Of(err) == classify.Fenced { // another member's START came first: its positions are ours now
			return r.resume(ctx, claims)
		}
		return r.committer.unsettled(ctx, nil, err)
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
		return r.committer.unsettled(ctx, nil, err)
	}
	if err := r.window.ready(ctx, claims, result); err != nil {
		return r.committer.unsettled(ctx, nil, err)
	}
	for p, f := range result {
		if o, ok := offsets[p.Topic][p.ID]; f.Hold == nil && (!ok || o != connector.GroupOffset{Next: f.At.Next, Epoch: f.At.Epoch}) {
			f.OffsetDiffers = true
			result[p] = f
			if ok && o.Next > f.At.Next {
				r.logger.WarnContext(ctx, "the group's offset is ahead of the table's position: the table was set back or restored, or the position was; the table decides",
					"topic", p.Topic, "partition", p.ID, "position", f.At.Next, "group_offset", o.Next)
			}
		}
	}
	return Outcome{Kind: Resumed, Resumed: result}
}

// epochBefore returns the leader epoch of what was read before a position, -1 if it is unknown. The table's word wins, also
// if that is "unknown": an operator who moved the position has looked. The reader's memory and the committed offset of the
// group speak for tables of a version that kept no epochs, and only about this very position.
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

// retry puts a question to Kafka. The error is a hold.Error if there was no answer.
func (k *kafka) retry(ctx context.Context, what string, op func(context.Context) error) error {
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
	return hold.New(hold.KafkaDown, "no answer about "+what, err)
}

// groupOffsets asks for the group's offsets of the claims' topics. They are a hint, except for a START: a topic without
// an answer is in unanswered.
func (k *kafka) groupOffsets(ctx context.Context, claims map[connector.Partition]ResumeRequest) (offsets map[string]map[int32]connector.GroupOffset, unanswered map[string]error) {
	offsets, unanswered = map[string]map[int32]connector.GroupOffset{}, map[string]error{}
	topics := map[string]bool{}
	for p := range claims {
		topics[p.Topic] = true
	}
	var mu sync.Mutex
	together(slices.Sorted(maps.Keys(topics)), func(topic string) {
		var of map[int32]connector.GroupOffset
		err := k.retry(ctx, "the group's offsets", func(ctx context.Context) (err error) {
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

// maxParallel is how many topics Kafka is asked about at once.
const maxParallel = 16

// together asks about topics, some at once: each question may stay without an answer for a while, and the commits of the
// table wait behind all of them.
func together(topics []string, ask func(topic string)) {
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

// startMissing commits a START for claims without a position, or holds them where it is not ours to decide: no txn is
// not first start.
func (r *resolver) startMissing(ctx context.Context, claims map[connector.Partition]ResumeRequest, offsets map[string]map[int32]connector.GroupOffset,
	unanswered map[string]error, holdOne func(connector.Partition, hold.Reason, string),
) error {
	missing, err := r.mayStart(claims, offsets, unanswered, holdOne)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	planned, failures := map[string]*plan.Initial{}, map[string]error{}
	together(slices.Sorted(maps.Keys(missing)), func(name string) {
		plan, err := r.planStart(ctx, name, slices.SortedFunc(slices.Values(missing[name]), connector.Partition.Compare))
		mu.Lock()
		defer mu.Unlock()
		planned[name], failures[name] = plan, err
	})
	r.withoutRows(ctx, planned, failures, holdOne)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		err := failures[name]
		if reason, detail, held := hold.Of(err); held {
			for _, p := range missing[name] {
				holdOne(p, reason, detail)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("START of topic %q: %w", name, err)
		}
		if len(planned[name].Positions) == 0 {
			continue // all of its partitions are held for their rows
		}
		plan := planned[name].Plan(r.snapshot, r.pipeline)
		s, err := r.committer.commit(ctx, plan, nil)
		if err != nil {
			return fmt.Errorf("START of topic %q: %w", name, err)
		}
		r.snapshot = s
		r.logger.InfoContext(ctx, "START", "topic", name, "from", r.start[name].String(), "partitions", len(plan.Next), "version", s.Version)
	}
	return nil
}

// mayStart returns the claims without a position whose START is ours to decide, as far as txns and committed offsets tell,
// by topic. It holds the others. Its error is none that a hold answers.
func (r *resolver) mayStart(claims map[connector.Partition]ResumeRequest, offsets map[string]map[int32]connector.GroupOffset, unanswered map[string]error,
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
			return nil, fmt.Errorf("START of topic %q: %w", p.Topic, err)
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

func (k *kafka) topic(ctx context.Context, name string) (topic connector.Topic, err error) {
	err = k.retry(ctx, "topic "+name, func(ctx context.Context) (err error) {
		topic, err = k.log.Topic(ctx, name)
		return err
	})
	return topic, err
}

// positionsAt asks for the ends alone.
func positionsAt(partitions []connector.Partition) []connector.Position {
	at := make([]connector.Position, len(partitions))
	for i, p := range partitions {
		at[i] = connector.Position{Partition: p, Next: -1, Epoch: -1}
	}
	return at
}

// bounds asks for the ends of partitions. With an error it returns what could be learnt; [unlearnt] tells the rest apart.
func (k *kafka) bounds(ctx context.Context, at []connector.Position) (map[connector.Partition]connector.Bounds, error) {
	bounds := map[connector.Partition]connector.Bounds{}
	var unread *connector.UnreadError
	err := k.retry(ctx, "the ends of partitions", func(ctx context.Context) error {
		got, err := k.log.Bounds(ctx, at)
		maps.Copy(bounds, got)
		if errors.As(err, &unread) {
			return nil // the cluster answers: a missing leader must not open the breaker that all questions stand behind
		}
		unread = nil
		return err
	})
	if err == nil && unread != nil {
		err = unread
	}
	return bounds, err
}

// unlearnt returns why an error of bounds leaves the ends of a partition open, as a hold.Error: nil if they are known, or if
// the partition is gone.
func unlearnt(err error, p connector.Partition) error {
	var unread *connector.UnreadError
	if !errors.As(err, &unread) {
		return err
	}
	cause := unread.Causes[p]
	if _, _, held := hold.Of(cause); cause == nil || held {
		return cause
	}
	return hold.New(hold.KafkaDown, "the ends of the partition cannot be learnt", cause)
}

// maxReadings is how often a position is compared with its log before a resume gives up: its leader keeps changing.
const maxReadings = 4

// findings holds positions against the ends of their partitions. A finding stands when it shows again after a while, at the
// same leader: one that was elected in between may not know its own end yet.
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
			if reason, detail, held := hold.Of(unlearnt(err, p)); held && !there {
				f.Hold = &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: pos.Next}
			} else if f.Hold = plan.Finding(pos, b, there); f.Hold != nil && !claims[p].knows(f.Hold.Reason) {
				seen, first := sighting{f.Hold.Reason, b.LeaderEpoch}, before[p]
				if seen != first && reading < maxReadings {
					before[p], doubtful = seen, append(doubtful, pos)
					continue
				}
				if seen != first {
					f.Hold = &hold.Hold{Partition: p, Reason: hold.KafkaDown, Detail: "its leader changes while the position is compared with the log", Offset: pos.Next}
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

// sighting is what one reading found wrong with a position, and the leader epoch in which it was read.
type sighting struct {
	reason hold.Reason
	epoch  int32
}

// knows tells whether a finding needs no second reading: the claim is held for it already, or paused.
func (q ResumeRequest) knows(reason hold.Reason) bool { return q.Paused || q.Standing == reason }
