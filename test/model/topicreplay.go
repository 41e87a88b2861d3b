package model

// This file models replays of dead letters through their topic, beside direct replays, discards and members: see ADR
// 20. It has one partition. The searches of World show that a commit acts as one compare-and-set, so it is one step
// here. The PUT of an announced commit may take effect at any later time, also after its process has ended.

// The bounds of every [TopicReplay].
const (
	maxLetters = 2 // dead letters of the partition
	maxIntents = 4 // intents in the operations log
	maxCopies  = 4 // records that replays produce to the topic
)

// TopicRule is a set of deviations from the protocol as built, one bit each; zero is the protocol.
type TopicRule uint16

// Mistakes. The search must find a violation for each.
const (
	OriginUnchecked    TopicRule = 1 << iota // the precondition of a member's commit does not compare the accepted origins
	AcceptedLater                            // a member records accepted origins in a commit after that of their rows
	GapAccepted                              // a member accepts an origin although one before it is missing
	ClosedIsUnknown                          // an origin of a closed intent counts as unknown, so its record becomes a row
	ProducedUnopened                         // a replay produces before the table shows that its intent is open
	WithdrawnUnchecked                       // a withdrawal does not compare the accepted origins
	WithdrawnByLog                           // a withdrawal is an entry of the operations log, without a commit
	ClosedWhenProduced                       // an intent is closed as replayed once its records are produced
	DirectBesideTopic                        // a direct replay takes dead letters of an open topic intent
	TopicBesideTopic                         // an intent is opened although another one of the partition is open
	DiscardedInTopic                         // an operator may discard a dead letter of an open topic intent
	ReplayedUnsettled                        // an intent continues one that was committed and whose outcome is not recorded
)

type intentKind uint8

const (
	noIntent   intentKind = iota
	direct                // its commit adds rows
	topical               // its commit opens the intent: members accept its origins
	withdrawal            // its commit closes an open intent, or makes sure that no earlier commit takes effect
)

type intentState uint8

const (
	undecided intentState = iota // announced, and without an outcome in the operations log
	refused                      // not committed
	opened                       // committed, and members accept its origins
	over                         // committed, and nothing is left to do
)

// replayIntent is an entry of the operations log. Its seq is its index plus 1.
type replayIntent struct {
	Kind    intentKind
	State   intentState
	After   int8  // the table's newest intent that its commit continues
	Letters uint8 // as bits
	Closes  int8  // of a withdrawal: the seq of the open intent that it closes, 0 for none
	Seen    int8  // of a withdrawal: how many origins of that intent the table had accepted
	// Next is the number of the dead letter that the process of this intent produces to the topic next, counted from 1.
	// It is 0 if the process has ended. Only intents of the kind topical have such a process.
	Next int8
}

// origins says in the table which dead letters have come back through the topic: the first Count of the dead letters of
// the intent with the number Intent. The table stores both in one txn.
type origins struct{ Intent, Count int8 }

// copied is the record of a dead letter that a replay has produced to the topic again. Its origin is the number of the
// intent and N, the number of the dead letter in that intent.
type copied struct{ Intent, N int8 }

// topicMember is the process that reads the topic and decides by the newest snapshot that it has read. The machine has
// only one: the precondition refuses the commit of a second one with an older position, as the searches of World show.
type topicMember struct {
	Reads    bool
	Position int8
	Accepted origins
	Late     origins // only with AcceptedLater: accepted origins that are not in the table yet
}

// chooser is a process that has decided on an intent after it read the table and the operations log. It has not yet
// appended the intent to the log.
type chooser struct {
	Kind    intentKind
	After   int8
	Letters uint8
	Closes  int8
	Seen    int8
}

// TopicState is a state of the machine.
type TopicState struct {
	// The operations log.
	Intents             [maxIntents]replayIntent
	Replayed, Discarded uint8 // dead letters, as bits
	// The table.
	Newest   int8 // the newest committed intent
	Position int8
	Accepted origins
	Direct   uint8             // dead letters with a row at their own offset
	Rows     [maxLetters]uint8 // rows of each, at most 2
	// The topic.
	Copies [maxCopies]copied

	Member   topicMember
	Choosers [2]chooser
	Discards uint8
	Err      uint8 // index into topicWords; 0 = no violation
}

const (
	letterTwice    = "a dead letter has two rows"
	discardedRow   = "a discarded dead letter has a row"
	replayedNoRow  = "a dead letter counts as replayed and has no row"
	releasedHasRow = "a dead letter with a row is free for another replay"
)

// TopicReplay is a machine of one partition with dead letters, a member and two replaying processes.
type TopicReplay struct {
	Rule TopicRule
	// Intents, Copies and Letters are the numbers of intents, of records in the topic and of dead letters: at most
	// maxIntents, maxCopies and maxLetters.
	Intents, Copies, Letters int8

	Discards uint8 // how many dead letters operators may discard
	Directs  bool  // whether direct replays take place, too
	Repeats  bool  // whether a produce request may be repeated or fail
}

