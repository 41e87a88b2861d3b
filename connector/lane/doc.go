// Package lane decodes records into rows.
//
// The reader enqueues blocks of records of one claim. A [Lane] appends each record to the columns of its [Table], or
// keeps it as a candidate for a dead letter. A [Barrier] passes through the queues of all lanes and seals a batch: each
// lane adds what it has for the batch as a [Part]. The memory of rows and candidates counts in the batch pool until
// they are committed or dropped.
//
// [Backpressure] bounds how many records are queued. A [FetchResult] returns the memory of fetched records when the
// last of its blocks is decoded. A [Progress] shows the reader how far the records of a session have come.
package lane
