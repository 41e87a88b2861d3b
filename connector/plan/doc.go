// Package plan decides what a batch of records commits. It is pure: nothing outside its arguments steers it, it starts no goroutine
// and asks nobody.
//
// [Decide] makes a [Plan] of a [SealedBatch], which is a closed batch, and of the newest snapshot of the table; [Initial] and [Moves] make the
// plans that set positions alone. A plan says what the next version of the table contains, and its Precondition what must hold of
// the log that the version extends.
//
// [Finding], [JudgePast] and [RowsBefore] say why a position cannot be read from, or a partition cannot begin; [Derive] says the same for
// tools.
package plan
