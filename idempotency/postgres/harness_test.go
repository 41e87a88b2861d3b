package postgres

import (
	"encoding/binary"
	"time"

	"sluice/idempotency"
)

var scope = idempotency.Scope{Pipeline: "p", TableID: "t", Partition: idempotency.Partition{Cluster: "c", Topic: "orders", ID: 3}}

func fingerprint(n uint64) (f idempotency.Fingerprint) {
	binary.BigEndian.PutUint64(f[:8], n+1)
	return f
}

// rows yields entries at the offsets [from, next). Offset 0 has the timestamp 1970, each further one an hour more.
func rows(from, next int64) func(func(idempotency.Entry) bool) {
	return func(yield func(idempotency.Entry) bool) {
		for o := from; o < next; o++ {
			if !yield(idempotency.Entry{Fingerprint: fingerprint(uint64(o)), Offset: o, At: o * time.Hour.Milliseconds()}) {
				return
			}
		}
	}
}
