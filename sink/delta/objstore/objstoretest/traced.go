package objstoretest

import (
	"time"

	"sluice/sink/delta/objstore"
)

// Traced returns a store that does the operations of s and calls line after each of them: "put-if-absent a/b.json ->
// exists". A Get is finished when the object is open, a List when its reader is done. line may be called from many
// goroutines.
func Traced(s objstore.Store, line func(string)) objstore.Store {
	return objstore.Observed(s, func(o objstore.Op, err error, _ time.Duration) { line(o.String() + " -> " + objstore.Outcome(err)) })
}
