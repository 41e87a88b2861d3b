package model

// This file models the log of one Kafka partition, whose new leader may lack the newest records, and a table that is
// filled from it. The searches of World show that a commit acts as one compare-and-set, so it is one step here.

const (
	maxOffset = 4  // records of the partition
	maxEpoch  = 3  // leader epochs
	unset     = -1 // stands for no record, no row or no epoch
)

// EpochRule is a set of deviations from the protocol as built, one bit each; zero is the protocol.
type EpochRule uint8

// Mistakes. The search must find a violation for each.
const (
	EpochOfGroupOffset EpochRule = 1 << iota // a resume knows the epoch of its position only if the committed offset equals it
	NoLastFetchedEpoch                       // a fetch does not tell the broker the epoch of the record before its offset
	EpochOfBatchEnd                          // a commit that ends before a poison record stores the epoch of the last record that was read
	EpochOfPoison                            // such a commit stores the epoch of the poison record
	EpochUnknown                             // such a commit stores no epoch
	ResumeUnchecked                          // a resume compares the position with the log's end, but not its epoch
)

// Epochs is a machine of one partition whose leader changes.
type Epochs struct {
	Rule      EpochRule
	Elections uint8 // how many leaders are elected; each has a prefix of the log, possibly all of it
	Poison    int8  // offset of the poison record that holds the partition; -1 for none
}

// epochMember is a process that reads the partition.
type epochMember struct {
	Reads     bool
	From, Pos int8            // the offsets in its batch are [From, Pos)
	Epoch     int8            // leader epoch of the record before Pos, unset if unknown
	Batch     [maxOffset]int8 // leader epochs of the batch's records, by offset
}

// EpochState is a state of the machine. A record is identified by its offset and its leader epoch.
type EpochState struct {
	End, Leader      int8
	Log              [maxOffset]int8 // leader epoch of the record at each offset
	First            [maxEpoch]int8  // first offset of each leader epoch, unset if the log has no record of it
	Born, Before     [maxEpoch]int8  // of each leader epoch that ever existed: its first offset, and the epoch of the record before it
	Txn, Epoch       int8            // the table's position and the epoch stored beside it
	Rows             [maxOffset]int8 // leader epoch of the record whose row the table has
	Group, GroupEpch int8            // the committed offset, and the epoch in its metadata
	M                [2]epochMember
	Elections        uint8
	Fixed            bool  // the poison record was fixed, so it no longer holds the partition
	Err              uint8 // index into epochWords; 0 = no violation
}

// The violations of this machine.
const (
	pastTruncation = "a commit continues after a truncation"
	falseTruncated = "held as truncated, but no record was lost"
)

var epochWords = [...]string{1: pastTruncation, 2: falseTruncated}

func noEpochs() (e [maxOffset]int8) {
	for i := range e {
		e[i] = unset
	}
	return e
}

// Init implements [Machine].
func (w Epochs) Init() EpochState {
	s := EpochState{Log: noEpochs(), Rows: noEpochs(), Epoch: unset, Group: absent, GroupEpch: unset, Elections: w.Elections}
	for i := range s.First {
		s.First[i], s.Born[i], s.Before[i] = unset, unset, unset
	}
	s.First[0], s.Born[0] = 0, 0
	for i := range s.M {
		s.M[i] = newEpochMember()
	}
	return s
}

// newEpochMember returns a member without a position.
func newEpochMember() epochMember { return epochMember{Epoch: unset, Batch: noEpochs()} }

// Same implements [Machine]: the two members are interchangeable.
func (w Epochs) Same(s EpochState) EpochState {
	s.M[0], s.M[1] = s.M[1], s.M[0]
	return s
}

// Bad implements [Machine].
func (w Epochs) Bad(s EpochState) string { return epochWords[s.Err] }

// Done implements [Machine]. It returns true if the table has all records up to the one that holds the partition, or if
// the table has rows of lost records, so that only an operator can continue.
func (w Epochs) Done(s EpochState) bool { return s.Txn == w.holdAt(&s) || s.lost() }

// holdAt returns the offset of the record that holds the partition, or the end of the log.
func (w Epochs) holdAt(s *EpochState) int8 {
	if w.Poison >= 0 && !s.Fixed {
		return w.Poison
	}
	return maxOffset
}

// lost reports whether the table has rows of records that the log has lost.
func (s *EpochState) lost() bool {
	for o := range s.Txn {
		if o >= s.End || s.Rows[o] != s.Log[o] {
			return true
		}
	}
	return false
}

// endOf returns the leader's response to OffsetsForLeaderEpoch with e: the newest epoch of its log that is not newer
// than e, and the offset where that epoch ends. The epoch is unset if the log has none.
func (s *EpochState) endOf(e int8) (epoch, end int8) {
	epoch, end = unset, s.End
	for i, first := range s.First {
		switch {
		case first == unset:
		case int8(i) <= e:
			epoch = int8(i)
		default:
			return epoch, first
		}
	}
	return epoch, end
}

