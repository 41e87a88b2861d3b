package intake

import (
	"sluice/reliability/hold"
)

// state is the state of a claim. Only holds.enter sets it.
type state uint8

const (
	resuming  state = iota // the writer looks up the position of the claim; no hold
	reading                // records are fetched; no hold
	retrying               // records are fetched; the first of them ends the hold
	proving                // records are fetched; the next successful commit of the table ends the hold
	finishing              // not fetched; records from before the hold wait for their commit
	held                   // not fetched until a check is due
	checking               // the writer checks whether the hold is over
	leaving                // records of the claim failed locally: it waits before they are read again
	lost                   // this member does not have the claim any more
)

// states returns all states, for tests.
func states() []state {
	return []state{resuming, reading, retrying, proving, finishing, held, checking, leaving, lost}
}

// String returns the name of the state, for the log.
func (s state) String() string {
	return [...]string{"resuming", "reading", "retrying", "proving", "finishing", "held", "checking", "leaving", "lost"}[s]
}

// next returns the states that may follow s. The table in docs/architecture.md has the same.
func (s state) next() []state {
	switch s {
	case resuming:
		return []state{resuming, reading, held, lost}
	case reading:
		return []state{resuming, finishing, held, leaving, lost}
	case retrying, proving:
		return []state{reading, checking, finishing, held, leaving, lost}
	case finishing:
		return []state{finishing, held, checking, lost}
	case held:
		return []state{held, checking, lost}
	case checking:
		return []state{reading, retrying, proving, held, checking, lost}
	case leaving:
		return []state{resuming, held, checking, lost}
	case lost:
	}
	return nil
}

// reads reports whether records of the claim are fetched.
func (s state) reads() bool { return s == reading || s == retrying || s == proving }

// awaitsPosition reports whether the reader waits for the claim's position from the writer.
func (s state) awaitsPosition() bool { return s == resuming || s == checking }

// isStopped reports whether only a check, an operator or a commit can change the claim's state.
func (s state) isStopped() bool { return s == finishing || s == held }

// display returns the state as [connector.ClaimStatus] shows it.
func (s state) display() string {
	switch {
	case s == resuming:
		return "resuming"
	case s.reads(), s == leaving:
		return "reading"
	}
	return "held"
}

// IllegalTransition is the log message for a transition that state.next does not allow: a bug in this package. The
// claim continues.
const IllegalTransition = "illegal state transition of a claim; report it with this line"

// endEvent is the event that ends a hold.
type endEvent uint8

const (
	byCheck  endEvent = iota // a check that finds the claim readable
	byRecord                 // the first record that is read
	byCommit                 // a successful commit, because a commit found the hold
)

// endEventOf returns the event that ends a hold with this reason if no commit found it.
func endEventOf(reason hold.Reason) endEvent {
	if reason.EndsByRecord() {
		return byRecord
	}
	return byCheck
}
