package model

// Kind is what a produced offset must become.
type Kind uint8

const (
	// Row must be a row once a position has passed it.
	Row Kind = iota
	// Dropped is a declared drop: a tombstone, a health-check record, a duplicate.
	Dropped
	// Poison can never be a row: a position passes it only after a durable letter.
	Poison
	// Control is an offset without a committed record: a control batch, an aborted record, a hole left by
	// compaction. It is also the kind of offsets that a Source does not list.
	Control
)

// Partition is Kafka's partition with the identity of its topic.
type Partition struct {
	Topic, TopicID string
	Number         int32
}

// Values of positions that are not offsets.
const (
	// AtStart as Txn.From marks an initial commit: there was no position before. As Source.Start it allows any
	// initial position.
	AtStart = -1
	// NotRecorded as Txn.From says that the run did not record it.
	NotRecorded = -2
)

// History is a recorded run: what was produced, and what the table's log says about it.
type History struct {
	First    int64  // number of the first version: 0 for the whole log
	Table    string // table id before the first version; "" for that of the first version
	Sources  []Source
	Letters  []Letter
	Versions []Version // in the order in which they took effect
}

// Source is what was produced to a partition.
type Source struct {
	Partition Partition
	// Start is where the rows must begin: the position of the initial commit, AtStart if any is allowed.
	Start int64
	// Position is the table's position before the first version of the history, AtStart if it had none. Rows from
	// before are not in the history.
	Position int64
	Records  map[int64]Kind
}

// Letter is a dead letter that the broker has acknowledged.
type Letter struct {
	Partition Partition
	Offset    int64
	// Before is the number of the next version at the time when the letter was durable. A position that passes the
	// record may be in this version or a later one.
	Before int64
}

// Version is one commit of the table's log, as a reader finds it.
type Version struct {
	Number int64
	Table  string // table id after this version
	Member string // who wrote it, for the text of a violation; may be empty
	// Operator marks a commit of the offsets commands: it may set any positions, and the rows begin there anew.
	Operator bool
	// Accepts marks an operator's commit that accepts the table after it was replaced.
	Accepts bool
	Txns    []Txn
	// Rows are in the order of a reader: adds as the version lists them, rows as the files hold them.
	Rows []RowAt
	// Unreadable is the number of adds whose file was missing.
	Unreadable int
}

// Txn moves the position of a partition.
type Txn struct {
	Partition  Partition
	From, Next int64
}

// RowAt is the origin of a row.
type RowAt struct {
	Partition Partition
	Offset    int64
}
