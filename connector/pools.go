package connector

import (
	"math"

	"sluice/reliability/bytepool"
)

// Pools are the budgets of memory. They never borrow from each other. nil is no bound.
//
// Fetch holds responses of brokers and the records in them until they are rows. The reader only looks at it, to shed
// what waits; Log takes from it.
//
// Batch holds rows: blocks on their way to a lane by an estimate, chunks by what their columns take, encoded files until
// they are put; and bad records until their letters are durable. The reader alone asks for it, before it hands a block over; lanes correct the estimate afterwards, and
// writers give back. So nobody who holds a part of it ever waits for more.
type Pools struct {
	Fetch, Batch *bytepool.Pool
}

// WithDefaults returns the pools with one that bounds nothing for each that is nil.
func (p Pools) WithDefaults() Pools {
	if p.Fetch == nil {
		p.Fetch = bytepool.New(math.MaxInt64 / 2)
	}
	if p.Batch == nil {
		p.Batch = bytepool.New(math.MaxInt64 / 2)
	}
	return p
}
