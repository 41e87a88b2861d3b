package intake

import (
	"sluice/reliability/hold"
)

// state is what a claim does. Only holds.enter sets it.
type state uint8

const (
	resuming  state = iota // asked where it stands; it has no hold
	reading                // records are fetched; it has no hold
	retrying               // records are fetched; its hold ends with the first of them
	proving                // records are fetched; its hold ends with the next won commit
	finishing              // nothing is fetched; rows from before the hold wait for their commit
	held                   // nothing is fetched until it is checked
	checking               // asked where it stands; it has a hold
	leaving                // its records failed in our own work: it waits before they are read again
	lost                   // another member's, or nobody's
)

func states() []state {
	return []state{resuming, reading, retrying, proving, finishing, held, checking, leaving, lost}
}

// String returns the word that the log uses.
func (s state) String() string {
	return [...]string{"resuming", "reading", "retrying", "proving", "finishing", "held", "checking", "leaving", "lost"}[s]
}

// next returns the states that may follow. docs/architecture.md has them as a table.
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

// reads reports whether records are fetched.
func (s state) reads() bool { return s == reading || s == retrying || s == proving }

// awaitsPosition reports whether the writer looks where the claim stands.
func (s state) awaitsPosition() bool { return s == resuming || s == checking }

// stands reports whether nothing happens to the claim but by a check, an operator or a commit.
func (s state) stands() bool { return s == finishing || s == held }

// shown is the state in the words of [connector.ClaimStatus].
func (s state) shown() string {
	switch {
	case s == resuming:
		return "resuming"
	case s.reads(), s == leaving:
		return "reading"
	}
	return "held"
}

// IllegalTransition is the log line of a transition that the states do not allow. It is a mistake in this package; the claim
// goes on.
const IllegalTransition = "a claim goes from one state to another that cannot follow; report it with this line"

// endsBy is what ends a hold.
type endsBy uint8

const (
	byCheck  endsBy = iota // that the claim can be read, as a check finds
	byRecord               // a record that is read
	byCommit               // a won commit: one found the hold
)

// endOf returns what ends a hold that no commit found. Of a batch that cannot be read only reading on can tell.
func endOf(reason hold.Reason) endsBy {
	if reason == hold.CorruptBatch || reason == hold.Oversize {
		return byRecord
	}
	return byCheck
}
