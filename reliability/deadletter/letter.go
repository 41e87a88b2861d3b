// Package deadletter encodes and parses dead letters. A dead letter is a record that can never become a row, unchanged,
// together with the reason.
package deadletter

import (
	"time"

	"sluice/classify"
	"sluice/idempotency"
)

// Letter is a dead letter. Its coordinates identify it: the same record may be written more than once, and readers keep
// one of the copies.
type Letter struct {
	Source idempotency.Coordinates
	// Timestamp, Key, Value and Headers are those of the record, unchanged. Key and Value are nil if they are null.
	Timestamp int64 // milliseconds since 1970
	Key       []byte
	Value     []byte
	Headers   []Header
	// Link names the object with the parts of the record that are missing here because the dead letter would be too
	// large for its topic. It is zero if nothing is missing. The missing parts are nil until [Whole] restores them.
	Link Link

	Class  classify.Class
	Reason Reason
	Detail string // the fault and its place, for an operator; never bytes of the record
	Trace  string // the chain of errors, or a stack; never bytes of the record

	Retries      int // number of attempts after the first failure
	FirstFailure time.Time
	LastFailure  time.Time
	// Written is when the dead letter was written to its topic, to the millisecond, or zero before that. [Parse] sets
	// it to LastFailure if the record does not contain it.
	Written time.Time

	Member      string // id of the member that wrote the dead letter
	Correlation string // id of the record in log lines, see [Correlation]
	Batch       string // id of the sealed batch, as in log lines
}

// Header is a header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Link names the object that holds a whole record. Keys are relative to the root of all tables; [Object] documents the
// content.
type Link struct {
	Key    string // key of the object, made by [LinkKey]; "" for no link
	Bytes  int64  // size of the object in bytes
	SHA256 string // hash of the object in hex
	// Record is true if the dead letter lacks the record's key, value and headers, false if it lacks only the value.
	Record bool
}

// Reason is the code that says why a record cannot become a row. The list is closed, because it is a label of metrics.
type Reason string

// The reasons that do not concern the format of a value. Decoders define the others.
const (
	Isolated         Reason = "isolated"            // the record fails alone, for an unknown reason, while the records before and after it do not fail
	Tombstone        Reason = "tombstone"           // the value is null, and the configuration makes tombstones dead letters
	NullKey          Reason = "null_key"            // the key is null, and the configuration requires keys
	UnknownField     Reason = "unknown_field"       // the schema lacks a field, and the configuration refuses such fields
	RetriesExhausted Reason = "retries_exhausted"   // all attempts of record_retry failed
	BadPartition     Reason = "bad_partition_value" // the value of a partition column is not allowed
	Unspecified      Reason = "unspecified"         // another program wrote the dead letter without a code
)

// Reasons returns the reasons of this package, each once.
func Reasons() []Reason {
	return []Reason{Isolated, Tombstone, NullKey, UnknownField, RetriesExhausted, BadPartition, Unspecified}
}
