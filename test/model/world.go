package model

const (
	claims = 2  // maximum number of claims, all of one table
	absent = -1 // as a position: the table has no txn for the claim
	none   = -2 // as a position: the batch does not have the claim, or the member does not own it
)

// Rule is a set of deviations from the protocol as built, one bit each; zero is the protocol. For every deviation
// except Final404Last, which is correct, a search must find a violation (TestMutants).
type Rule uint32

// A correct deviation: its searches must find no violation.
const (
	// Final404Last: a GET of N returns 404, and the last PUT of N was sent longer ago than a request can take. Then the
	// member counts its commit as failed, where the protocol as built repeats the PUT. N is the version that the member
	// tries to write.
	Final404Last Rule = 1 << iota
)

// Deviations that misread the protocol's text.
const (
	Final404Aged      Rule = 2 << iota // a 404 counts as a definite failure once the response itself is old
	Final404First                      // like Final404Last from the first PUT on, although a later PUT may still take effect
	Final404Cleaned                    // like Final404Last, also with an old snapshot, when log cleanup may have caused the 404
	PreWithoutTable                    // the precondition does not compare the table's id
	TableIDInMemory                    // only the process remembers which table it wrote; after a restart any table is accepted
	StartCheckedOnce                   // "initial commit only if no txn" is checked when it is decided, but not in the precondition
	DropRowsKeepTxn                    // rows of held or released claims are dropped, but their txn is committed
	AgeCheckedInPRE                    // the snapshot's age is checked in the precondition, but not when a PUT is sent or repeated
	EmptyCutMoves                      // a batch without rows is not committed, and the next batch starts after it
	IdleBlind                          // a member without anything to commit does not read the log
	OnePlace                           // a record that is a row must have no letter, not even one of a commit that failed
	AnyOwnID                           // any txnId that this process ever used counts as that of the commit in flight
	DeniedDecides                      // a 403 counts as a definite failure, although an earlier PUT of N may still take effect
	HeadForgotten                      // a HEAD of N-1 makes an old snapshot young even if the entry of N-1 is gone
	NotFoundIsYoung                    // a poll that ends with 404 makes the snapshot young, however long the poll took
	CheckpointIsYoung                  // a missing N-1 is accepted if the snapshot is N-1's checkpoint, however long ago it was read
	StatisticsUnread                   // an initial commit checks txns and committed offsets, but not the table's files
	SiblingsVouch                      // the files are checked only if no partition of the topic has a txn
)

// Deviations that are plain mistakes.
const (
	NoCAS             Rule = 1 << (19 + iota) // the precondition does not compare the txn with the start of the batch
	NextOnUnknown                             // after an unknown outcome the member puts the commit at N+1
	LostOn412                                 // a 412 means another writer's version, even after an earlier PUT of the member
	NewIDOn404                                // a PUT that is repeated after a 404 has a new txnId
	DeleteOnUnknown                           // a commit that is given up with an unknown outcome deletes its files
	FenceKeepsChained                         // a fence keeps the open batch
	GroupOverTxn                              // a claim resumes at the committed offset instead of the txn
	LettersLate                               // letters are written after the commit
	DropFencedRows                            // a claim whose txn was moved by another commit loses its rows, but its txn is committed
	StartUnchecked                            // an initial commit is made wherever there is no txn
	PlainPut                                  // PUT without If-None-Match
	PoisonPassed                              // a poison record that holds its partition does not end the batch
)

// Phase is how far a member's commit has come.
type Phase uint8

// The phases of a commit. Letters in parentheses are the steps of the real committer (connector/commit/commit.go).
const (
	idle     Phase = iota // no sealed batch
	closed                // sealed; the precondition (a) and the letters (c) come next
	lettered              // letters are durable; the precondition on the newest prefix and the PUT (d) come next
	polling               // reads the log version by version, up to the first 404; only with World.Polls
	ready                 // the precondition passed on the version before N; the PUT is not sent yet
	waiting               // the PUT of N is sent; no response yet
	unknown               // the response was a 412 or unclear; a GET of N comes next
	won                   // committed; the committed offsets (e) come next
)

// flight is the state of the newest PUT that a commit has sent.
type flight uint8

