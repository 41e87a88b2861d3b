// Package deltalog is the transaction log of a Delta table: its actions, the names of its files, what a reader must
// replay and what a writer may checkpoint. It follows the Delta protocol (PROTOCOL.md of delta-io/delta) for tables of
// reader version 1 and writer version 2, reads past everything else without harm, and decides nothing: whether a table
// may be written, and what to do if another commit came first, is for package delta.
//
// Read in this order: action.go (what a commit says), state.go (what commits add up to), load.go (where to read it),
// files.go (the data files, streamed), checkpoint.go (a commit of all commits).
package deltalog
