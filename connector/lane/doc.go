// Package lane makes rows of records.
//
// The reader enqueues blocks of records of one claim; a [Lane] appends each record to the columns of the [Table] that its topic
// feeds, or keeps it as a candidate for a dead letter. A marker that passes through the queues of all lanes closes a batch: what
// each lane has for it becomes a [Part] of a [Barrier] batch. What a lane holds counts in the batch pool until then.
//
// A [Backpressure] bounds how many records are queued, an [FetchResult] gives the memory of what was fetched back when the last of its blocks is
// done, and a [Progress] tells the reader how far the records of a session have come.
package lane
