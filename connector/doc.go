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
//	connector/intake/fetch.go     the session of the claim accepts the answer; the next request
//	connector/intake/dispatch.go  records become blocks in the queue of the claim's lane
//	connector/lane/lane.go        a record becomes a row, a candidate for a dead letter, or nothing
//	connector/intake/batch.go     why a batch is due; it is closed by a marker through all lanes
//	connector/plan/decide.go      what the closed batch will commit, pure
//	connector/commit/commit.go    steps (a) to (f): their order is the guarantee
//	sink/delta/commit.go          refresh, precondition, conditional append of the log entry
//
// This package has the words, the records and tables, and the interfaces to the world, which adapters implement: [Group] and [Log]
// connector/kafka, [Decoder] connector/decode, [Table] sink/delta. Their errors carry a class ([sluice/classify]); an error that must
// hold partitions is a [hold.Error]. Package pipeline starts and ends what moves records.
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
