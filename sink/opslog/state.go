package opslog

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/reliability/hold"
)

// State is the effect of all entries up to the head. It is immutable. The zero State is that of an empty log.
type State struct {
	head     Head
	pauses   map[Target]Paused
	floods   map[string]FloodAllowance // by topic
	forget   map[source]int64          // offset below which the fingerprints of a partition do not count
	rechecks map[Target]int64          // seq of the newest operation that members must act on at once
	flushes  map[Target]int64          // seq of the newest [Flush]
	letters  letterBook
	moved    map[string]int64     // by topic: seq of the newest [OffsetsIntent]
	moving   map[int64]Moving     // intents of moves without an outcome, by seq
	once     map[string]performed // operations by the hash of their key; those of the last [KeyLife]

	snapshot      int64 // seq of the newest [Snapshot] that this version can use
	snapshotTried int64 // seq of the newest [SnapshotPart]
}

// source identifies a partition by topic, topic id and number.
type source struct {
	topic, topicID string
	partition      int32
}

// Paused is a pause in force.
type Paused struct {
	Target   Target    `json:"target"`
	Since    time.Time `json:"since"`
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	Seq      int64     `json:"seq"` // seq of the entry
}

// Hold returns the hold that the pause causes.
func (p Paused) Hold() *hold.Hold {
	return &hold.Hold{
		Reason: hold.Paused, Detail: fmt.Sprintf("%s paused %s: %s", p.Operator, p.Target.String(), p.Reason),
		Since: p.Since, Offset: -1,
	}
}

// FloodAllowance is a [FloodAllow] with its operator and reason. It may have expired.
type FloodAllowance struct {
	Topic    string    `json:"topic"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	Seq      int64     `json:"seq"` // seq of the entry
}

// Head returns the last entry of the state.
func (s *State) Head() Head { return s.head }

// Paused reports whether a partition is paused, and returns the oldest pause that covers it: its own, its topic's, or
// that of everything.
func (s *State) Paused(topic string, partition int32) (first Paused, paused bool) {
	for _, t := range []Target{{topic, partition}, Topic(topic), All()} {
		if p, ok := s.pauses[t]; ok && (!paused || p.Seq < first.Seq) {
			first, paused = p, true
		}
	}
	return first, paused
}

// Covering returns the pauses that cover a target as a whole: its own, its topic's, and that of everything. The
// target is read again only after all of them have ended.
func (s *State) Covering(t Target) []Paused {
	return s.pausesWhere(func(p Paused) bool { return p.Target.covers(t) })
}

// Under returns the pauses that a resume of the target ends: its own and those of its parts.
func (s *State) Under(t Target) []Paused {
	return s.pausesWhere(func(p Paused) bool { return t.covers(p.Target) })
}

// Pauses returns all pauses: first the pause of everything, then the others by topic and partition.
func (s *State) Pauses() []Paused {
	return s.pausesWhere(func(Paused) bool { return true })
}

// FloodAllowed reports whether an operator allows any number of the topic's records to become dead letters at the
// time now. A nil State allows nothing.
func (s *State) FloodAllowed(topic string, now time.Time) bool {
	a, ok := s.FloodAllowance(topic)
	return ok && now.Before(a.Until)
}

// FloodAllowance returns the newest allowance of a topic, which may have expired.
func (s *State) FloodAllowance(topic string) (FloodAllowance, bool) {
	if s == nil {
		return FloodAllowance{}, false
	}
	a, ok := s.floods[topic]
	return a, ok
}

// Forgotten returns the offset of a partition below which fingerprints do not count, 0 if no operator reset them. It
// accepts a nil State.
func (s *State) Forgotten(topic, topicID string, partition int32) int64 {
	if s == nil {
		return 0
	}
	return s.forget[source{topic, topicID, partition}]
}

// RecheckRequested returns the seq of the newest operation after which members must check the holds of a partition at
// once: a [Recheck] that covers it, or an [OffsetsDone] that may have moved a position of its topic. It returns 0 if
// there is none, and for a nil State.
func (s *State) RecheckRequested(topic string, partition int32) (seq int64) {
	if s == nil {
		return 0
	}
	return max(s.rechecks[Target{topic, partition}], s.rechecks[Topic(topic)], s.rechecks[All()])
}

// FlushRequested returns the seq of the newest [Flush] that covers a topic, 0 if there is none, and for a nil State.
func (s *State) FlushRequested(topic string) (seq int64) {
	if s == nil {
		return 0
	}
	return max(s.flushes[Topic(topic)], s.flushes[All()])
}

// requested returns a copy of requests in which seq is the newest operation that concerns the targets.
func requested(requests map[Target]int64, seq int64, targets ...Target) map[Target]int64 {
	requests = copied(requests)
	for _, t := range targets {
		requests[t] = seq
	}
	return requests
}

// copied returns a copy of a map that the caller may add to; a nil map counts as an empty one.
func copied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

func (s *State) pausesWhere(want func(Paused) bool) (all []Paused) {
	for _, t := range slices.SortedFunc(maps.Keys(s.pauses), compareTargets) {
		if p := s.pauses[t]; want(p) {
			all = append(all, p)
		}
	}
	return all
}

// after returns the state with one more entry. A target that is already paused keeps the time and reason of its first
// pause.
func (s *State) after(e Entry) *State {
	next := *s
	next.head = e.Head()
	next.once = s.performedBefore(e)
	body, err := e.Decode()
	if err != nil {
		return &next // a kind of a later version has no effect: for all other kinds parse requires a known body
	}
	next.letters = s.letters.after(e, body)
	switch b := body.(type) {
	case Pause:
		next.pauses = copied(s.pauses)
		for _, t := range b.Targets {
			if _, already := next.pauses[t]; !already {
				next.pauses[t] = Paused{Target: t, Since: e.At, Operator: e.Operator, Reason: e.Reason, Seq: e.Seq}
			}
		}
	case Resume:
		next.pauses = maps.Clone(s.pauses)
		for _, t := range b.Targets {
			maps.DeleteFunc(next.pauses, func(paused Target, _ Paused) bool { return t.covers(paused) })
		}
	case OffsetsIntent:
		next.moved = copied(s.moved)
		topics := map[string]bool{}
		for _, m := range b.Moves {
			next.moved[m.Topic] = e.Seq
			topics[m.Topic] = true
		}
		next.moving = copied(s.moving)
		next.moving[e.Seq] = Moving{Since: e.At, Operator: e.Operator, Command: b.Command, topics: topics}
	case Recheck:
		next.rechecks = requested(s.rechecks, e.Seq, b.Targets...)
	case Flush:
		next.flushes = requested(s.flushes, e.Seq, b.Targets...)
	case OffsetsDone:
		next.moving = maps.Clone(s.moving)
		delete(next.moving, b.Intent)
		if b.Outcome != Conflict {
			for _, m := range b.Moves { // the topics of one table share their holds, and one command may name several of them
				next.rechecks = requested(next.rechecks, e.Seq, Topic(m.Topic))
			}
		}
	case FloodAllow:
		next.floods = copied(s.floods)
		next.floods[b.Topic] = FloodAllowance{
			Topic: b.Topic, Since: e.At, Until: b.Until, Operator: e.Operator, Reason: e.Reason, Seq: e.Seq,
		}
	case Snapshot:
		if b.Format == snapshotFormat {
			next.snapshot = e.Seq
		}
	case SnapshotPart:
		next.snapshotTried = e.Seq
	case Forget:
		next.forget = copied(s.forget)
		for _, below := range b.Below {
			next.forget[source{b.Topic, below.TopicID, below.Partition}] = below.Offset
		}
	}
	return &next
}
