package connector

import (
	"math"

	"sluice/reliability/bytepool"
)

// Pools are the two memory budgets of a member; neither borrows from the other. A nil pool means no limit: see
// [Pools.WithDefaults].
//
// Fetch has the responses of brokers, and the records in them until they are decoded. Only the adapter to Kafka takes
// memory from it. If it is nearly used up, the reader drops fetch results that wait.
//
// Batch has blocks on their way to a lane (an estimate), chunks (the size of their columns), encoded files until they
// are put, and bad records until their dead letters are durable. Only the reader takes memory from it and may wait,
// before it enqueues a block; lanes correct the estimate afterwards, and writers release. So no goroutine that has some
// of this memory waits for more.
type Pools struct {
	Fetch, Batch *bytepool.Pool
}

// WithDefaults returns the pools with an unbounded pool in place of each nil.
func (p Pools) WithDefaults() Pools {
	if p.Fetch == nil {
		p.Fetch = bytepool.New(math.MaxInt64 / 2)
	}
	if p.Batch == nil {
		p.Batch = bytepool.New(math.MaxInt64 / 2)
	}
	return p
}
