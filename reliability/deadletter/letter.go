// Package deadletter knows what a dead letter is: a record that can never become a row, unchanged, with why.
package deadletter

import (
	"time"

	"sluice/classify"
	"sluice/idempotency"
)

// Letter is a record that cannot become a row. Its coordinates identify it: the same record may be written more than
// once, and readers collapse the repeats.
type Letter struct {
	Source idempotency.Coordinates
	// Timestamp, Key, Value and Headers are the record's own, unchanged. Key and Value are nil if they are null.
	Timestamp int64 // milliseconds since 1970
	Key       []byte
	Value     []byte
	Headers   []Header
	// Link says where the rest of the record lies if the letter is too large for its topic; zero if nothing is missing.
	// What lies there is nil above until [Whole] brings it back.
	Link Link

	Class  classify.Class
	Reason Reason
	Detail string // what is wrong and where, for a person; never bytes of the record
	Trace  string // how it came about: the chain of errors, or a stack; never bytes of the record

	Retries      int // before it was given up
	FirstFailure time.Time
	LastFailure  time.Time
	// Written is when the letter was written to its topic, to the millisecond. Zero until then; [Parse] takes the last failure
	// for it where a record does not say.
	Written time.Time

	Member      string // that gave it up
	Correlation string // in the log lines about this letter
	Batch       string // in the log lines about the batch that it was read in
}

// Header is a header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Link names an object below the place of all tables that holds a whole record; [Object] says in which form.
type Link struct {
	Key    string // as [LinkKey] makes it, "" for no link
	Bytes  int64  // of the object
	SHA256 string // of the object, in hex
	// Record says that the letter lacks the record's key and headers, too, and not only its value.
	Record bool
}

// Reason is the code of why a record cannot become a row. The list is closed: it becomes a label of metrics.
type Reason string

// Reasons that are not about the format of a value; those are the decoder's.
const (
	Isolated         Reason = "isolated"            // it alone fails for an unknown reason, while the records around it pass
	Tombstone        Reason = "tombstone"           // its value is null, and tombstones are dead letters
	NullKey          Reason = "null_key"            // its key is null, and keys are required
	UnknownField     Reason = "unknown_field"       // a field that the schema does not have, and unknown fields are dead letters
	RetriesExhausted Reason = "retries_exhausted"   // what it needed could not be had in record_retry's attempts
	BadPartition     Reason = "bad_partition_value" // its value of a partition column cannot be one
	Unspecified      Reason = "unspecified"         // an error that names no code
)

// Reasons returns the codes of this package, each once.
func Reasons() []Reason {
	return []Reason{Isolated, Tombstone, NullKey, UnknownField, RetriesExhausted, BadPartition, Unspecified}
}
