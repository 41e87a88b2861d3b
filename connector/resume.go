package connector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
)

const (
	// secondLook is the time after which a finding about a position must show again before it counts: a leader that has
	// just been elected may not know its own end yet.
	secondLook = 5 * time.Second
	// askFor bounds a question to Kafka: the commits of the table wait behind it.
	askFor = 10 * time.Second
)

// resume finds where claims stand. Where the table has a position that is it; where it has none, START or a hold. The
// order of the looks matters: group offsets first, the snapshot after, so that a START that another member commits in
// between is seen.
//
// A question that Kafka does not answer in time holds the claims that it was about, and nobody else.
func (w *writer) resume(ctx context.Context, claims map[Partition]resumeRequest) outcome {
	result := map[Partition]found{}
	holdOne := func(p Partition, reason hold.Reason, detail string) {
		result[p] = found{session: claims[p].session, hold: &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: -1}}
	}
	offsets, unanswered := w.groupOffsets(ctx, claims)
	s, err := w.table.Load(ctx)
	if err != nil {
		return w.unsettled(ctx, nil, err)
	}
	w.snapshot = s
	if detail := Replaced(w.snapshot, w.pipeline); detail != "" {
		ends, _ := w.bounds(ctx, positionsAt(slices.Collect(maps.Keys(claims)))) // only for the lag that is shown
		for p := range claims {
			holdOne(p, hold.TableReplaced, detail)
			f := result[p]
			f.bounds = ends[p]
			result[p] = f
		}
		return outcome{kind: resumed, resumed: result}
	}
	if err := w.startMissing(ctx, claims, offsets, unanswered, holdOne); err != nil {
		if classify.Of(err) == classify.Fenced { // another member's START came first: its positions are ours now
			return w.resume(ctx, claims)
		}
		return w.unsettled(ctx, nil, err)
	}
	var at []Position
	for p := range claims {
		next, known := w.snapshot.Positions[p.AppID(w.pipeline)]
		switch {
		case known:
			at = append(at, Position{p, next, w.epochBefore(p, next, claims[p].last, offsets[p.Topic])})
		case result[p].hold == nil:
			holdOne(p, hold.KafkaDown, "the cluster's metadata do not show this partition yet")
		}
	}
	if err := w.findings(ctx, at, claims, result); err != nil {
		return w.unsettled(ctx, nil, err)
	}
	if err := w.ready(ctx, claims, result); err != nil {
		return w.unsettled(ctx, nil, err)
	}
	for p, f := range result {
		if o, ok := offsets[p.Topic][p.ID]; f.hold == nil && (!ok || o != GroupOffset{f.at.Next, f.at.Epoch}) {
			f.mend = true
			result[p] = f
			if ok && o.Next > f.at.Next {
				w.logger.WarnContext(ctx, "the group's offset is ahead of the table's position: the table was set back or restored, or the position was; the table decides",
					"topic", p.Topic, "partition", p.ID, "position", f.at.Next, "group_offset", o.Next)
			}
		}
	}
	return outcome{kind: resumed, resumed: result}
}

