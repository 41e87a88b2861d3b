// Package lettercount counts the unresolved dead letters: records with a dead letter and without a row that members will not
// read again, because the table is past them or because Kafka no longer has them. It does no I/O: its caller reads the
// dead-letter topics, the tables and the ends of the topics.
//
// The count of a [Tally] depends only on the present content of topics and tables. So all members come to the same number,
// also one that has just started.
package lettercount
