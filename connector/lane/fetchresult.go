package lane

import (
	"sync/atomic"

	"sluice/connector"
)

// An Answer is what was fetched on its way to the lanes. The reader and the blocks that hold its records share its
// memory: whoever is last gives it back.
type FetchResult struct {
	connector.Fetched
	Read bool // to its end
	refs atomic.Int32
}

// NewFetchResult returns an answer with one user, the reader, as long as it is in the queue of a claim.
func NewFetchResult(f connector.Fetched) *FetchResult {
	r := &FetchResult{Fetched: f}
	r.refs.Store(1) // the reader, as long as it is in a claim's queue
	return r
}

// retain adds a user.
func (r *FetchResult) retain() { r.refs.Add(1) }

// Release ends the use of one user, who may not touch any record of the answer afterwards.
func (r *FetchResult) Release() {
	if r.refs.Add(-1) == 0 && r.Records != nil {
		r.Records.Release()
	}
}
