// Package lettercount counts the dead letters that stand: records with a letter, without a row, that the table is past. It asks
// nobody; whoever reads the dead-letter topics and the tables tells it what is there.
//
// A [Tally] is a function of what is in the dead-letter topics and in the tables, and of nothing that happened meanwhile. So
// all members come to the same number, and so does one that just started.
package lettercount
