// Package deltalog reads and writes the transaction log of a Delta table: its actions, the names of its files, the
// replay of commits, and checkpoints. It follows the Delta protocol (PROTOCOL.md of delta-io/delta) for tables of
// reader version 1 and writer version 2. Actions and fields of other versions are skipped; they cause no error. The
// package makes no decisions: package delta decides whether a table may be written, and what happens after a conflict.
//
// Read in this order: action.go (what a commit holds), state.go (the result of replaying commits), load.go (where to
// read), files.go (the data files, streamed), checkpoint.go (writing a checkpoint).
package deltalog