const (
	quiet  flight = iota // not sent
	flying               // sent; it may take effect at any time
	landed               // it took effect
	dead                 // dropped or refused: it never takes effect
)

// kind is the kind of a commit.
type kind uint8

const (
	data  kind = iota // a sealed batch
	start             // an initial commit
	set               // a position set by an operator
)

// Version numbers are relative to the newest version, so that the log may grow forever: 1 is the next version to be
// written, 0 the newest one, old any earlier one, gone one whose entry log cleanup removed.
const old, gone = -1, -2

// Cut is the content of one commit, per claim: its range [From, Next), and the offsets of its rows and letters as
// bits.
type Cut struct {
	From, Next [claims]int8
	Rows, Lets [claims]uint8
	Kind       kind
}

// Member is one process: its commit in flight and its open batch.
type Member struct {
	Phase       Phase
	Fly         flight
	N           int8         // the version to put; with Polls also the next one that a poll requests
	Cut         Cut          // the content of the commit in flight
	From, Pos   [claims]int8 // of the open batch: the txn that its precondition expects; where its records begin
	Table       uint8        // id of the table that it resumed from; 0 before the first resume
	Stale       uint8        // 1 = it read version N-1 longer ago than log entries are kept
	Checkpoint  uint8        // 1 = its snapshot is a checkpoint without a later commit
	First, Last uint8        // 1 = the first (last) PUT of N was sent longer ago than a request can take
	Saw404      uint8        // 1 = a GET of N returned 404; 2 = that was longer ago than a request can take
	Twin        uint8        // 1 = version N has the txnId of a commit that this process gave up
}

// Put is a PUT in flight whose sender no longer waits for its response.
type Put struct {
	N     int8 // version to write; 0 = no request
	Cut   Cut
	Gone  uint8 // 1 = its data files were deleted
	Owner uint8 // 1 + index of its sender, 0 once that crashed; always 0 without AnyOwnID and NewIDOn404
}

// State is a state of the machine.
type State struct {
	Txn, Start                             [claims]int8  // the table's txn; the position from which each record must have its row
	Once, Twice, Letters                   [claims]uint8 // offsets with at least one row, with two rows, with a letter, as bits
	Group                                  [claims]int8  // committed offsets
	Table, Topic                           uint8         // ids
	Past                                   [claims]uint8 // offsets of rows whose txn expired: only the files show them
	Foreign                                uint8         // 1 = the table was replaced and no operator has accepted it
	Bare                                   uint8         // 1 = the newest version's entry is cleaned up, its checkpoint is left
	M                                      [2]Member
	Stray                                  [2]Put
	Sets, Replaces, Recreates, Days, Ticks uint8 // how often each of these events may still happen, see World
	Expiries                               uint8
	Err                                    uint8 // violation found by a step, as an index into words; 0 = none
}

// The violations. Most of them show in the log. The last three do not: they are about what a member decided, and
// about runs that never end.
const (
	writtenTwice  = "a log version was written twice"
	prefixHole    = "a commit extends a prefix with a hole"
	fileDeleted   = "a committed add whose file was deleted"
	overAHistory  = "initial commit over a history"
	notAccepted   = "commit into a table that no operator accepted"
	twoRows       = "a record has two rows"
	strangeRow    = "a row outside [start, txn), or of an offset that is no row"
	missingRow    = "a record in [start, txn) has no row"
	missingLetter = "txn passed a poison record without a letter"
	neitherPlace  = "txn passed a record that is neither row nor letter"
	twoPlaces     = "a record is both row and letter"
	wronglyWon    = "decided as committed, but not in the log"
	wronglyLost   = "decided as failed, but in the log or able to land"
	neverEnds     = "stuck: without faults it never ends"
)

const (
	twice uint8 = 1 + iota
	hole
	fileGone
	overHistory
	notOurs
	notWon
	notLost
)

var words = [...]string{
	twice: writtenTwice, hole: prefixHole, fileGone: fileDeleted, overHistory: overAHistory, notOurs: notAccepted,
	notWon: wronglyWon, notLost: wronglyLost,
}

