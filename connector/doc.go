// Package connector moves records from Kafka partitions to rows of Delta tables, exactly once.
//
// # The path of a record
//
//	kafka ─ fetched ─▶ intake ─ blocks ─▶ lane ─ parts ─▶ commit ─ plan ─▶ sink/delta
//	                   intake ◀──────── outcomes ──────── commit
//
// It can be read in eight files, in this order:
//
//	connector/kafka/fetcher.go    one request per broker: checksums, aborted records, the next offset
//	connector/intake/fetch.go     the claim's session accepts the fetch result; the next request
//	connector/intake/dispatch.go  records become blocks in the queue of the claim's lane
//	connector/lane/lane.go        a record becomes a row, a candidate for a dead letter, or nothing
//	connector/intake/batch.go     why a batch is due; a barrier through all lanes seals it
//	connector/plan/decide.go      what the sealed batch will commit; pure
//	connector/commit/commit.go    steps (a) to (f): their order is the guarantee
//	sink/delta/commit.go          refresh, precondition, conditional append of the log entry
//
// This package defines the words below, the records and tables, and the interfaces that adapters implement: [Group]
// and [Log] in connector/kafka, [Decoder] in connector/decode, [Table] in sink/delta. Errors of adapters carry a
// class ([sluice/classify]). An adapter that wants a partition to be held returns a [hold.Error]. Package pipeline
// starts and stops the goroutines.
//
// # The rule
//
// The table is the truth about progress: each commit contains the rows AND, for every claim in it, a Delta txn with the
// next offset to read. A commit is legal only if, in exactly the log prefix that it extends, the txn of each of its
// claims equals the offset at which the batch started for that claim. Every other step may fail, repeat, or be done by
// two members at once.
//
// # The words
//
// Each thing has one word. Brackets give the name that Kafka or Delta uses.
//
//	record       a Kafka record; a record batch is Kafka's unit of records in a log
//	coordinates  cluster, topic id, partition, offset: the identity of a record
//	block        at most 1000 records of one claim on their way to a lane
//	row          a decoded record
//	candidate    a record that cannot become a row: it becomes a dead letter, or it holds its claim
//	dead letter  the unchanged record of a candidate, with the reason; durable before a position passes the record
//	pending      a dead letter whose offset no txn has passed yet: its record will be read again
//	void         a dead letter whose record has become a row after all: it no longer counts
//	chunk        rows of one lane and table; becomes a row group
//	run          adjacent rows of a chunk that come from one session of a claim
//	batch        the rows and candidates of one table between two commits; open until it is sealed
//	sealed       of a batch: it takes no more records, and {claim → [from, next)} says which offsets it covers
//	barrier      passes through the queues of all lanes; each lane adds its part of the sealed batch to it
//	plan         what a sealed batch will commit
//	commit       a version of the table
//	partition    Kafka's partition
//	claim        a partition that this member works on [assigned partition]
//	session      a stretch of reading a claim from one position on; data that carries an older session is dropped
//	position     the next offset to read, kept in the table [txn.version]
//	snapshot     the table as of one version
//	initial commit  the first commit of a topic or of added partitions: it sets positions and adds no rows
//	precondition what must be true of the log prefix that a commit extends
//	committed offset  the group's offset in Kafka: a hint, written after the table
//	guard        the retries and the circuit breaker around one dependency
//	finding      the result of a check that says why a claim must not be read, for example a position outside its log
//	hold         a claim that stopped for a named reason; no record is skipped
//	drain        the time between the signal to stop and the exit
//	member       one process of the group [group member]
//	reader       the goroutine that owns the claims of a member: it fetches, enqueues and seals
//	lane         a goroutine that decodes
//	writer       the goroutine of one table that decides and commits its batches, and reads positions
//	backpressure stops the reading of records that have no room: of the lanes, whose queue is full (the type
//	             lane.Backpressure); of a table, whose next batch is full while one commits; or in the batch pool
//	class        the kind of an error: transient, poison, fatal, fenced, canceled
package connector
