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
// # Later versions
//
// Entries of an unknown kind, and unknown fields, are kept, listed and hashed like others. They do not affect the
// state.
package opslog
