// Package intake decides what is read, and when a batch is closed.
//
// A [Reader] owns all claims of this member, on one goroutine. It asks [connector.Log] for records, enqueues them to the lanes, closes
// batches, and hears from the writers what became of them. It waits for nobody but a lane.
//
// Files in the order of the work: reader.go (assignments, the loop), claim.go (states and holds), dispatch.go (records to lanes),
// batch.go (when a batch is due, the drain), outcomes.go (what writers say), pause.go (what operators decided), reserve.go and
// shed.go (memory), show.go (the status).
package intake
