package model

// Kind says what becomes of a produced offset.
type Kind uint8

const (
	// Row must become a row as soon as a position passes it.
	Row Kind = iota
	// Dropped is a declared drop: a tombstone, a health-check record, a declared duplicate.
	Dropped
	// Poison can never become a row: a position passes it only after a durable letter.
	Poison
	// Control is an offset without a committed record: a control batch, an aborted record, a hole left by compaction.
	// Offsets that a Source does not name are taken as this.
	Control
)

// Partition is Kafka's, with the identity of its topic.
type Partition struct {
	Topic, TopicID string
	Number         int32
}

// Positions that are no offset.
const (
	// AtStart as From of a Txn marks a START: there was no position before. As Start of a Source it says that the START
	// may be anywhere.
	AtStart = -1
	// NotRecorded as From of a Txn says that the run did not record it.
	NotRecorded = -2
)

// History is a recorded run: what was produced, and what the table's log says about it.
type History struct {
	First    int64  // number that the first version must have: 0 for the whole log
	Table    string // table id before the first version; empty: that of the first version
	Sources  []Source
	Letters  []Letter
	Versions []Version // in the order in which they took effect
}

// Source is what was produced to a partition.
type Source struct {
	Partition Partition
	// Start is where the rows must begin: what the START commit has to say, AtStart if it is free to choose.
	Start int64
	// Position is where the table stood before the first version of the history, AtStart if it had no position. Rows from
	// before are not in the history.
	Position int64
	Records  map[int64]Kind
}

// Letter is a dead letter that the broker has acknowledged.
type Letter struct {
	Partition Partition
	Offset    int64
	// Before is the number that the next version had when the letter was durable. A position that passes the record may
	// be in this version or a later one.
	Before int64
}

// Version is one commit of the table's log, as a reader finds it.
type Version struct {
	Number int64
	Table  string // table id after this version
	Member string // who wrote it, for the words of a violation; may be empty
	// Operator marks a commit of the offsets commands: its positions may go anywhere, and rows begin there anew.
	Operator bool
	// Accepts marks an operator's commit that accepts the table after it was replaced.
	Accepts bool
	Txns    []Txn
	// Rows are in the order of a reader: adds as the version lists them, rows as the files hold them.
	Rows []RowAt
	// Unreadable counts adds whose file was not there.
	Unreadable int
}

// Txn moves the position of a partition.
type Txn struct {
	Partition  Partition
	From, Next int64
}

// RowAt is where a row comes from.
type RowAt struct {
	Partition Partition
	Offset    int64
}
