// Package commit carries sealed batches into the log of one table.
//
// A [Writer] owns a goroutine and does one thing after the other. The reader asks through [Requests] and hears of each [Outcome]:
//
//   - the committer gathers a sealed batch from the lanes, has it decided by package plan, and commits it; the order of the steps in
//     commit.go is the guarantee;
//   - the resolver finds out where claims stand, commits the first positions of a topic, and compares positions with Kafka's logs;
//   - the window finds duplicates, for tables that declare an identity.
package commit
