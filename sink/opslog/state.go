package opslog

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/reliability/hold"
)

// State is what the log says up to its head. It is immutable; the zero State is that of the empty log.
type State struct {
	head     Head
	pauses   map[Target]Paused
	floods   map[string]FloodAllowance // by topic
	forget   map[source]int64          // the offset below which fingerprints are forgotten
	rechecks map[Target]int64          // seq of the newest operation that members should act on at once
}

// source is a partition of a topic as it exists.
type source struct {
	topic, topicID string
	partition      int32
}

// Paused is a pause that stands.
type Paused struct {
	Target   Target    `json:"target"`
	Since    time.Time `json:"since"`
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	Seq      int64     `json:"seq"` // of the entry
}

// Hold returns the hold of what is paused.
func (p Paused) Hold() *hold.Hold {
	return &hold.Hold{
		Reason: hold.Paused, Detail: fmt.Sprintf("%s paused %s: %s", p.Operator, p.Target.String(), p.Reason),
		Since: p.Since, Offset: -1,
	}
}

// FloodAllowance is a [FloodAllow] with who wrote it and why. It may be over.
type FloodAllowance struct {
	Topic    string    `json:"topic"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	Seq      int64     `json:"seq"` // of the entry
}

// Head returns the last entry that the state knows of.
func (s *State) Head() Head { return s.head }

// Paused tells whether a partition is paused and why: by itself, with its topic, or with everything, whichever came first.
func (s *State) Paused(topic string, partition int32) (first Paused, paused bool) {
	for _, t := range []Target{{topic, partition}, Topic(topic), All()} {
		if p, ok := s.pauses[t]; ok && (!paused || p.Seq < first.Seq) {
			first, paused = p, true
		}
	}
	return first, paused
}

// Covering returns the pauses of a target as a whole: its own, and those of what it is part of. All of them must end
// before anything of it goes on.
func (s *State) Covering(t Target) []Paused {
	return s.pausesWhere(func(p Paused) bool { return p.Target.covers(t) })
}

// Under returns the pauses that resuming a target ends: its own, and those of its parts.
func (s *State) Under(t Target) []Paused {
	return s.pausesWhere(func(p Paused) bool { return t.covers(p.Target) })
}

// Pauses returns all pauses, everything first, then by topic and partition.
func (s *State) Pauses() []Paused {
	return s.pausesWhere(func(Paused) bool { return true })
}

// FloodAllowed tells whether an operator allows that any number of a topic's records become dead letters now. The nil
// State, of a log that nobody has read yet, allows nothing.
func (s *State) FloodAllowed(topic string, now time.Time) bool {
	a, ok := s.FloodAllowance(topic)
	return ok && now.Before(a.Until)
}

// FloodAllowance returns the newest allowance of a topic, which may be over.
func (s *State) FloodAllowance(topic string) (FloodAllowance, bool) {
	if s == nil {
		return FloodAllowance{}, false
	}
	a, ok := s.floods[topic]
	return a, ok
}

// Forgotten is the offset of a partition below which its fingerprints are forgotten, 0 if an operator never said so. The nil
// State has forgotten nothing.
func (s *State) Forgotten(topic, topicID string, partition int32) int64 {
	if s == nil {
		return 0
	}
	return s.forget[source{topic, topicID, partition}]
}

// RecheckRequested returns the seq of the newest operation after which members check a partition at once: a [Recheck] of it, or an
// [OffsetsDone] that may have moved a position of its topic. 0 if there is none; the nil State has none.
func (s *State) RecheckRequested(topic string, partition int32) (seq int64) {
	if s == nil {
		return 0
	}
	return max(s.rechecks[Target{topic, partition}], s.rechecks[Topic(topic)], s.rechecks[All()])
}

// requestRecheck notes an operation that members act on at once.
func (s *State) requestRecheck(seq int64, targets ...Target) {
	s.rechecks = maps.Clone(s.rechecks)
	if s.rechecks == nil {
		s.rechecks = map[Target]int64{}
	}
	for _, t := range targets {
		s.rechecks[t] = seq
	}
}

func (s *State) pausesWhere(want func(Paused) bool) (all []Paused) {
	for _, t := range slices.SortedFunc(maps.Keys(s.pauses), compareTargets) {
		if p := s.pauses[t]; want(p) {
			all = append(all, p)
		}
	}
	return all
}

// after returns the state with one more entry. What is paused already stays as it was: since and why do not change.
func (s *State) after(e Entry) *State {
	next := &State{head: e.Head(), pauses: s.pauses, floods: s.floods, forget: s.forget, rechecks: s.rechecks}
	body, err := e.Decode()
	if err != nil {
		return next // of a later version: parse lets nothing else through
	}
	switch b := body.(type) {
	case Pause:
		next.pauses = maps.Clone(s.pauses)
		if next.pauses == nil {
			next.pauses = map[Target]Paused{}
		}
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
	case Recheck:
		next.requestRecheck(e.Seq, b.Targets...)
	case OffsetsDone:
		if b.Outcome != Conflict {
			for _, m := range b.Moves { // topics of one table share their holds, and a command names several
				next.requestRecheck(e.Seq, Topic(m.Topic))
			}
		}
	case FloodAllow:
		next.floods = maps.Clone(s.floods)
		if next.floods == nil {
			next.floods = map[string]FloodAllowance{}
		}
		next.floods[b.Topic] = FloodAllowance{
			Topic: b.Topic, Since: e.At, Until: b.Until, Operator: e.Operator, Reason: e.Reason, Seq: e.Seq,
		}
	case Forget:
		next.forget = maps.Clone(s.forget)
		if next.forget == nil {
			next.forget = map[source]int64{}
		}
		for _, below := range b.Below {
			next.forget[source{b.Topic, below.TopicID, below.Partition}] = below.Offset
		}
	}
	return next
}
