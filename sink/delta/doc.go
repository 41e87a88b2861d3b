// Package delta appends rows and positions to a Delta table, exactly once.
//
// A [Table] implements connector.Table for one writer. It keeps a snapshot of the table without the data files: the
// schema and the txns, refreshed from the log before every commit. Read commit.go first: it has the steps of a commit.
// support.go decides which tables this version may write. inspect.go has what tools read from any table without
// writing.
//
// The log is the fence: one put-if-absent writes a version, and only a member that has read every version before it
// may write the next. Members need not know of each other.
package delta
