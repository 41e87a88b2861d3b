// Package delta appends rows and positions to a Delta table, exactly once.
//
// A [Table] implements connector.Table for one writer. What it knows of the table is a snapshot without data files: the
// schema and the txns, refreshed from the log before every commit. The way of a commit is in commit.go, which is to be
// read first; what makes a table one that this version may write is in support.go; what tools may ask of any table,
// without writing, is in inspect.go.
//
// The log is the fence. A version is written by one put-if-absent, and only a member that has read every version before
// it can have the right to write it. Members need not know of each other.
package delta