func (w TopicReplay) is(r TopicRule) bool { return w.Rule&r != 0 }

// Init implements [Machine].
func (w TopicReplay) Init() TopicState { return TopicState{Discards: w.Discards} }

// Same implements [Machine]: the replaying processes are interchangeable.
func (w TopicReplay) Same(s TopicState) TopicState {
	s.Choosers[0], s.Choosers[1] = s.Choosers[1], s.Choosers[0]
	return s
}

// Bad implements [Machine].
func (w TopicReplay) Bad(s TopicState) string {
	for l := range maxLetters {
		bit := uint8(1) << l
		switch {
		case s.Rows[l] > 1:
			return letterTwice
		case s.Rows[l] > 0 && s.Discarded&bit != 0:
			return discardedRow
		case s.Rows[l] == 0 && s.Replayed&bit != 0:
			return replayedNoRow
		case s.Rows[l] > 0 && (s.Replayed|s.Direct|s.replaying(undecided)|s.replaying(opened))&bit == 0:
			return releasedHasRow
		}
	}
	return ""
}

// Done implements [Machine]: each dead letter is replayed or discarded, or the small world has no room for another
// intent or record.
func (w TopicReplay) Done(s TopicState) bool {
	return s.Replayed|s.Discarded == w.all() || s.count() == w.Intents || s.end() == w.Copies
}

// all returns all dead letters, as bits.
func (w TopicReplay) all() uint8 { return 1<<w.Letters - 1 }

// count returns the number of intents, which is the seq of the newest one.
func (s *TopicState) count() (n int8) {
	for n < maxIntents && s.Intents[n].Kind != noIntent {
		n++
	}
	return n
}

// end returns the end of the topic.
func (s *TopicState) end() (n int8) {
	for n < maxCopies && s.Copies[n].Intent != 0 {
		n++
	}
	return n
}

// replaying returns the dead letters of the intents in a state.
func (s *TopicState) replaying(state intentState) (letters uint8) {
	for _, i := range s.Intents {
		if i.State == state && i.Kind != noIntent {
			letters |= i.Letters
		}
	}
	return letters
}

// nth returns the nth of the dead letters in letters as one bit, counted from 1. It returns 0 if there are fewer than
// n.
func nth(letters uint8, n int8) uint8 {
	for l := range maxLetters {
		if bit := uint8(1) << l; letters&bit != 0 {
			if n--; n == 0 {
				return bit
			}
		}
	}
	return 0
}

// size returns the number of dead letters.
func size(letters uint8) (n int8) {
	for nth(letters, n+1) != 0 {
		n++
	}
	return n
}

// firstOf returns the first n of the dead letters in letters, or all if there are fewer.
func firstOf(letters uint8, n int8) (first uint8) {
	for i := int8(1); i <= n; i++ {
		first |= nth(letters, i)
	}
	return first
}

func (s *TopicState) addRow(letter uint8) {
	for l := range maxLetters {
		if letter == 1<<l {
			s.Rows[l] = min(s.Rows[l]+1, 2)
		}
	}
}

// topicDoer emits one step, whose effect is f on a copy of the state. who is the index of the chooser, -1 for none. x
// is what the step is about, for example an intent or an offset, -1 for none. calm is [Step.Calm].
type topicDoer func(what string, who, x int, calm uint8, f func(t *TopicState))

// Next implements [Machine].
func (w TopicReplay) Next(s TopicState, emit func(Step, TopicState)) {
	do := func(what string, who, x int, calm uint8, f func(t *TopicState)) {
		t := s
		f(&t)
		w.forget(&t)
		emit(Step{what, int8(who), int8(x), calm}, t)
	}
	for i := range s.count() {
		w.land(&s, i, do)
		w.settle(&s, i, do)
		w.produce(&s, i, do)
	}
	w.read(&s, do)
	for c := range s.Choosers {
		w.choose(&s, c, do)
		w.announce(&s, c, do)
	}
	free := ^(s.Replayed | s.Discarded | s.replaying(undecided))
	if !w.is(DiscardedInTopic) {
		free &^= s.replaying(opened)
	}
	for l := range maxLetters {
		if bit := uint8(1) << l & w.all(); s.Discards > 0 && free&bit != 0 && s.Direct&bit == 0 {
			do("an operator discards the dead letter", -1, l, 0, func(t *TopicState) {
				t.Discards--
				t.Discarded |= bit
			})
		}
	}
}

