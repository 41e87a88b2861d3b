package connector

import (
	"time"

	"sluice/idempotency"
	"sluice/reliability"
)

// TopicConfig is one topic and the table that it feeds.
type TopicConfig struct {
	Topic  string
	Table  string // its name; one table may be fed by many topics, which agree on Commit
	Start  Start
	Refuse Refusals
	// Rare says that the topic has few records, if any: its table does not count among those that share memory.
	Rare bool
	// Retry is for what fails with single records; topics of one table agree on it.
	Retry  reliability.RecordRetry
	Commit Limits
	// HealthRecords are those of this topic alone, whatever else feeds the table.
	HealthRecords HealthRecords
	// Letters are the rules by which bad records of the topic become dead letters; nil: a bad record holds its partition.
	Letters *LetterRules
}

// Limits say when a batch is due: what comes first.
type Limits struct {
	Every time.Duration
	Rows  int64
	Bytes int64 // of Arrow buffers
}

// Target is a table with the decoder of its rows.
type Target struct {
	Table   Table
	Decoder Decoder
	// Letters takes bad records of the topics that have rules for them. Without it every bad record holds its partition.
	Letters DeadLetters
	// Nulls says that the decoder makes rows of records without a value, too. Else they are passed over and counted.
	Nulls bool
	// Duplicates says which records of the table are the same for their producer; nil: coordinates alone tell records apart.
	Duplicates *Duplicates
}

// LetterRules say when bad records of a topic become dead letters.
type LetterRules struct {
	// HoldAbove is the share, from 0 to 1, of bad records among all of the topic in a cut above which an operator is to
	// look first: hold flood.
	HoldAbove float64
}

// Duplicates says which records of a table are the same for their producer, and what remembers them. Those of one source
// partition within the window become one row; nothing else is compared.
type Duplicates struct {
	Identity idempotency.Identity
	Window   time.Duration
	// Sweep is how often what is older than the window is forgotten.
	Sweep time.Duration
	Store idempotency.Store
	// IDs says that the store keeps the producer's ids beside the fingerprints: see [idempotency.Entry].
	IDs bool
	// Reset returns the offset of a partition below which an operator had rows forgotten, 0 if none. Asked by the table's
	// writer, it answers at once. nil: never.
	Reset func(Partition) int64
}

// QueueConfig bounds the records between hand-over and row.
type QueueConfig struct {
	PauseAt, ResumeAt int64 // the valve
	PerKey            int64
}