// Next implements [Machine].
func (w Epochs) Next(s EpochState, emit func(Step, EpochState)) {
	do := func(what string, m, x int, calm uint8, f func(t *EpochState, y *epochMember)) {
		t := s
		f(&t, &t.M[max(m, 0)])
		emit(Step{what, int8(m), int8(x), calm}, t)
	}
	if s.End < maxOffset {
		do("a record is produced", -1, -1, 4, func(t *EpochState, _ *epochMember) {
			t.Log[t.End] = t.Leader
			t.End++
		})
	}
	for keeps := int8(0); s.Elections > 0 && keeps <= s.End; keeps++ {
		do("a leader is elected that has the records before", -1, int(keeps), 0, func(t *EpochState, _ *epochMember) {
			t.elect(keeps)
		})
	}
	if s.Txn > 0 {
		do("the offset is committed to the group", -1, -1, 0, func(t *EpochState, _ *epochMember) {
			t.Group, t.GroupEpch = t.Txn, t.Epoch
		})
	}
	if w.holdAt(&s) < maxOffset {
		do("the poison is fixed", -1, -1, 0, func(t *EpochState, _ *epochMember) { t.Fixed = true })
	}
	for m, x := range s.M {
		if !x.Reads {
			do("resumes", m, -1, 1, w.resume)
			continue
		}
		if x.Pos < s.End {
			do("fetches", m, int(x.Pos), 3, w.fetch)
		}
		if x.Pos > x.From {
			do("commits", m, -1, 2, w.commit)
		}
		do("ends", m, -1, 0, func(_ *EpochState, y *epochMember) { *y = newEpochMember() })
	}
}

// elect gives the partition a new leader, whose log has only the records before the offset keeps. The log loses the
// others.
func (s *EpochState) elect(keeps int8) {
	s.Elections--
	s.Leader++
	for o := keeps; o < s.End; o++ {
		s.Log[o] = unset
	}
	s.End = keeps
	for e := range s.First {
		if s.First[e] >= keeps { // the new leader has no record of the epoch e
			s.First[e] = unset
		}
	}
	s.First[s.Leader], s.Born[s.Leader] = keeps, keeps
	if keeps > 0 {
		s.Before[s.Leader] = s.Log[keeps-1]
	}
}

// resume reads the position and its epoch from the table and compares them with the log. If they do not match, the
// claim is held, which is a violation unless the log has lost records that have rows in the table.
func (w Epochs) resume(t *EpochState, y *epochMember) {
	epoch := t.Epoch
	if w.Rule&EpochOfGroupOffset != 0 && t.Group != t.Txn {
		epoch = unset
	}
	if t.Txn > t.End || w.Rule&ResumeUnchecked == 0 && !t.has(t.Txn, epoch) {
		if !t.lost() {
			t.Err = 2
		}
		return // the claim is held
	}
	*y = epochMember{Reads: true, From: t.Txn, Pos: t.Txn, Epoch: epoch, Batch: noEpochs()}
}

// has reports whether the log still has the records that a reader at pos has read. epoch is the leader epoch of the
// record before pos. If it is unset, nothing shows a loss, and has returns true. A broker judges a fetch in the same
// way (KIP-595, diverging epoch).
func (s *EpochState) has(pos, epoch int8) bool {
	newest, end := s.endOf(epoch)
	return epoch == unset || newest == epoch && end >= pos
}

// fetch reads the record at Pos into the batch. If the log has diverged, the member drops its batch.
func (w Epochs) fetch(t *EpochState, y *epochMember) {
	if w.Rule&NoLastFetchedEpoch == 0 && !t.has(y.Pos, y.Epoch) {
		*y = newEpochMember() // diverging: the batch is dropped, the claim resumes
		return
	}
	y.Epoch = t.Log[y.Pos]
	y.Batch[y.Pos] = y.Epoch
	y.Pos++
}

// commit ends the member's batch. If the table's position is still where the batch began, commit adds the rows of the
// batch and moves the position, but not past the record that holds the partition. Otherwise the batch is dropped.
func (w Epochs) commit(t *EpochState, y *epochMember) {
	defer func() { *y = newEpochMember() }()
	next, epoch := y.Pos, y.Epoch
	if hold := w.holdAt(t); next > hold {
		switch next = hold; {
		case w.Rule&EpochOfBatchEnd != 0:
		case w.Rule&EpochUnknown != 0:
			epoch = unset
		case w.Rule&EpochOfPoison != 0:
			epoch = y.Batch[next]
		case next > y.From:
			epoch = y.Batch[next-1]
		}
	}
	if t.Txn != y.From || next <= y.From {
		return
	}
	for o := y.From; o < next; o++ {
		t.Rows[o] = y.Batch[o]
		if e := t.Rows[o]; o > 0 && t.Rows[o-1] != e && (t.Born[e] != o || t.Before[e] != t.Rows[o-1]) {
			t.Err = 1
		}
	}
	t.Txn, t.Epoch = next, epoch
}
