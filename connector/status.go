package connector

import (
	"time"

	"sluice/reliability/hold"
)

// Status is what health and operators may see, as of a moment ago.
type Status struct {
	At       time.Time
	Joined   bool // a generation is valid
	Resumed  bool // every claim knows where it stands, or holds
	Started  bool // both were true at once, now or before
	Draining bool
	Paused   bool // backpressure stops reading, for one table at least
	Queued   int64
	Claims   []ClaimStatus
	// Left are paused partitions that others may work on, behind the ends that a run until current is for.
	Left []hold.Hold
}

// ClaimStatus is one claim. Offsets are -1 while unknown.
type ClaimStatus struct {
	Partition Partition
	Table     string
	// Since is when this member got it: a claim that comes back is another one.
	Since    time.Time
	State    string
	Position int64 // in the table
	Next     int64 // read so far
	End      int64 // last stable offset
	Lag      int64 // End - Position
	Hold     *hold.Hold
	// Consumed is the next offset behind the records that are in the table, or that the open batch or the cut on its way has
	// as rows. What waits for a lane is not, nor what lies behind a record that will hold the claim.
	Consumed int64
	// Waiting is since when rows of its table wait for their commit, or letters, whichever claim they are of: those of the
	// cut on its way, too. The zero time if none do. Every is how long they should.
	Waiting time.Time
	Every   time.Duration
	// Oldest is the timestamp of the oldest record that was handed over and is not in the table, as far as it will be. Newest
	// is that of the newest row that this member brought there. The zero time if there is none.
	Oldest, Newest time.Time
	// LastRecord is when a record of it was last handed over.
	LastRecord time.Time
}
