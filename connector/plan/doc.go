// Package plan decides what a batch of records commits. It is pure: results depend on the arguments alone, and no
// function starts a goroutine or does I/O.
//
// [Decide] makes a [Plan] from a [SealedBatch] and the newest snapshot of the table. [Initial] and [Moves] make
// plans that set positions and add no rows. A plan is the content of the table's next version; its Precondition
// checks the log prefix that the version extends.
//
// [Finding], [JudgePast] and [RowsBefore] say why a position cannot be read from, or why a partition must not make its
// initial commit. [Derive] says the same for tools.
package plan
