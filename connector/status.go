package connector

import (
	"time"

	"sluice/reliability/hold"
)

// Status is a snapshot of a member for health checks and operators.
type Status struct {
	At       time.Time
	Joined   bool // true while a generation is valid
	Resumed  bool // true if every claim knows its position or is held
	Started  bool // true once Joined and Resumed have been true at the same time
	Draining bool
	Paused   bool  // true if backpressure stops reading for at least one table
	Queued   int64 // the number of records that wait for a lane
	Claims   []ClaimStatus
	// Left lists the partitions that a run with UntilCurrent leaves out: their positions are before the end that the
	// log had at the start of the run, but an operator has paused them and they are no claims of this member. Each
	// element is the hold of the pause.
	Left []hold.Hold
	// Flushes has an element for each table that an operator has requested to flush: what became of the newest request.
	Flushes []Flush
}

// FlushState is the state of a requested flush.
type FlushState string

// The states.
const (
	FlushWaits   FlushState = "waiting" // a batch is on its way; the next one can only be sealed after its outcome
	FlushSealed  FlushState = "sealed"  // a batch was sealed; its commit follows
	FlushNothing FlushState = "nothing" // nothing waited for a commit
)

// Flush says what became of an operator's newest request to flush a table.
type Flush struct {
	Table   string     `json:"table"`
	Request int64      `json:"operation"` // number of the request
	State   FlushState `json:"state"`
	At      time.Time  `json:"at"` // when it got this state
	// The batch that was sealed, and how many partitions and offsets it has.
	Batch      string `json:"batch_id,omitempty"`
	Partitions int    `json:"partitions"`
	Offsets    int64  `json:"offsets"`
}

// ClaimStatus is the status of one claim. Offsets are -1 while unknown.
type ClaimStatus struct {
	Partition Partition
	Table     string
	// Since is when the member got the claim. A claim that was lost and comes back has a new Since.
	Since    time.Time
	State    string // "resuming", "reading" or "held"
	Position int64  // the position in the table
	Next     int64  // the next offset to be read
	End      int64  // the last stable offset
	Lag      int64  // End - Position
	Hold     *hold.Hold
	// Consumed is the offset up to which records are in the table, the open batch or the sealed batch. Records that
	// become no row count, too.
	Consumed int64
	// Waiting is when the oldest row or dead letter of the claim's table began to wait for its commit, in the open or
	// the sealed batch; it may be of another claim. It is zero if none waits. Every is how long they may wait
	// (commit.every).
	Waiting time.Time
	Every   time.Duration
	// Oldest is the smallest timestamp of the claim's records that were enqueued and not committed yet, without records
	// that a lane has skipped. Newest is the timestamp of the newest row that this member has committed. Each is zero
	// if there is no such record.
	Oldest, Newest time.Time
	// LastRecord is when a record of the claim was last enqueued.
	LastRecord time.Time
}
