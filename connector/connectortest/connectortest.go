// Package connectortest has values that tests of the pipeline share: partitions, snapshots, entries, builders that
// count.
package connectortest

import (
	"time"

	"sluice/connector"
	"sluice/idempotency"
)

// Partition returns a partition of topic orders.
func Partition(id int32) connector.Partition {
	return connector.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: id}
}

// Schema is a schema that the rows of any schema fit if Err is nil, and that the rows of no schema fit otherwise.
type Schema struct{ Err error }

// Fits returns Err.
func (f *Schema) Fits(connector.Schema) error { return f.Err }

// Snapshot returns version 7 of table T with these positions.
func Snapshot(positions map[string]int64) *connector.Snapshot {
	return &connector.Snapshot{TableID: "T", Version: 7, Positions: positions, Schema: &Schema{}}
}

// Entries returns one entry for each character of text, at consecutive offsets from from on, and one second apart.
// Equal characters give entries with equal fingerprints, and a dot gives an entry without identity.
func Entries(from int64, text string) []idempotency.Entry {
	h := idempotency.NewHasher(idempotency.Identity{By: idempotency.ByHeader, Name: "id"})
	var all []idempotency.Entry
	for i, r := range text {
		e := idempotency.Entry{Offset: from + int64(i), At: Noon().UnixMilli() + (from+int64(i))*1000}
		if r != '.' {
			e.Fingerprint = h.Header([]byte(string(r)))
		}
		all = append(all, e)
	}
	return all
}

// Noon returns a fixed time.
func Noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
