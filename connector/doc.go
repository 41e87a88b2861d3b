// Package connector is the way of a record from a Kafka partition to a row of a Delta table, exactly once.
//
// # The way
//
//	Group ─ assignment ─▶ reader ◀─ settled, fenced, held ─ writer ─▶ Table
//	Log ─── fetched ────▶ reader ─ blocks ─▶ lanes ─ chunks ─▶ cut ─▶ writer
//
// One reader knows all claims of this member: where each stands, what may be fetched, and when a batch is due. Lanes,
// one per core, turn blocks of records into chunks of rows. One writer per table decides what a cut will commit
// ([decide], pure) and commits it ([writer.commit], the order of its steps is the guarantee). Follow a record
// through kafka/fetcher.go, reader.go, dispatch.go, lane.go, cut.go, decide.go, commit.go and sink/delta/commit.go.
//
// # The rule
//
// The table is the truth about progress: each commit holds the rows AND, for every claim in it, a Delta txn with the
// next offset to read. It is legal only if the table's txn equals the offset where the batch started, in the very log
// prefix that the commit extends. Everything else may fail, repeat, or be done by two members at once.
//
// # The words
//
// One word per thing; in brackets what Kafka or Delta call it.
//
//	record       a Kafka record; record batch as in Kafka's protocol
//	coordinates  cluster, topic id, partition, offset: what makes a record itself
//	block        at most 1000 records of one claim on their way to a lane
//	row          a decoded record
//	candidate    a record that could not become a row
//	dead letter  a candidate's record, unchanged, with why; in a topic of its own before a position passes it
//	chunk        rows of one lane and table; becomes a row group
//	run          rows of a chunk that lie side by side and stem from one claim
//	batch        what fills, per table
//	cut          a batch closed at {claim → [from, next)}
//	plan         what a cut will commit
//	commit       a version of the table
//	partition    Kafka's partition
//	claim        a partition that this member works on [assigned partition]
//	session      one life of a claim, from resume to loss, fence or hold; what carries another session is dropped
//	position     the next offset to read, kept in the table [txn.version]
//	START        the first commit of a claim
//	PRE          what must hold of the log prefix that a commit extends
//	group offset Kafka's committed offset: a hint, written after the table
//	guard        retry and breaker around one dependency
//	hold         a claim stands still, with a reason; nothing is skipped
//	drain        what happens between the signal to stop and the end
//	member       one process of the group [group member]
//	lane         a goroutine that decodes
//	valve        stops the hand-over to the lanes while too much is queued
//	class        what an error means: transient, poison, fatal, fenced, canceled
package connector
