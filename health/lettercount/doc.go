// Package lettercount counts the unresolved dead letters: records with a dead letter and without a row that members
// will not read again, because the table's position is past them or because Kafka has deleted them. Records that an
// operator discarded or acknowledged do not count. The package does no I/O: its caller reads the dead-letter topics,
// the tables, the ends of the topics and the operations log. The count of a [Tally] depends only on the present
// content of topics, tables and operations log. So all members come to the same number, also a member that has just
// started.
package lettercount
