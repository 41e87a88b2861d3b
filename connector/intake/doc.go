// Package intake decides what is read, and when a batch is closed.
//
// A [Reader] owns all claims of this member, on one goroutine. It asks [connector.Log] for records, enqueues them to the lanes, closes
// batches, and hears from the writers what became of them. It waits for nobody but a lane.
//
// The reader is its loop and the parts that do the work; each part knows those above it in this list:
//
//	room        the batch pool: which claim gets room, which table is closed for want of it
//	holds       the states of claims: stop, ask, release
//	fetches     requests to the log, and the answers that wait with their claims
//	backpressure  pauses of reading, counted and logged
//	dispatcher  records of an answer to the queue of the claim's lane
//	current     whether a run until current is done
//	batcher     why a batch is due; closing it
//	assignment  which partitions are claims, and which tables they feed
//	outcomes    what follows from what a writer did
//	status      what others may see
package intake
