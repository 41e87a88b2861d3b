// Package opslog is the operations log: every decision of an operator about a pipeline, stored in the bucket beside
// the tables. Writing it needs neither a database nor a running member; members poll it.
//
// The log is a chain of small objects _sluice/<pipeline>/ops/<seq>.json, where seq counts 1, 2, 3 … in 20 digits.
// Each object is put with IfAbsent, never changed and never removed, and names the SHA-256 of the object before it.
// An object is one line of JSON:
//
//	{"seq":2,"id":"<uuid>","prev":"<SHA-256 of the object before, in hex; empty in the first>","at":"<RFC 3339, UTC>",
//	 "operator":"…","host":"…","kind":"pause","reason":"…","body":{…},"sum":"<SHA-256 of all bytes before ,"sum">"}
//
// An entry may also have a field "once" before its body, with the hashes of a key and of a request; see [Once].
// Entries after a snapshot have a field "snapshot" with its seq.
//
// The sum reveals a damaged object by itself. The prev field reveals an object that is missing or was rewritten. Only
// a kept head, a seq with its hash, reveals that entries were cut off at the end ([Log.Verify]).
//
// # How an entry is added
//
// An entry is appended by the rules of a table's log, which package logappend implements. An entry gets a new id for
// each seq that it is tried at. A response of 412 may mean our own earlier put. A put with an unknown outcome is read
// back and repeated, the same bytes as the same seq, until an entry exists at that seq. Each put needs a check of the
// previous entry that is younger than a minute by both clocks. After a conflict the writer refreshes the chain and
// tries the next seq.
//
// # Snapshots
//
// After each [SnapshotEvery] entries, the process that appended the last one adds a [Snapshot]: the state of all entries
// up to then. It is an entry like any other, so it needs no rights, objects or rules of its own. Bytes that do not fit
// into one entry are in entries with a [SnapshotPart] before it. Other operations may come between them.
//
//   - Each later entry names the newest snapshot. A process that starts finds the last entry by a binary search of HEAD
//     requests, reads the snapshot that it names, and then the entries after the state. The chain from there on contains
//     the snapshot and its parts, so their hashes are verified like those of all entries. If something does not fit, the
//     process reads all entries, and so finds which one is bad.
//   - A snapshot that no later entry names is not used, because nothing would reveal that it was rewritten.
//   - A snapshot may be missing, late or incomplete: a start then reads more entries. So the operation before it succeeds
//     even if it cannot be written, and waits at most ten seconds for it.
//   - One process writes a snapshot. Another one that sees its first entry stops, and tries again after a thousand entries
//     if the snapshot is still missing.
//   - [Log.Verify] reads all entries and compares each snapshot with the state that they make.
//
// # Later versions
//
// Entries of an unknown kind, and unknown fields, are kept, listed and hashed like others. They do not affect the
// state. Since a snapshot of another version may lack the effect of some entries, each has the number of its format, and
// a version uses only snapshots of its own format.
package opslog