// forget clears what can have no effect any more, so that equal states look equal: the plans of intents that ended, and
// the snapshot of a member whose commits the precondition refuses because the table has changed.
func (w TopicReplay) forget(t *TopicState) {
	for i := range t.Intents {
		if in := &t.Intents[i]; in.State == refused || in.State == over {
			in.After, in.Closes, in.Seen = 0, 0, 0
		}
	}
	if x := &t.Member; x.Position != t.Position || x.Accepted != t.Accepted && x.Late == (origins{}) && !w.is(OriginUnchecked) {
		*x = topicMember{}
	}
}

// land emits the step in which the commit of an intent takes effect. It may come at any time after the intent, as long
// as the precondition holds.
func (w TopicReplay) land(s *TopicState, i int8, do topicDoer) {
	in, seq := s.Intents[i], i+1
	if in.State != undecided || in.Kind == withdrawal && w.is(WithdrawnByLog) && in.Closes != 0 || s.Newest != in.After || s.Newest >= seq {
		return
	}
	if in.Closes != 0 && !w.is(WithdrawnUnchecked) && s.Accepted != (origins{in.Closes, in.Seen}) {
		return
	}
	do("the commit of the intent lands", -1, int(seq), 2, func(t *TopicState) {
		switch t.Newest = seq; {
		case in.Kind == direct:
			t.Direct |= in.Letters
			for l := range maxLetters {
				t.addRow(in.Letters & (1 << l))
			}
		case in.Kind == topical, in.Closes != 0:
			t.Accepted = origins{seq, 0}
		}
	})
}

// settle emits the step in which a process records the outcome of intent i in the operations log. It emits nothing
// while the table does not show the outcome.
func (w TopicReplay) settle(s *TopicState, i int8, do topicDoer) {
	in, seq := s.Intents[i], i+1
	switch {
	case in.State == opened:
		produced := w.is(ClosedWhenProduced) && in.Next > size(in.Letters)
		if s.Accepted == (origins{seq, size(in.Letters)}) || produced {
			do("the intent is closed", -1, int(seq), 1, func(t *TopicState) { t.close(i, in.Letters) })
		}
	case in.State != undecided:
	case in.Kind == withdrawal && w.is(WithdrawnByLog) && in.Closes != 0:
		do("the intent is withdrawn in the operations log", -1, int(seq), 1, func(t *TopicState) { t.withdraw(i) })
	case s.Newest == seq:
		do("the intent was committed", -1, int(seq), 1, func(t *TopicState) {
			switch in.Kind {
			case direct:
				t.close(i, in.Letters)
			case topical:
				t.Intents[i].State = opened
				t.Intents[i].Next = max(in.Next, 1)
			default:
				t.withdraw(i)
			}
		})
	case s.Newest != in.After:
		do("the intent was not committed", -1, int(seq), 1, func(t *TopicState) { t.Intents[i].State, t.Intents[i].Next = refused, 0 })
	}
}

// close ends an intent. letters count as replayed; its other dead letters are free again.
func (s *TopicState) close(i int8, letters uint8) {
	s.Intents[i].State = over
	s.Replayed |= letters
}

// withdraw is what a withdrawal does once it is in the table: it ends, and it closes the open intent that its field
// Closes names, if there is one.
func (s *TopicState) withdraw(i int8) {
	in := s.Intents[i]
	s.Intents[i].State = over
	if in.Closes != 0 && s.Intents[in.Closes-1].State == opened {
		s.close(in.Closes-1, firstOf(s.Intents[in.Closes-1].Letters, in.Seen))
	}
}

// produce emits the steps of the process that produces the records of an open intent. It may continue after others have
// closed the intent.
func (w TopicReplay) produce(s *TopicState, i int8, do topicDoer) {
	in, seq, end := s.Intents[i], i+1, s.end()
	if in.Kind != topical || in.Next == 0 {
		return
	}
	do("the process of the intent ends", -1, int(seq), 0, func(t *TopicState) { t.Intents[i].Next = 0 })
	if in.Next > size(in.Letters) || end == w.Copies {
		return
	}
	do("an origin is produced", -1, int(in.Next), 3, func(t *TopicState) {
		t.Copies[end] = copied{seq, in.Next}
		t.Intents[i].Next++
	})
	if !w.Repeats {
		return
	}
	do("an origin is produced, and the request will be repeated", -1, int(in.Next), 0, func(t *TopicState) {
		t.Copies[end] = copied{seq, in.Next}
	})
	do("an origin is not produced, but the next one is", -1, int(in.Next), 0, func(t *TopicState) { t.Intents[i].Next++ })
}

