package connector

import (
	"log/slog"
	"time"

	"sluice/classify"
)

// Reason is the code of a hold: why a partition stands still. The list is closed and documented in docs/operations.md.
type Reason string

// The reasons of this version.
const (
	ReasonBehindLogStart   Reason = "behind_log_start"
	ReasonAheadOfLogEnd    Reason = "ahead_of_log_end"
	ReasonTruncated        Reason = "truncated"
	ReasonTopicMissing     Reason = "topic_missing"
	ReasonTooManyTopics    Reason = "too_many_topics"
	ReasonTopicRecreated   Reason = "topic_recreated"
	ReasonClusterChanged   Reason = "cluster_changed"
	ReasonUnknownHistory   Reason = "unknown_history"
	ReasonTableReplaced    Reason = "table_replaced"
	ReasonTableUnsupported Reason = "table_unsupported"
	ReasonSchemaConflict   Reason = "schema_conflict"
	ReasonContested        Reason = "contested"
	ReasonCommitUndecided  Reason = "commit_undecided"
	ReasonPoison           Reason = "poison"
	ReasonCorruptBatch     Reason = "corrupt_batch"
	ReasonOversize         Reason = "oversize"
	ReasonStoreDown        Reason = "store_down"
	ReasonStoreDenied      Reason = "store_denied"
	ReasonKafkaDown        Reason = "kafka_down"
	ReasonKafkaDenied      Reason = "kafka_denied"
	ReasonPaused           Reason = "paused"
	ReasonOperationsLog    Reason = "operations_log"

	// ReasonFlood: more records of a topic are bad than a person should let pass without a look.
	ReasonFlood Reason = "flood"
	// ReasonDeadLettersUnavailable: bad records have nowhere to go.
	ReasonDeadLettersUnavailable Reason = "dead_letters_unavailable"
	// ReasonFingerprintsUnavailable: nobody can say what is a duplicate.
	ReasonFingerprintsUnavailable Reason = "fingerprints_unavailable"
)

// tell is how loud a hold is said: ERROR if it needs a person, WARN if it ends by itself, INFO if a person wanted it.
func (r Reason) tell(l *slog.Logger) func(msg string, args ...any) {
	switch r {
	case ReasonPaused:
		return l.Info
	case ReasonTopicMissing, ReasonContested, ReasonCommitUndecided, ReasonStoreDown, ReasonKafkaDown, ReasonDeadLettersUnavailable,
		ReasonFingerprintsUnavailable:
		return l.Warn
	default:
		return l.Error
	}
}

// Hold is a partition that stands still, and why.
type Hold struct {
	Partition Partition `json:"-"`
	Reason    Reason    `json:"reason"`
	Detail    string    `json:"detail"`
	Since     time.Time `json:"since"`
	// Offset is where it stands, -1 if unknown.
	Offset int64 `json:"offset"`
}

// HoldError is an error that only a hold answers. Its class is Fatal.
type HoldError struct {
	Reason Reason
	Detail string // for a person: what was found, and what to do; never bytes of a record
	Err    error  // the cause, or nil
}

// Held returns a HoldError, marked Fatal.
func Held(reason Reason, detail string, cause error) error {
	return classify.Mark(&HoldError{reason, detail, cause}, classify.Fatal)
}

// Error names the reason, the detail and the cause.
func (e *HoldError) Error() string { return string(e.Reason) + ": " + e.Why() }

// Why returns the detail and the cause.
func (e *HoldError) Why() string {
	if e.Err == nil {
		return e.Detail
	}
	return e.Detail + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *HoldError) Unwrap() error { return e.Err }
