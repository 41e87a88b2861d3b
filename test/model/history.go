package model

// Kind is what a produced offset must become.
type Kind uint8

const (
	// Row must be a row once a position has passed it.
	Row Kind = iota
	// Dropped is left out on purpose: a tombstone, a health-check record, a duplicate.
	Dropped
	// Poison can never be a row: a position passes it only after a durable letter.
	Poison
	// Control is an offset without a committed record: a control batch, an aborted record, a hole left by
	// compaction. It is also the kind of offsets that a Source does not list.
	Control
)

// Partition is a Kafka partition of one topic id.
type Partition struct {
	Topic, TopicID string
	Number         int32
}

// Values of positions that are not offsets.
const (
	// AtStart as Txn.From marks an initial commit. As Source.Start it allows any initial position, as Source.Position
	// it says that the table had none.
	AtStart = -1
	// NotRecorded as Txn.From says that the run did not record the position at which the batch started.
	NotRecorded = -2
)

// History is a recorded run: the records that were produced, the dead letters, and the versions of the table's log.
type History struct {
	First    int64  // number of the first version; 0 if the history has the whole log
	Table    string // table id before the first version; "" if it is that of the first version
	Sources  []Source
	Letters  []Letter
	Versions []Version // in the order in which they took effect
}

// Source is the records that were produced to a partition.
type Source struct {
	Partition Partition
	// Start is the position that the initial commit must set; AtStart if any is allowed.
	Start int64
	// Position is the table's position before the first version of the history, AtStart if it had none. Rows of
	// earlier versions are not in the history.
	Position int64
	Records  map[int64]Kind
}

// Letter is a dead letter that the broker has acknowledged.
type Letter struct {
	Partition Partition
	Offset    int64
	// Before is the number of the version that was next to be written when the letter became durable. A version with a
	// smaller number must not have a position that passes the record.
	Before int64
}

// Version is one commit of the table's log, as a reader finds it.
type Version struct {
	Number int64
	Table  string // table id after this version
	Member string // the member that wrote it, for the text of a violation; may be empty
	// Operator marks a commit by a command that moves positions, such as offsets set: it may set any position, and
	// records from there on must have rows again.
	Operator bool
	// Accepts marks an operator's commit that accepts a replaced table.
	Accepts bool
	Txns    []Txn
	// Rows are in the order in which a reader gets them: adds as the version lists them, rows as the files hold them.
	Rows []RowAt
	// Unreadable is the number of adds whose file was missing.
	Unreadable int
}

// Txn moves the position of a partition from From to Next.
type Txn struct {
	Partition  Partition
	From, Next int64
}

// RowAt is the record from which a row was made.
type RowAt struct {
	Partition Partition
	Offset    int64
}
