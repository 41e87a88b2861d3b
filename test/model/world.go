package model

const (
	claims = 2  // at most, in one table
	absent = -1 // the table has no txn for the claim
	none   = -2 // a batch does not touch the claim, or a member does not own it
)

// Rule changes one sentence of the protocol. Zero is the protocol as built.
type Rule uint32

// Readings that an imprecise text would allow, then plain mistakes.
const (
	Final404Last      Rule = 1 << iota // a 404 read longer after the LAST PUT than a request can take is final: true, but not needed
	Final404Aged                       // "a 404 older than … is final": measured by the response's own age
	Final404First                      // the same, measured from the first PUT although it was repeated since
	Final404Cleaned                    // Final404Last, although log cleanup may have caused the 404
	PreWithoutTable                    // the precondition is "txn == from, schema still fits", without the table's id
	TableIDInMemory                    // only the process remembers which table it wrote
	StartCheckedOnce                   // "initial commit only if no txn …" is checked when decided, not again in the precondition
	DropRowsKeepTxn                    // rows of held or released claims are dropped, but their txn is committed
	AgeCheckedInPRE                    // the snapshot's age is checked in the precondition, not when a PUT or its repetition is signed
	EmptyCutMoves                      // a batch without rows waits, and the next one starts after it
	IdleBlind                          // a member without anything to commit does not read the log
	OnePlace                           // "exactly one place", literally, for letters that no txn has passed
	AnyOwnID                           // any txnId that this process ever used counts as its own
	DeniedDecides                      // 403 is a definite failure, of a repeated PUT too
	HeadForgotten                      // after any HEAD, a snapshot that is too old counts as young
	NoCAS                              // txn == from is not checked
	NextOnUnknown                      // after an unknown outcome it continues at N+1
	LostOn412                          // a 412 always means another writer's version
	NewIDOn404                         // a repeated PUT has new content
	DeleteOnUnknown                    // a commit given up with unknown outcome deletes its files
	FenceKeepsChained                  // a fence keeps the open batch
	GroupOverTxn                       // resume at the committed offset
	LettersLate                        // letters after the commit
	DropFencedRows                     // a fenced claim loses its rows, but not its txn
	StartUnchecked                     // initial commit wherever there is no txn
	PlainPut                           // PUT without If-None-Match
	PoisonPassed                       // a hold for poison does not end the batch
	NotFoundIsYoung                    // a poll that ends with 404 makes the snapshot young, however long the poll took
	CheckpointIsYoung                  // a missing N-1 is acceptable if the snapshot came from its checkpoint, however long ago
	StatisticsUnread                   // an initial commit checks txns and committed offsets only, not the table's files
	SiblingsVouch                      // the files are checked only if no partition of the topic has a txn
)

// Phase is the phase of the commit in flight.
type Phase uint8

// The phases, with the letters of the steps of a commit: precondition and letters (a)-(c), the PUT (d), committed
// offsets (e).
const (
	idle     Phase = iota
	closed         // a sealed batch whose letters are to be produced
	lettered       // ready for precondition and PUT
	polling        // reads the log version by version, up to the first 404; only with World.Polls
	ready          // precondition passed on the version before N, PUT not sent yet
	waiting        // PUT of N sent
	unknown        // 412 or no clear response
	won            // (e) to do
)

// flight is the state of the newest PUT of a commit.
type flight uint8

const (
	quiet  flight = iota // not sent
	flying               // it may take effect at any time
	landed
	dead // dropped or refused
)

// kind is the kind of a commit.
type kind uint8

const (
	data kind = iota
	start
	set // an operator's offsets set
)

// Versions are counted from the newest one, so that the log may grow forever: 1 is the next to be written, 0 the
// newest, old one before it, gone one that log cleanup removed.
const old, gone = -1, -2

// Cut is the content of one commit: per claim [From, Next), and the offsets of its rows and of its letters, as
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
	Cut         Cut          // being committed
	From, Pos   [claims]int8 // of the open batch: the base of its txn; where its records begin
	Table       uint8        // id of the table it resumed from; 0 before the first resume
	Stale       uint8        // what it knows of version N-1 is older than log entries are kept
	Checkpoint  uint8        // 1 = its snapshot is a checkpoint's, without a later commit
	First, Last uint8        // 1 = the first, the last PUT of N is older than a request can take
	Saw404      uint8        // 1 = seen, 2 = that response is older than a request can take
	Twin        uint8        // version N has an id that this process gave up
}

