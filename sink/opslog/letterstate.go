package opslog

import (
	"maps"
	"slices"
	"time"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

// LetterStates are the decisions of operators about the dead letters of one partition, each as a set of the offsets of
// their records. A dead letter in none of the sets is as the members wrote it. The sets of Discarded, Acknowledged and
// Replayed have no offset in common.
type LetterStates struct {
	Discarded    offsets.Set
	Acknowledged offsets.Set
	// Replayed are the dead letters whose records became rows by a replay.
	Replayed offsets.Set
	// Reproduced are those of Replayed whose records a replay produced to their topic again. Their rows have other
	// coordinates, so a search of the table does not find them.
	Reproduced offsets.Set
	// Replaying are the dead letters of a [ReplayIntent] that has no outcome or is open: whether their records become
	// rows is not decided.
	Replaying offsets.Set
	// Failed are the dead letters whose replay failed: Failed[0] once or more often, Failed[1] twice or more often, and
	// so on.
	Failed [MaxReplays]offsets.Set
}

// MaxReplays is the number of failed replays after which a dead letter is parked: replays leave it out unless an
// operator asks for parked ones.
const MaxReplays = 3

// Parked returns the dead letters whose replay failed [MaxReplays] times, and that nothing resolved.
func (l LetterStates) Parked() offsets.Set {
	return l.Failed[MaxReplays-1].Without(offsets.Union(l.Replayed, l.Discarded, l.Acknowledged))
}

// ParkedBy returns the dead letters that are not parked yet, and are once the replay of these ones has failed again.
func (l LetterStates) ParkedBy(failed offsets.Set) offsets.Set {
	before := l.Parked()
	failedAgain(&l, failed)
	return l.Parked().Without(before)
}

// Resolved returns the dead letters that count as resolved because the operations log says so: the discarded, the
// acknowledged and the reproduced ones. Other replayed ones are left out: they count as resolved because the table has
// rows with their coordinates.
func (l LetterStates) Resolved() offsets.Set {
	return offsets.Union(l.Discarded, l.Acknowledged, l.Reproduced)
}

// OpenReplay is a [ReplayIntent] without a [ReplayDone], or one with [ByTopic] that was committed and not closed.
type OpenReplay struct {
	ReplayIntent
	Seq      int64     `json:"seq"`
	Since    time.Time `json:"since"`
	Operator string    `json:"operator"`
}

// letterBook has the decisions about dead letters. Values are immutable, except while State.after makes a new one.
type letterBook struct {
	sources map[idempotency.Partition]LetterStates
	open    map[int64]OpenReplay // the replays without an outcome, by the seq of their intent
	topical map[int64]OpenReplay // the replays whose records members accept, by the seq of their intent
	changed int64                // seq of the last entry that changed the book
}

// Letters returns the decisions about the dead letters of a partition. It accepts a nil State.
func (s *State) Letters(p idempotency.Partition) LetterStates {
	if s == nil {
		return LetterStates{}
	}
	states := s.letters.sources[p]
	for _, all := range []map[int64]OpenReplay{s.letters.open, s.letters.topical} {
		for _, open := range all {
			states.Replaying = offsets.Union(states.Replaying, open.Of(p))
		}
	}
	return states
}

// Of returns the dead letters of a partition in the intent.
func (o *OpenReplay) Of(p idempotency.Partition) (at offsets.Set) {
	for _, l := range o.Letters {
		if l.Source() == p {
			at = offsets.Union(at, l.Offsets)
		}
	}
	return at
}

// LettersChanged returns the seq of the newest entry that changed the state of a dead letter, 0 if there is none. It
// accepts a nil State.
func (s *State) LettersChanged() int64 {
	if s == nil {
		return 0
	}
	return s.letters.changed
}

// Replayed returns the number of dead letters that replays turned into rows, by the topic of the records. It accepts a
// nil State.
func (s *State) Replayed() map[string]int64 {
	all := map[string]int64{}
	if s == nil {
		return all
	}
	for p, states := range s.letters.sources {
		if n := states.Replayed.Len(); n > 0 {
			all[p.Topic] += n
		}
	}
	return all
}

// OpenReplays returns the intents of a table that have no outcome yet, the oldest first.
func (s *State) OpenReplays(table string) []OpenReplay { return ofTable(s.letters.open, table) }

// TopicReplays returns the intents of a table that are open: members accept the records of their dead letters. The
// oldest comes first.
func (s *State) TopicReplays(table string) []OpenReplay { return ofTable(s.letters.topical, table) }

func ofTable(intents map[int64]OpenReplay, table string) (all []OpenReplay) {
	for _, seq := range slices.Sorted(maps.Keys(intents)) {
		if open := intents[seq]; open.Table == table {
			all = append(all, open)
		}
	}
	return all
}

// LastMove returns the seq of the newest intent to move a position of a topic, 0 if there is none. A replay compares
// its records with the table. It starts over if LastMove has changed since then.
func (s *State) LastMove(topic string) int64 { return s.moved[topic] }

// Moving is an [OffsetsIntent] without an [OffsetsDone].
type Moving struct {
	Since    time.Time
	Operator string
	Command  string

	topics map[string]bool
}

// OpenMove returns the newest intent to move a position of a topic that has no outcome yet; false if there is none.
func (s *State) OpenMove(topic string) (m Moving, open bool) {
	newest := int64(0)
	for seq, moving := range s.moving {
		if seq > newest && moving.topics[topic] {
			newest, m = seq, moving
		}
	}
	return m, newest > 0
}

// replayed marks dead letters as replayed.
func replayed(l *LetterStates, at offsets.Set) {
	l.Replayed = offsets.Union(l.Replayed, at)
	l.Acknowledged, l.Discarded = l.Acknowledged.Without(at), l.Discarded.Without(at)
}

// reproduced marks dead letters as replayed through their topic.
func reproduced(l *LetterStates, at offsets.Set) {
	replayed(l, at)
	l.Reproduced = offsets.Union(l.Reproduced, at)
}

// failedAgain counts one more failed replay for each of the dead letters.
func failedAgain(l *LetterStates, at offsets.Set) {
	for i := range l.Failed {
		again := at.Within(l.Failed[i])
		l.Failed[i] = offsets.Union(l.Failed[i], at)
		at = again
	}
}

// after returns the book with the effect of one more entry.
func (b letterBook) after(e Entry, body Body) letterBook {
	change := func(all []Letters, change func(*LetterStates, offsets.Set)) {
		b.sources = copied(b.sources)
		for _, l := range all {
			states := b.sources[l.Source()]
			change(&states, l.Offsets)
			b.sources[l.Source()] = states
		}
		b.changed = e.Seq
	}
	switch body := body.(type) {
	case Discard:
		change(body.Letters, func(l *LetterStates, at offsets.Set) {
			l.Discarded, l.Acknowledged = offsets.Union(l.Discarded, at.Without(l.Replayed)), l.Acknowledged.Without(at)
		})
	case Acknowledge:
		change(body.Letters, func(l *LetterStates, at offsets.Set) {
			l.Acknowledged = offsets.Union(l.Acknowledged, at.Without(offsets.Union(l.Replayed, l.Discarded)))
		})
	case Reopen:
		change(body.Letters, func(l *LetterStates, at offsets.Set) {
			l.Discarded, l.Acknowledged = l.Discarded.Without(at), l.Acknowledged.Without(at)
		})
	case ReplayFailed:
		change(body.Letters, failedAgain)
	case ReplayIntent:
		b.open = copied(b.open)
		b.open[e.Seq] = OpenReplay{ReplayIntent: body, Seq: e.Seq, Since: e.At, Operator: e.Operator}
		b.changed = e.Seq
	case ReplayDone:
		open, there := b.open[body.Intent]
		if !there { // another program has recorded the outcome already
			return b
		}
		b.open = maps.Clone(b.open)
		delete(b.open, body.Intent)
		b.changed = e.Seq
		if body.Outcome != Committed {
			return b
		}
		b.topical = copied(b.topical)
		switch {
		case open.Mode == ByTopic:
			b.topical[open.Seq] = open
		case open.Withdraws > 0:
			change(open.Accepted, reproduced)
			delete(b.topical, open.Withdraws)
		default:
			change(open.Letters, replayed)
		}
	case ReplayClosed:
		open, there := b.topical[body.Intent]
		if !there { // another program has closed or withdrawn it already
			return b
		}
		b.topical = maps.Clone(b.topical)
		delete(b.topical, body.Intent)
		change(open.Letters, reproduced)
	}
	return b
}