// World is the configuration of a machine.
type World struct {
	Rule        Rule
	Records     [claims]string // one character per record: g row, p poison, d left out, f row or poison by chance
	Hold        bool           // poison holds its partition; otherwise it becomes a dead letter
	Generations bool           // the claims are two topic ids of one partition
	Fresh       bool           // no txn yet: an initial commit is needed
	Group       bool           // members commit offsets to the group
	Strays      int            // maximum number of PUTs in State.Stray at a time; 0 counts as 1

	// How often an operator sets a position, another writer replaces the table, the topic is created again, a day passes
	// (longer than log entries are kept), and 20 minutes pass (longer than a request takes).
	Sets, Replaces, Recreates, Days, Ticks uint8
	// How often a txn expires and another writer's checkpoint drops it.
	Expiries uint8
	// Polls makes a member read the log request by request; it may sleep between two. Otherwise a poll is one step.
	Polls bool

	// wrote is called with each version, to record a walk; nil in a search.
	wrote func(written)
}

// written is a version as it was written. n is its number relative to the newest version before it.
type written struct {
	n        int8
	cut      Cut
	files    bool // its data files were deleted
	operator bool
	accepts  bool
	table    uint8
}

// is reports whether w has at least one of the deviations in r.
func (w World) is(r Rule) bool { return w.Rule&r != 0 }

var nothing, noRows = [claims]int8{none, none}, [claims]uint8{}

func noCut() Cut        { return Cut{From: nothing, Next: nothing} }
func newMember() Member { return Member{Cut: noCut(), From: nothing, Pos: nothing} }

// Init implements [Machine]: the initial state.
func (w World) Init() State {
	s := State{Table: 1, Topic: 1, Sets: w.Sets, Replaces: w.Replaces, Recreates: w.Recreates, Days: w.Days, Ticks: w.Ticks, Expiries: w.Expiries}
	for i := range 2 {
		s.Group[i], s.M[i], s.Stray[i].Cut = absent, newMember(), noCut()
		if w.Fresh || w.Records[i] == "" {
			s.Txn[i], s.Start[i] = absent, absent
		}
	}
	return s
}

// Same implements [Machine]: it exchanges the two members.
func (World) Same(s State) State {
	s.M[0], s.M[1] = s.M[1], s.M[0]
	for i := range s.Stray {
		if s.Stray[i].Owner > 0 {
			s.Stray[i].Owner = 3 - s.Stray[i].Owner
		}
	}
	return s
}

// end returns the offset up to which a claim can be committed.
func (w World) end(c int) int8 {
	for o := range len(w.Records[c]) {
		if w.Hold && w.Records[c][o] == 'p' && !w.is(PoisonPassed) {
			return int8(o)
		}
	}
	return int8(len(w.Records[c]))
}

// current reports whether the claim belongs to the current topic.
func (w World) current(s *State, c int) bool {
	return w.Records[c] != "" && (!w.Generations || s.Topic == uint8(c)+1)
}

// offsets returns the offsets of [from, to) whose records are of one of the kinds, as bits.
func (w World) offsets(c int, from, to int8, kinds string) (bits uint8) {
	for o := max(from, 0); o < to; o++ {
		for k := range len(kinds) {
			if w.Records[c][o] == kinds[k] {
				bits |= 1 << o
			}
		}
	}
	return bits
}

// Done implements [Machine]: every record of the current topic that can be committed is committed, and the table is
// accepted.
func (w World) Done(s State) bool {
	for c := range claims {
		if w.current(&s, c) && s.Txn[c] != w.end(c) {
			return false
		}
	}
	return s.Foreign == 0
}

// Bad implements [Machine]: it returns the violation of the last step, or compares the rows and letters of every claim
// with its initial position and txn.
func (w World) Bad(s State) string {
	if s.Err != 0 || s.Foreign == 1 { // until an operator accepts it, the rows of a replaced table are not checked
		return words[s.Err]
	}
	for c := range claims {
		in := func(kinds string) uint8 { return w.offsets(c, s.Start[c], s.Txn[c], kinds) }
		switch {
		case s.Twice[c] != 0:
			return twoRows
		case s.Once[c]&^in("gf") != 0:
			return strangeRow
		case in("g")&^s.Once[c] != 0:
			return missingRow
		case in("p")&^s.Letters[c] != 0:
			return missingLetter
		case in("f")&^(s.Once[c]|s.Letters[c]) != 0:
			return neitherPlace
		case w.is(OnePlace) && s.Once[c]&s.Letters[c] != 0:
			return twoPlaces
		}
	}
	return ""
}

