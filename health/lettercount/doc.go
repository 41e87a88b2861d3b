// Package lettercount counts the unresolved dead letters: records with a dead letter and without a row that members will not
// read again, be it that the table is past them or that Kafka does not have them any more. It does no I/O: its caller reads
// the dead-letter topics, the tables and the ends of the topics.
//
// A [Tally] is a function of what is in the topics and in the tables, and of nothing that happened meanwhile. So
// all members come to the same number, and so does one that just started.
package lettercount
