// Package commit writes sealed batches into the log of one table.
//
// A [Writer] owns one goroutine, which handles one request at a time. The reader sends requests through
// Writer.Requests and receives an [Outcome] for each. The writer has three parts:
//
//   - The committer gathers a sealed batch from the lanes, lets package plan decide it, and commits it. The order of the
//     steps in commit.go is the guarantee.
//   - The resolver reads the positions of claims, makes initial commits, and compares positions with Kafka's logs.
//   - The dedup window finds duplicates, for tables that declare an identity.
package commit
