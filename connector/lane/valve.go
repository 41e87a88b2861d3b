package lane

import (
	"hash/maphash"
	"sync/atomic"

	"sluice/connector"
)

// slots is the number of counters that keys share. Two keys with the same slot share the bound of one key; no map of keys grows
// with what records contain.
const slots = 4096

// Valve bounds what is queued: handed over to the lanes and not yet a row. The reader takes before it hands over, lanes
// give back after decoding. Closing stops the hand-over; membership and heartbeats do not notice. See backpressure.
type Valve struct {
	pauseAt, resumeAt, perKey int64
	seed                      maphash.Seed
	keys                      [slots]atomic.Int32
	Queued                    atomic.Int64

	closed bool // owned by the reader
}

// NewValve returns an open valve.
func NewValve(q connector.QueueConfig) *Valve {
	return &Valve{pauseAt: q.PauseAt, resumeAt: q.ResumeAt, perKey: q.PerKey, seed: maphash.MakeSeed()}
}

// Slot is the counter of a record: of its key, or of its partition if it has none.
func (v *Valve) Slot(p connector.Partition, key []byte) uint16 {
	if key == nil {
		return uint16(maphash.Comparable(v.seed, p) % slots)
	}
	return uint16(maphash.Bytes(v.seed, key) % slots)
}

// Take reserves room for a record and tells whether there was any, for it and for its key.
func (v *Valve) Take(slot uint16) bool {
	// The reader alone adds, so that nothing passes between the look and the step.
	if v.Full(slot) || v.Queued.Load() >= v.pauseAt {
		return false
	}
	v.keys[slot].Add(1)
	v.Queued.Add(1)
	return true
}

// Full reports whether a slot has as many records queued as one key may have.
func (v *Valve) Full(slot uint16) bool { return int64(v.keys[slot].Load()) >= v.perKey }

// Give returns the room of records that are rows now, or dropped.
func (v *Valve) Give(taken []uint16) {
	for _, s := range taken {
		v.keys[s].Add(-1)
	}
	v.Queued.Add(-int64(len(taken)))
}

// IsOpen looks at the thresholds: closed at pauseAt, open again at resumeAt.
func (v *Valve) IsOpen() bool {
	queued := v.Queued.Load()
	v.closed = queued >= v.pauseAt || v.closed && queued > v.resumeAt
	return !v.closed
}
