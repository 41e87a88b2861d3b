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
	// Rare says that the topic gets few records. Its table is not counted when the batch pool is divided among the
	// tables.
	Rare bool
	// Retry is the retry policy for single failing records. Topics of one table agree on it.
	Retry  reliability.RecordRetry
	Commit Limits
	// HealthRecords apply to this topic alone, not to other topics of its table.
	HealthRecords HealthRecords
	// OriginKeys returns the keys of records that a replay of dead letters produces to the topic again. Every lane calls
	// it, once per record with the header, so it must not block. If it is nil, the header means nothing.
	OriginKeys func() origin.Keys
	// Letters are the rules that turn bad records of the topic into dead letters. If nil, a bad record holds its
	// partition.
	Letters *LetterRules
}

// Limits say when a batch is due: as soon as it reaches one of them.
type Limits struct {
	Every time.Duration
	Rows  int64
	Bytes int64 // bytes of Arrow buffers
}

// Target is a table with the decoder for its rows.
type Target struct {
	Table   Table
	Decoder Decoder
	// Letters writes bad records of topics that have rules for them. If nil, every bad record holds its partition.
	Letters DeadLetters
	// Nulls is true if the decoder makes rows of records without a value. Otherwise they are skipped and counted,
	// unless [Refusals] refuse them.
	Nulls bool
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

// Duplicates configures which records of a table are the same for their producer, and the store that remembers their
// fingerprints. Records of one source partition with the same identity within the window become one row. Records of
// different partitions are never duplicates of each other.
type Duplicates struct {
	Identity idempotency.Identity
	Window   time.Duration
	// Sweep is the interval at which fingerprints older than the window are deleted.
	Sweep time.Duration
	Store idempotency.Store
	// IDs is true if the store keeps the producer's ids beside the fingerprints: see [idempotency.Entry].
	IDs bool
	// Reset returns the offset of a partition below which an operator deleted the fingerprints, 0 if none. The
	// table's writer calls it, so it must not block. nil: no resets.
	Reset func(Partition) int64
}

// QueueConfig bounds the records between enqueueing and decoding.
type QueueConfig struct {
	PauseAt, ResumeAt int64 // the numbers of queued records at which backpressure begins and ends
	PerKey            int64 // the largest number of queued records of one key
}
