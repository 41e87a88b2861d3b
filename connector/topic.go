package connector

import (
	"time"

	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/origin"
)

// TopicConfig is the configuration of one topic and the name of the table that it feeds.
type TopicConfig struct {
	Topic  string
	Table  string // several topics may feed one table if they agree on Commit
	Start  Start
	Refuse Refusals
	// Rare is true if the topic gets few records. Its table then does not reduce the share of the batch pool that other
	// tables may use.
	Rare bool
	// Retry says how often and how long a single failing record is retried. All topics of one table have the same
	// policy.
	Retry  reliability.RecordRetry
	Commit Limits
	// HealthRecords apply to this topic alone, not to other topics of its table.
	HealthRecords HealthRecords
	// OriginKeys returns the keys with which a replay signs the records that it produces to the topic again. Each lane
	// calls it once per record with such a signature, so it must not block. If it is nil, such records are ordinary
	// ones.
	OriginKeys func() origin.Keys
	// Letters are the rules that turn bad records of the topic into dead letters. If nil, a bad record holds its
	// partition.
	Letters *LetterRules
}

// Limits say when a batch is due: as soon as it reaches any one of them.
type Limits struct {
	Every time.Duration
	Rows  int64
	Bytes int64 // bytes of Arrow buffers
}

// Target is a table with the decoder for its rows.
type Target struct {
	Table   Table
	Decoder Decoder
	// Letters writes the dead letters of topics that have [LetterRules]. If it is nil, every bad record holds its
	// claim.
	Letters DeadLetters
	// Duplicates configures how duplicates are found. If nil, only coordinates distinguish records.
	Duplicates *Duplicates
}

// LetterRules say when bad records of a topic become dead letters.
type LetterRules struct {
	// HoldAbove is the share, from 0 to 1, of bad records among all records of the topic in a sealed batch. Above this
	// share, and with at least 100 bad records, the claims with bad records are held (reason flood) until an operator
	// decides.
	HoldAbove float64
}

// Duplicates configures how duplicates are found in a table. Two records are duplicates if they come from the same
// source partition within the window, and the identity (what the producer calls the same) is equal: the second one
// becomes no row. Store keeps the fingerprints of the identities.
type Duplicates struct {
	Identity idempotency.Identity
	Window   time.Duration
	// Sweep is the interval at which fingerprints older than the window are deleted.
	Sweep time.Duration
	Store idempotency.Store
	// IDs is true if the store keeps the producer's ids beside the fingerprints: see [idempotency.Entry].
	IDs bool
	// Reset returns an offset of a partition: an operator has deleted the fingerprints of the records below it. It
	// returns 0 if that has not happened; a nil Reset means the same. The table's writer calls it, so it must not
	// block.
	Reset func(Partition) int64
}

// QueueConfig bounds the records between enqueueing and decoding.
type QueueConfig struct {
	PauseAt, ResumeAt int64 // the numbers of queued records at which backpressure begins and ends
	PerKey            int64 // the largest number of queued records of one key
}