// read emits the steps of the member.
func (w TopicReplay) read(s *TopicState, do topicDoer) {
	x := s.Member
	fresh := topicMember{Reads: true, Position: s.Position, Accepted: s.Accepted}
	if !x.Reads {
		do("the member resumes", -1, -1, 5, func(t *TopicState) { t.Member = fresh })
		return
	}
	if x.Late != (origins{}) {
		do("the member records the accepted origins", -1, -1, 4, func(t *TopicState) { t.Accepted, t.Member.Accepted, t.Member.Late = x.Late, x.Late, origins{} })
	}
	do("the member ends", -1, -1, 0, func(t *TopicState) { t.Member = topicMember{} })
	if x.Position != s.Position || x.Accepted != s.Accepted && !w.is(OriginUnchecked) {
		return // the precondition refuses its commits
	}
	for next := x.Position + 1; next <= s.end(); next++ {
		do("the member commits up to", -1, int(next), flagIf(next == s.end(), 4), func(t *TopicState) {
			for _, c := range s.Copies[x.Position:next] {
				w.accept(t, &x.Accepted, c)
			}
			t.Position = next
			y := topicMember{Reads: true, Position: next, Accepted: x.Accepted}
			switch {
			case x.Accepted == s.Member.Accepted:
			case w.is(AcceptedLater):
				y.Late = x.Accepted
			default:
				t.Accepted = x.Accepted
			}
			t.Member = y
			x = s.Member // for the next number of records
		})
	}
}

// flagIf returns rank if condition is true, otherwise 0. It computes [Step.Calm], which is 0 for a step that is not
// taken in runs without faults.
func flagIf(condition bool, rank uint8) uint8 {
	if condition {
		return rank
	}
	return 0
}

// accept decides about one record: it becomes a row and its origin counts as accepted, or it is dropped as a repeat, or
// its intent is unknown and it is an ordinary record.
func (w TopicReplay) accept(t *TopicState, at *origins, c copied) {
	letter := nth(t.Intents[c.Intent-1].Letters, c.N)
	switch {
	case c.Intent > at.Intent, c.Intent < at.Intent && w.is(ClosedIsUnknown):
		t.addRow(letter)
	case c.Intent == at.Intent && (c.N == at.Count+1 || c.N > at.Count && w.is(GapAccepted)):
		t.addRow(letter)
		at.Count = c.N
	}
}

// choose emits the steps in which a process reads the operations log and the table and decides what to announce.
func (w TopicReplay) choose(s *TopicState, c int, do topicDoer) {
	if s.Choosers[c].Kind != noIntent || s.count() == w.Intents {
		return
	}
	as := func(what string, calm uint8, x chooser) {
		x.After = s.Newest
		do(what, c, int(x.Letters), calm, func(t *TopicState) { t.Choosers[c] = x })
	}
	free := w.all() &^ (s.Replayed | s.Discarded | s.replaying(opened) | s.Direct)
	if w.is(DirectBesideTopic) {
		free |= w.all() &^ (s.Replayed | s.Discarded | s.Direct)
	}
	for letters := uint8(1); letters <= w.all(); letters++ {
		if letters&^free != 0 {
			continue
		}
		if w.Directs {
			as("chooses dead letters, direct", 0, chooser{Kind: direct, Letters: letters})
		}
		as("chooses dead letters, by topic", flagIf(letters == free && s.replaying(opened) == 0, 8), chooser{Kind: topical, Letters: letters})
	}
	for i, in := range s.Intents {
		switch {
		case in.State == opened && s.Accepted.Intent == int8(i)+1:
			as("is about to withdraw the open intent", 9, chooser{Kind: withdrawal, Closes: int8(i) + 1, Seen: s.Accepted.Count})
		case in.State == undecided && in.Kind != noIntent:
			as("is about to withdraw undecided intents", 0, chooser{Kind: withdrawal})
		}
	}
}

// announce emits the step in which a process appends its intent to the operations log, if the log as it is then allows
// it.
func (w TopicReplay) announce(s *TopicState, c int, do topicDoer) {
	x := s.Choosers[c]
	if x.Kind == noIntent {
		return
	}
	n := s.count()
	do("gives up", c, -1, 7, func(t *TopicState) { t.Choosers[c] = chooser{} })
	taken := s.Replayed | s.Discarded
	if x.Kind == topical || !w.is(DirectBesideTopic) {
		taken |= s.replaying(opened)
	}
	if n == w.Intents || x.Letters&taken != 0 {
		return
	}
	if x.After > 0 && s.Intents[x.After-1].State == undecided && !w.is(ReplayedUnsettled) {
		return
	}
	if x.Kind == topical && s.replaying(opened) != 0 && !w.is(TopicBesideTopic) {
		return
	}
	if x.Closes != 0 && s.Intents[x.Closes-1].State != opened {
		return
	}
	do("announces its intent", c, int(n)+1, flagIf(x.After == s.Newest, 6), func(t *TopicState) {
		in := replayIntent{Kind: x.Kind, After: x.After, Letters: x.Letters, Closes: x.Closes, Seen: x.Seen}
		if w.is(ProducedUnopened) && in.Kind == topical {
			in.Next = 1
		}
		t.Intents[n], t.Choosers[c] = in, chooser{}
	})
}
