package lane

import (
	"sync/atomic"

	"sluice/connector"
)

// An Answer is what was fetched on its way to the lanes. The reader and the blocks that hold its records share its
// memory: whoever is last gives it back.
type Answer struct {
	connector.Fetched
	Read  bool // to its end
	users atomic.Int32
}

// NewAnswer returns an answer with one user, the reader, as long as it is in the queue of a claim.
func NewAnswer(f connector.Fetched) *Answer {
	a := &Answer{Fetched: f}
	a.users.Store(1) // the reader, as long as it is in a claim's queue
	return a
}

// share adds a user.
func (a *Answer) share() { a.users.Add(1) }

// Leave ends the use of one user, who may not touch any record of the answer afterwards.
func (a *Answer) Leave() {
	if a.users.Add(-1) == 0 && a.Records != nil {
		a.Records.Release()
	}
}
