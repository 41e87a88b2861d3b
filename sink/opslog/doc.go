// Package opslog is the operations log: everything that an operator decided about a pipeline, in the bucket, beside its
// tables. No database and no running member is needed to write it; members poll it.
//
// It is a chain of small objects _sluice/<pipeline>/ops/<seq>.json, seq being 1, 2, 3 … as 20 digits. Each is put only if
// absent, never changed and never removed, and names the SHA-256 of the one before. An object is one line of JSON:
//
//	{"seq":2,"id":"<uuid>","prev":"<SHA-256 of the object before, in hex; empty in the first>","at":"<RFC 3339, UTC>",
//	 "operator":"…","host":"…","kind":"pause","reason":"…","body":{…},"sum":"<SHA-256 of all bytes before ,"sum">"}
//
// The sum finds an object that was damaged, by itself; prev finds one that was written anew, or that is missing. Whoever
// wants to know that nothing was cut off at the end keeps a head, which is a seq with its hash ([Log.Verify]).
//
// # How an entry is added
//
// By the rules of a table's log (sink/delta/offer.go): an id of its own for each seq it is offered as; 412 may be our own
// put; a put without a known outcome is read back and put again, the same bytes as the same seq, until that seq is
// somebody's; each request needs a look at the log younger than a minute by both clocks, checked when it is ready to
// leave, else the entry before is looked at first. Who loses looks again and offers the next seq.
//
// # Later versions
//
// An entry of an unknown kind, and unknown fields of an entry, are kept, shown and part of the chain. The state passes
// over them.
package opslog
