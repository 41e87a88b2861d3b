package objstoretest

import (
	"time"

	"sluice/sink/delta/objstore"
)

// Traced returns a store that passes operations on to s and calls line after each of them, for example with
// "put-if-absent a/b.json -> exists". For a Get, this is when the object is open; for a List, when the caller has read
// or left the list. line may be called from many goroutines.
func Traced(s objstore.Store, line func(string)) objstore.Store {
	return objstore.Observed(s, func(o objstore.Op, err error, _ time.Duration) { line(o.String() + " -> " + objstore.Outcome(err)) })
}
