// Package model is the commit protocol of sluice as a state machine that is small enough to try every order of steps, and
// a judge that holds recorded runs of the real code against the same rules.
//
// world.go says what a commit is, what the store does and what must hold; writer.go is a member's way from cut to group
// offset; others.go is everybody else: the group, other writers, the operator, time. epochs.go is a [Machine] of its own: one
// partition whose leaders lose records, and the leader epoch that the table keeps beside its position. [Search] visits
// every state that a machine can reach, breadth-first, so that the trace of a violation is as short as it can be. The zero
// [Rule] is the protocol as it is built; each rule reads one of its sentences another way or leaves it out, and must turn
// red. [Judge] reads a [History].
//
// # What a world has
//
//   - Two members, both of which may believe that they own any claim; claims lost one by one while the commit runs, or
//     with the commit given up; a crash at any step, with loss of all memory.
//   - A PUT that lands now, later, after its sender died, or never; its answer a 200, a 412, unclear, or lost; a GET that
//     is true at its moment.
//   - Appends by another writer without limit; a batch that fills behind the commit; dead letters, whose repeats collapse;
//     poison that holds its partition; cuts without rows.
//   - Two STARTs at once with two views of the topic's end; a topic re-created; an operator's PUT that lands late; a table
//     replaced; a member asleep past the cleanup of the log, also between two requests of one poll, and a log of which only
//     a checkpoint is left; txns that expire; requests too old to land; group offsets that fail or are old.
//   - Leaders that are elected without the newest records, and logs that grow again at the same offsets.
//
// # What must hold
//
//   - A version of the log is written once and extends a prefix without a hole.
//   - Of each claim, rows are exactly the records of [START, txn), once each; a letter is durable before txn passes its
//     record, and nothing passes poison that holds.
//   - No decided outcome contradicts the log; no committed add is without its file.
//   - No START over a history, rows without a txn included; no commit into a table that nobody accepted.
//   - No commit goes on behind a truncation, and no partition is held as truncated that lost nothing.
//   - From every state, steps without faults lead to the end: all records committed.
//
// # What is left out
//
// Several tables per topic, identities and fingerprints, replay of letters, the operations log, faults inside one PUT of a
// data file, vacuum by others, a process that sleeps between signing and sending (an old signature is refused by the
// store) or for a month between the decision to START and its commit, and a table deleted and made anew at its path. Order inside a partition is not in the model, whose rows are sets;
// the judge looks at it.
package model
