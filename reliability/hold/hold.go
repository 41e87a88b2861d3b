// Package hold defines why a claim is held: the reasons, the holds, and the errors that lead to a hold.
package hold

import (
	"errors"
	"log/slog"
	"time"

	"sluice/classify"
	"sluice/idempotency"
)

// Reason is the code of a hold. The list is closed. For each, reasons.go has the level and what ends the hold, and
// docs/operations.md has a section.
type Reason string

// The reasons of this version.
const (
	BehindLogStart   Reason = "behind_log_start"
	AheadOfLogEnd    Reason = "ahead_of_log_end"
	Truncated        Reason = "truncated"
	TopicMissing     Reason = "topic_missing"
	TooManyTopics    Reason = "too_many_topics"
	TopicRecreated   Reason = "topic_recreated"
	ClusterChanged   Reason = "cluster_changed"
	UnknownHistory   Reason = "unknown_history"
	TableReplaced    Reason = "table_replaced"
	TableUnsupported Reason = "table_unsupported"
	SchemaConflict   Reason = "schema_conflict"
	Contested        Reason = "contested"
	CommitUndecided  Reason = "commit_undecided"
	Poison           Reason = "poison"
	CorruptBatch     Reason = "corrupt_batch"
	Oversize         Reason = "oversize"
	StoreDown        Reason = "store_down"
	StoreDenied      Reason = "store_denied"
	// KafkaDown: Kafka does not answer, or its answers do not fit together for the moment, for example while a leader
	// or a topic changes.
	KafkaDown   Reason = "kafka_down"
	KafkaDenied Reason = "kafka_denied"
	// KafkaIncompatible: the server at an address does not speak Kafka's protocol, or a broker is too old.
	KafkaIncompatible Reason = "kafka_incompatible"
	Paused            Reason = "paused"
	OperationsLog     Reason = "operations_log"

	// Flood: so many records of a topic are bad that an operator must decide whether they become dead letters.
	Flood Reason = "flood"
	// DeadLettersUnavailable: dead letters cannot be written.
	DeadLettersUnavailable Reason = "dead_letters_unavailable"
	// FingerprintsUnavailable: duplicates cannot be found.
	FingerprintsUnavailable Reason = "fingerprints_unavailable"
)

// LogFunc returns the method of l that logs at the level of the reason.
func (r Reason) LogFunc(l *slog.Logger) func(msg string, args ...any) {
	switch r.Level() {
	case slog.LevelInfo:
		return l.Info
	case slog.LevelWarn:
		return l.Warn
	default:
		return l.Error
	}
}

// Hold says which partition is held and why.
type Hold struct {
	Partition idempotency.Partition `json:"-"`
	Reason    Reason                `json:"reason"`
	Detail    string                `json:"detail"`
	Since     time.Time             `json:"since"`
	// Offset is the next offset to read, -1 if unknown.
	Offset int64 `json:"offset"`
}

// Error is an error that holds the claim, because retries cannot fix the cause or have not fixed it in time. Its class
// is Fatal.
type Error struct {
	Reason Reason
	Detail string // the cause and what to do about it, for an operator; never bytes of a record
	Err    error  // the error that led to the hold, or nil
}

// New returns an [Error], marked Fatal. cause may be nil.
func New(reason Reason, detail string, cause error) error {
	return classify.Mark(&Error{reason, detail, cause}, classify.Fatal)
}

// Error returns the reason, the detail and the cause.
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Why() }

// Why returns the detail and the cause.
func (e *Error) Why() string {
	if e.Err == nil {
		return e.Detail
	}
	return e.Detail + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the reason and the detail, including the cause, of the first [Error] in the chain of err. ok is false if
// there is none.
func Of(err error) (reason Reason, detail string, ok bool) {
	held := (*Error)(nil)
	if !errors.As(err, &held) {
		return "", "", false
	}
	return held.Reason, held.Why(), true
}
