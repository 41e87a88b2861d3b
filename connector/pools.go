package connector

import (
	"math"

	"sluice/reliability/bytepool"
)

// Pools are the memory budgets. They never borrow from each other. [Pools.WithDefaults] replaces a nil pool by an
// unbounded one.
//
// Fetch holds the responses of brokers and the records in them until they are decoded. Log allocates from it. The
// reader only watches it, and drops waiting fetch results when it is short.
//
// Batch holds blocks on their way to a lane (an estimate), chunks (the size of their columns), encoded files until
// they are put, and bad records until their dead letters are durable. Only the reader reserves from it, before it
// enqueues a block; lanes correct the estimate afterwards, and writers release. So no goroutine that owns a part of
// it ever waits for more.
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