// Put is a request in flight whose sender no longer waits for it.
type Put struct {
	N     int8 // 0 = none
	Cut   Cut
	Gone  uint8 // its data files were deleted
	Owner uint8 // 1+member whose living process sent it; kept only where a rule needs it
}

// State is a state of the machine.
type State struct {
	Txn, Start                             [claims]int8  // the table's txn; where the rows of this history begin
	Once, Twice, Letters                   [claims]uint8 // offsets with a row, with two, with a letter
	Group                                  [claims]int8  // committed offsets
	Table, Topic                           uint8         // ids
	Past                                   [claims]uint8 // rows whose txn expired: only the files show them
	Foreign                                uint8         // 1 = table replaced, accepted by no operator
	Bare                                   uint8         // 1 = the newest version's entry is cleaned up, its checkpoint is left
	M                                      [2]Member
	Stray                                  [2]Put
	Sets, Replaces, Recreates, Days, Ticks uint8 // how many are left
	Expiries                               uint8
	Err                                    uint8 // index into words
}

// The names of the rules. The first ones show in the log; the last three are about what a member believes.
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
	Rule                                   Rule
	Records                                [claims]string // g row, p poison, d declared drop, f row or poison as the member sees it
	Hold                                   bool           // poison holds its partition; otherwise it becomes a letter
	Generations                            bool           // the claims are two topic ids of one partition
	Fresh                                  bool           // no txn yet: an initial commit is needed
	Group                                  bool           // follow committed offsets
	Strays                                 int            // maximum number of PUTs that outlive their sender at a time; at least 1
	Sets, Replaces, Recreates, Days, Ticks uint8          // how often each may happen
	Expiries                               uint8          // how often a checkpoint of another writer drops an expired txn
	// Polls makes a member read the log request by request; it may sleep between two. Otherwise a poll is one step.
	Polls bool

	// wrote is called with each version, to record a walk; nil in a search.
	wrote func(written)
}

// written is a version as it was written; n counts from the newest one before it.
type written struct {
	n        int8
	cut      Cut
	files    bool // its files were deleted
	operator bool
	accepts  bool
	table    uint8
}

// is reports whether w has this rule.
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

// Done implements [Machine]: the end of runs without faults.
func (w World) Done(s State) bool {
	for c := range claims {
		if w.current(&s, c) && s.Txn[c] != w.end(c) {
			return false
		}
	}
	return s.Foreign == 0
}

// Bad implements [Machine]: it compares the rows of every claim with its initial position and txn.
func (w World) Bad(s State) string {
	if s.Err != 0 || s.Foreign == 1 { // a replaced table belongs to the operator until it is accepted
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

// put is the store's response to a log entry: put-if-absent, regardless of what the sender knows by now.
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
		} else if s.Txn[c] == absent { // sent before the txn expired: it continues from there
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

// other adds a version that no member wrote.
func (w World) other(s *State, v written) {
	if w.wrote != nil {
		v.n, v.table = 1, s.Table
		w.wrote(v)
	}
	w.grow(s)
}

// knowsVersion reports whether N of this member means a version of the log.
func (w World) knowsVersion(y *Member) bool { return y.Phase >= polling || w.Polls && y.Table != 0 }

// grow counts every version from the new newest one, and drops what can no longer take effect.
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

// history reports whether the table knows the partition of this claim, under any topic id.
func (w World) history(s *State, c int) bool {
	return s.Txn[c] != absent || w.Generations && s.Txn[1-c] != absent
}

// unknownHistory reports whether the claim has no txn although it was read before: an initial commit must not be
// made.
func (w World) unknownHistory(s *State, c int) bool {
	return s.Txn[c] == absent &&
		(w.history(s, c) || s.Group[c] != absent || w.Generations && s.Group[1-c] != absent || w.showsRows(s, c))
}

// showsRows reports whether the statistics of the table's files show rows of the partition, or of any partition of
// a topic without txn.
func (w World) showsRows(s *State, c int) bool {
	sibling := s.Txn[1-c] != absent
	switch {
	case w.is(StatisticsUnread), w.is(SiblingsVouch) && sibling:
		return false
	}
	return s.Past[c] != 0 || s.Past[1-c] != 0 && !sibling
}

// held reports whether the claim needs an operator before it resumes or makes its initial commit.
func (w World) held(s *State, y *Member, c int) bool {
	known := !w.is(TableIDInMemory) || y.Table != 0 && y.Table != s.Table
	return s.Foreign == 1 && known || w.unknownHistory(s, c) && !w.is(StartUnchecked)
}
