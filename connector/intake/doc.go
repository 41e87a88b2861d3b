// Package intake decides which records are fetched and when a batch is sealed.
//
// A [Reader] owns all claims of this member, on one goroutine. It requests records from [connector.Log], enqueues
// them to the lanes, seals batches, and receives the outcomes of the writers. While it runs it waits only for a
// lane, to enqueue a barrier; during the drain it also waits for the group's committed offsets to be written.
//
// The reader is a loop and the parts that do the work. Each part calls only parts above it in this list:
//
//	room          shares the batch pool: which claim gets memory, which table is sealed to free some
//	holds         sets the states of claims: stop, request their position, release
//	fetches       sends requests to the log; queues the fetch results with their claims
//	pauseLog      counts and logs pauses of reading
//	dispatcher    enqueues records of a fetch result to the lane of their claim
//	current       decides whether a run until current is done
//	batcher       decides when a batch is due, and seals it
//	assignment    maps partitions to claims, and topics to tables
//	outcomes      applies the writers' results to tables and claims
//	status        publishes the status
package intake
