package lane

import (
	"hash/maphash"
	"sync/atomic"

	"sluice/connector"
)

// slots is the number of counters that keys share. Two keys with the same slot share the bound of one key; no map of keys grows
// with what records contain.
const slots = 4096

// Backpressure bounds what is queued: handed over to the lanes and not yet a row. The reader takes before it hands over, lanes
// give back after decoding. Closing stops the hand-over; membership and heartbeats do not notice. See backpressure.
type Backpressure struct {
	pauseAt, resumeAt, perKey int64
	seed                      maphash.Seed
	keys                      [slots]atomic.Int32
	Queued                    atomic.Int64

	active bool // owned by the reader
}

// NewBackpressure returns an open valve.
func NewBackpressure(q connector.QueueConfig) *Backpressure {
	return &Backpressure{pauseAt: q.PauseAt, resumeAt: q.ResumeAt, perKey: q.PerKey, seed: maphash.MakeSeed()}
}

// Slot is the counter of a record: of its key, or of its partition if it has none.
func (v *Backpressure) Slot(p connector.Partition, key []byte) uint16 {
	if key == nil {
		return uint16(maphash.Comparable(v.seed, p) % slots)
	}
	return uint16(maphash.Bytes(v.seed, key) % slots)
}

// Reserve reserves room for a record and tells whether there was any, for it and for its key.
func (v *Backpressure) Reserve(slot uint16) bool {
	// The reader alone adds, so that nothing passes between the look and the step.
	if v.KeyFull(slot) || v.Queued.Load() >= v.pauseAt {
		return false
	}
	v.keys[slot].Add(1)
	v.Queued.Add(1)
	return true
}

// KeyFull reports whether a slot has as many records queued as one key may have.
func (v *Backpressure) KeyFull(slot uint16) bool { return int64(v.keys[slot].Load()) >= v.perKey }

// Release returns the room of records that are rows now, or dropped.
func (v *Backpressure) Release(taken []uint16) {
	for _, s := range taken {
		v.keys[s].Add(-1)
	}
	v.Queued.Add(-int64(len(taken)))
}

// IsOpen looks at the thresholds: closed at pauseAt, open again at resumeAt.
func (v *Backpressure) IsOpen() bool {
	queued := v.Queued.Load()
	v.active = queued >= v.pauseAt || v.active && queued > v.resumeAt
	return !v.active
}
