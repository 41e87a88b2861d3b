package lane

import (
	"sync/atomic"

	"sluice/connector"
)

// A FetchResult is the result of a fetch on its way to the lanes. The reader and the blocks share the memory of its
// records; the last user to call Release returns it.
type FetchResult struct {
	connector.Fetched
	Read bool // true once all records have been parsed
	refs atomic.Int32
}

// NewFetchResult returns a fetch result with one user, the reader. The reader calls Release when it removes the result
// from the queue of the claim.
func NewFetchResult(f connector.Fetched) *FetchResult {
	r := &FetchResult{Fetched: f}
	r.refs.Store(1)
	return r
}

// retain counts one more user of the fetch result.
func (r *FetchResult) retain() { r.refs.Add(1) }

// Release ends the use by one user, who must not use any record of the result afterwards.
func (r *FetchResult) Release() {
	if r.refs.Add(-1) == 0 && r.Records != nil {
		r.Records.Release()
	}
}
