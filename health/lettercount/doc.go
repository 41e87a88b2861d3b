// Package lettercount counts the unresolved dead letters: records with a dead letter and without a row that members will not
// read again, be it that the table is past them or that Kafka does not have them any more. Those that an operator discarded or
// acknowledged do not count. It does no I/O: its caller reads the dead-letter topics, the tables, the ends of the topics and
// the operations log.
//
// A [Tally] is a function of what is in the topics, in the tables and in the operations log, and of nothing that happened
// meanwhile. So all members come to the same number, and so does one that just started.
package lettercount
