// Package model is the commit protocol as a state machine, small enough to try every order of steps. It also has a
// judge that checks recorded runs of the real code against the same rules.
//
// world.go defines a commit, the store and the rules. writer.go has the steps of a member from the sealed batch to the
// committed offsets. others.go has the steps of the group, other writers, the operator, and time. epochs.go is a second
// [Machine]: one partition whose leaders lose records, and the leader epoch that the table stores beside the position.
// topicreplay.go is a third one: replays of dead letters through their topic, beside direct replays and discards.
// [Search] visits every state that a machine can reach, breadth-first, so that the trace of a violation is the shortest
// one. The zero [Rule] is the protocol as built. Each bit of a Rule is one deviation from the protocol, for which the
// search must find a violation; only the deviation Final404Last is correct. [Judge] checks a [History].
//
// # What a world has
//
//   - Two members, both of which may believe that they own any claim. A member loses single claims during its commit,
//     or it gives up the commit and all claims. It may crash at any step and lose all memory.
//   - A PUT that takes effect now, later, after its sender died, or never. Its response is a 200, a 412, unclear, or
//     lost. A GET shows the log as it is at that moment.
//   - Appends by another writer without limit; a batch that is open while another is committed; dead letters that are
//     written twice; poison records that hold their partition; batches without rows.
//   - Two initial commits at once with different views of the topic's end; a topic created again; an operator's PUT
//     that takes effect late; a table replaced; a member that sleeps until log entries are cleaned up, also between two
//     requests of one poll; a log of which only a checkpoint is left; txns that expire; requests too old to take
//     effect; committed offsets that are not written or are old.
//   - Leaders elected without the newest records, and logs that grow again at the same offsets.
//   - Replays that are killed, repeat requests, leave records out, withdraw each other and choose the same dead letters;
//     discards of dead letters meanwhile.
//
// # What must hold
//
//   - Each version of the log is written once, directly after the version before it.
//   - The rows of a claim are exactly the records from its initial position to its txn, once each. A letter is durable
//     before the txn passes its record, and no txn passes a poison record that holds its claim.
//   - A commit that a member counts as committed is in the log. A commit that a member counts as failed is not in the
//     log and never will be. Each committed add has its file.
//   - A partition that the table already knows gets no initial commit, even if only rows without a txn show that. A
//     replaced table gets no commit before an operator has accepted it.
//   - No commit puts rows after rows whose records the log has lost. No partition is held as truncated unless its log
//     has lost records that have rows.
//   - A dead letter that replays make a row of has one row, and a discarded one none. A dead letter counts as replayed
//     only if it has a row. One with a row is never free for another replay.
//   - From every state, steps without faults lead to the end: all records committed.
//
// # What is left out
//
// Several tables per topic, identities and fingerprints, pauses, moves beside a replay, faults inside one
// PUT of a data file, and vacuum by others. A process that sleeps between signing and sending a request (the store
// refuses an old signature), or for a month between deciding an initial commit and committing it. A table deleted
// and created again at its path. The order of rows within a partition: the model's rows are sets, so only the judge
// checks their order.
package model