// epochBefore returns the leader epoch of what was read before a position, -1 if it is unknown. The table's word wins, also
// if that is "unknown": an operator who moved the position has looked. The reader's memory and the committed offset of the
// group speak for tables of a version that kept no epochs, and only about this very position.
func (w *writer) epochBefore(p Partition, next int64, last Position, offsets map[int32]GroupOffset) int32 {
	if epoch, kept := w.snapshot.Epoch(w.pipeline, p); kept {
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

// ask puts a question to Kafka. The error is a hold.Error if there was no answer.
func (w *writer) ask(ctx context.Context, what string, op func(context.Context) error) error {
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	err := w.kafka.Do(asking, op)
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

// Replaced says why the table is not the one that a pipeline wrote, or "".
func Replaced(s *Snapshot, pipeline string) string {
	if _, marked := s.Positions[idempotency.TableAppID(pipeline, s.TableID)]; marked {
		return ""
	}
	for appID := range s.Positions {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.Pipeline == pipeline {
			return fmt.Sprintf("pipeline %q wrote another table here; the one with id %s was not started by it", pipeline, s.TableID)
		}
	}
	return ""
}

// groupOffsets asks for the group's offsets of the claims' topics. They are a hint, except for a START: a topic without
// an answer is in unanswered.
func (w *writer) groupOffsets(ctx context.Context, claims map[Partition]resumeRequest) (offsets map[string]map[int32]GroupOffset, unanswered map[string]error) {
	offsets, unanswered = map[string]map[int32]GroupOffset{}, map[string]error{}
	topics := map[string]bool{}
	for p := range claims {
		topics[p.Topic] = true
	}
	var mu sync.Mutex
	together(slices.Sorted(maps.Keys(topics)), func(topic string) {
		var of map[int32]GroupOffset
		err := w.ask(ctx, "the group's offsets", func(ctx context.Context) (err error) {
			of, err = w.group.Offsets(ctx, topic)
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

// askAtOnce is how many topics Kafka is asked about at once.
const askAtOnce = 16

// together asks about topics, some at once: each question may stay without an answer for a while, and the commits of the
// table wait behind all of them.
func together(topics []string, ask func(topic string)) {
	var asking sync.WaitGroup
	room := make(chan struct{}, askAtOnce)
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
func (w *writer) startMissing(ctx context.Context, claims map[Partition]resumeRequest, offsets map[string]map[int32]GroupOffset,
	unanswered map[string]error, holdOne func(Partition, hold.Reason, string),
) error {
	missing, err := w.mayStart(claims, offsets, unanswered, holdOne)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	planned, failures := map[string]*initial{}, map[string]error{}
	together(slices.Sorted(maps.Keys(missing)), func(name string) {
		plan, err := w.planStart(ctx, name, slices.SortedFunc(slices.Values(missing[name]), Partition.Compare))
		mu.Lock()
		defer mu.Unlock()
		planned[name], failures[name] = plan, err
	})
	w.withoutRows(ctx, planned, failures, holdOne)
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
		if len(planned[name].starts) == 0 {
			continue // all of its partitions are held for their rows
		}
		plan := planned[name].plan(w.snapshot, w.pipeline)
		s, err := w.commit(ctx, plan, nil)
		if err != nil {
			return fmt.Errorf("START of topic %q: %w", name, err)
		}
		w.snapshot = s
		w.logger.InfoContext(ctx, "START", "topic", name, "from", w.start[name].String(), "partitions", len(plan.Next), "version", s.Version)
	}
	return nil
}

// mayStart returns the claims without a position whose START is ours to decide, as far as txns and committed offsets tell,
// by topic. It holds the others. Its error is none that a hold answers.
func (w *writer) mayStart(claims map[Partition]resumeRequest, offsets map[string]map[int32]GroupOffset, unanswered map[string]error,
	holdOne func(Partition, hold.Reason, string),
) (map[string][]Partition, error) {
	missing, known := map[string][]Partition{}, map[string][]past{}
	for _, p := range slices.SortedFunc(maps.Keys(claims), Partition.Compare) {
		if _, ok := w.snapshot.Positions[p.AppID(w.pipeline)]; ok {
			continue
		}
		if _, ok := known[p.Topic]; !ok {
			known[p.Topic] = history(w.snapshot, p.Topic)
		}
		reason, detail, held := hold.Of(unanswered[p.Topic])
		if err := unanswered[p.Topic]; err != nil && !held {
			return nil, fmt.Errorf("START of topic %q: %w", p.Topic, err)
		}
		if !held {
			reason, detail = judgePast(p, w.snapshot, known[p.Topic], offsets[p.Topic], w.pipeline)
		}
		if reason != "" {
			holdOne(p, reason, detail)
			continue
		}
		missing[p.Topic] = append(missing[p.Topic], p)
	}
	return missing, nil
}

// added reports whether a partition without a txn belongs to a topic of which the table has positions: the first START of
// the topic was made, by this pipeline and for this cluster and topic id.
func added(p Partition, known []past, pipeline string) bool {
	return slices.ContainsFunc(known, func(h past) bool {
		return h.Pipeline == pipeline && h.Partition.Cluster == p.Cluster && h.Partition.TopicID == p.TopicID
	})
}

// judgePast says why a claim without a txn may not START by itself, or "". Its rows are not looked at: see [RowsBefore].
func judgePast(p Partition, s *Snapshot, known []past, offsets map[int32]GroupOffset, pipeline string) (hold.Reason, string) {
	if added(p, known, pipeline) {
		if o, ok := offsets[p.ID]; ok {
			return hold.UnknownHistory, fmt.Sprintf("the table has no position for %v, but the group has offset %d", p, o.Next)
		}
		return "", ""
	}
	for _, h := range known {
		switch {
		case h.Pipeline != pipeline:
		case h.Partition.Cluster != p.Cluster:
			return hold.ClusterChanged, fmt.Sprintf("the table was filled from cluster %q, this is %q", h.Partition.Cluster, p.Cluster)
		default:
			return hold.TopicRecreated, fmt.Sprintf("the table was filled from topic id %v, topic %q now has id %v", h.Partition.TopicID, p.Topic, p.TopicID)
		}
	}
	if len(known) > 0 {
		return hold.UnknownHistory, fmt.Sprintf("pipeline %q has written topic %q into this table", known[0].Pipeline, p.Topic)
	}
	if len(offsets) > 0 {
		detail := fmt.Sprintf("the table has no position for topic %q, but the group has offsets for %d of its partitions", p.Topic, len(offsets))
		if len(s.Positions) == 0 {
			detail += ": the table does not exist or is empty, so its folder was deleted, or another program has used the group"
		}
		return hold.UnknownHistory, detail
	}
	return "", ""
}

func (w *writer) topic(ctx context.Context, name string) (topic Topic, err error) {
	err = w.ask(ctx, "topic "+name, func(ctx context.Context) (err error) {
		topic, err = w.log.Topic(ctx, name)
		return err
	})
	return topic, err
}

// all returns the partitions of a topic.
func (t Topic) all() []Partition {
	all := make([]Partition, len(t.Partitions))
	for i, id := range t.Partitions {
		all[i] = Partition{Cluster: t.Cluster, Topic: t.Name, TopicID: t.ID, ID: id}
	}
	return all
}

// positionsAt asks for the ends alone.
func positionsAt(partitions []Partition) []Position {
	at := make([]Position, len(partitions))
	for i, p := range partitions {
		at[i] = Position{p, -1, -1}
	}
	return at
}

// bounds asks for the ends of partitions. With an error it returns what could be learnt; [unlearnt] tells the rest apart.
func (w *writer) bounds(ctx context.Context, at []Position) (map[Partition]Bounds, error) {
	bounds := map[Partition]Bounds{}
	var unread *UnreadError
	err := w.ask(ctx, "the ends of partitions", func(ctx context.Context) error {
		got, err := w.log.Bounds(ctx, at)
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
func unlearnt(err error, p Partition) error {
	var unread *UnreadError
	if !errors.As(err, &unread) {
		return err
	}
	cause := unread.Causes[p]
	if _, _, held := hold.Of(cause); cause == nil || held {
		return cause
	}
	return hold.New(hold.KafkaDown, "the ends of the partition cannot be learnt", cause)
}

// mostReadings is how often a position is compared with its log before a resume gives up: its leader keeps changing.
const mostReadings = 4

// findings holds positions against the ends of their partitions. A finding stands when it shows again after a while, at the
// same leader: one that was elected in between may not know its own end yet.
func (w *writer) findings(ctx context.Context, at []Position, claims map[Partition]resumeRequest, result map[Partition]found) error {
	before := map[Partition]sighting{}
	for reading := 1; len(at) > 0; reading++ {
		bounds, err := w.bounds(ctx, at)
		if ctx.Err() != nil {
			return err
		}
		var doubtful []Position
		for _, pos := range at {
			p := pos.Partition
			b, there := bounds[p]
			f := found{session: claims[p].session, at: pos, bounds: b}
			if reason, detail, held := hold.Of(unlearnt(err, p)); held && !there {
				f.hold = &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: pos.Next}
			} else if f.hold = finding(pos, b, there); f.hold != nil && !claims[p].knows(f.hold.Reason) {
				seen, first := sighting{f.hold.Reason, b.LeaderEpoch}, before[p]
				if seen != first && reading < mostReadings {
					before[p], doubtful = seen, append(doubtful, pos)
					continue
				}
				if seen != first {
					f.hold = &hold.Hold{Partition: p, Reason: hold.KafkaDown, Detail: "its leader changes while the position is compared with the log", Offset: pos.Next}
				}
			}
			result[p] = f
		}
		if at = doubtful; len(at) > 0 {
			if err := reliability.Wait(ctx, secondLook); err != nil {
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
func (q resumeRequest) knows(reason hold.Reason) bool { return q.paused || q.standing == reason }

// finding says why a position cannot be read from, or nil.
func finding(at Position, b Bounds, there bool) *hold.Hold {
	holdAt := func(reason hold.Reason, format string, args ...any) *hold.Hold {
		return &hold.Hold{Partition: at.Partition, Reason: reason, Detail: fmt.Sprintf(format, args...), Offset: at.Next}
	}
	switch {
	case !there:
		return holdAt(hold.TopicRecreated, "topic %q is gone or was created again; the table stands at offset %d of topic id %v",
			at.Partition.Topic, at.Next, at.Partition.TopicID)
	case at.Next < b.LogStart:
		return holdAt(hold.BehindLogStart, "offsets [%d, %d) were deleted before they were read", at.Next, b.LogStart)
	case at.Next > b.HighWatermark:
		return holdAt(hold.AheadOfLogEnd, "the table stands at offset %d, the log ends at %d", at.Next, b.HighWatermark)
	case b.DivergedAt >= 0 && b.DivergedAt < at.Next:
		return holdAt(hold.Truncated, "the log was truncated: what was read differs from offset %d on", b.DivergedAt)
	}
	return nil
}