// put lets a PUT of version n with content k arrive at the store, which writes the version if it is absent. files is 1
// if the commit's data files were deleted. put reports whether the version was written; it stores a violation in s.Err.
func (w World) put(s *State, n int8, k Cut, files uint8) (taken bool) {
	switch {
	case n == gone, n <= 0 && w.is(PlainPut):
		s.Err = twice
	case n <= 0:
		return false
	case n > 1:
		s.Err = hole
	case files == 1:
		s.Err = fileGone
	case s.Foreign == 1 && k.Kind != set:
		s.Err = notOurs
	}
	if w.wrote != nil {
		w.wrote(written{n: n, cut: k, files: files == 1, operator: k.Kind == set, table: s.Table})
	}
	if n != 1 {
		return true
	}
	for c := range claims {
		if k.From[c] == none {
			continue
		}
		if k.Kind == start && (w.history(s, c) || s.Past[c] != 0) {
			s.Err = overHistory
		}
		if k.Kind != data {
			s.Start[c], s.Once[c], s.Twice[c] = k.Next[c], 0, 0
		} else if s.Txn[c] == absent { // the PUT was sent before the txn expired, and continues after its rows
			s.Once[c] |= s.Past[c]
		}
		s.Past[c] = 0
		s.Txn[c] = k.Next[c]
		s.Twice[c] |= s.Once[c] & k.Rows[c]
		s.Once[c] |= k.Rows[c]
	}
	w.grow(s)
	return true
}

// other adds a version that another writer or an operator wrote.
func (w World) other(s *State, v written) {
	if w.wrote != nil {
		v.n, v.table = 1, s.Table
		w.wrote(v)
	}
	w.grow(s)
}

// knowsVersion reports whether the number N of the member is relative to the newest version, so that grow must change
// it. If knowsVersion returns false, N must stay as it is.
func (w World) knowsVersion(y *Member) bool { return y.Phase >= polling || w.Polls && y.Table != 0 }

// grow makes every version number relative to the new newest version. PUTs of that version can no longer take effect.
func (w World) grow(s *State) {
	s.Bare = 0
	for i := range 2 {
		if y := &s.M[i]; w.knowsVersion(y) && y.N != gone {
			if y.N = max(y.N-1, old); w.Days == 0 {
				y.N = max(y.N, 0)
			}
			if y.Fly == flying && y.N <= 0 && !w.is(PlainPut) {
				y.Fly = dead
			}
		}
		if p := &s.Stray[i]; p.N == 1 {
			*p = Put{Cut: noCut()}
		} else if p.N > 1 {
			p.N--
		}
	}
}

// history reports whether the table has a txn of this claim's partition, under any topic id.
func (w World) history(s *State, c int) bool {
	return s.Txn[c] != absent || w.Generations && s.Txn[1-c] != absent
}

// unknownHistory reports whether the claim has no txn, but something else shows that its partition was read before.
// Then an initial commit must not be made.
func (w World) unknownHistory(s *State, c int) bool {
	return s.Txn[c] == absent &&
		(w.history(s, c) || s.Group[c] != absent || w.Generations && s.Group[1-c] != absent || w.showsRows(s, c))
}

// showsRows reports whether the statistics of the table's files show rows of the claim's partition. If the topic's
// other partition has no txn, rows of that partition count, too.
func (w World) showsRows(s *State, c int) bool {
	sibling := s.Txn[1-c] != absent
	switch {
	case w.is(StatisticsUnread), w.is(SiblingsVouch) && sibling:
		return false
	}
	return s.Past[c] != 0 || s.Past[1-c] != 0 && !sibling
}

// held reports whether the claim waits for an operator: it neither resumes nor makes its initial commit.
func (w World) held(s *State, y *Member, c int) bool {
	known := !w.is(TableIDInMemory) || y.Table != 0 && y.Table != s.Table
	return s.Foreign == 1 && known || w.unknownHistory(s, c) && !w.is(StartUnchecked)
}
