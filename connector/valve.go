package connector

import (
	"hash/maphash"
	"sync/atomic"
)

// slots is the number of counters that keys share. Two keys with the same slot share the bound of one key; no map of keys grows
// with what records contain.
const slots = 4096

// valve bounds what is queued: handed over to the lanes and not yet a row. The reader takes before it hands over, lanes
// give back after decoding. Closing stops the hand-over; membership and heartbeats do not notice. See backpressure.
type valve struct {
	pauseAt, resumeAt, perKey int64
	seed                      maphash.Seed
	keys                      [slots]atomic.Int32
	queued                    atomic.Int64

	closed bool // owned by the reader
}

func newValve(q QueueConfig) *valve {
	return &valve{pauseAt: q.PauseAt, resumeAt: q.ResumeAt, perKey: q.PerKey, seed: maphash.MakeSeed()}
}

// slot is the counter of a record: of its key, or of its partition if it has none.
func (v *valve) slot(p Partition, key []byte) uint16 {
	if key == nil {
		return uint16(maphash.Comparable(v.seed, p) % slots)
	}
	return uint16(maphash.Bytes(v.seed, key) % slots)
}

// take reserves room for a record and tells whether there was any, for it and for its key.
func (v *valve) take(slot uint16) bool {
	// The reader alone adds, so that nothing passes between the look and the step.
	if v.full(slot) || v.queued.Load() >= v.pauseAt {
		return false
	}
	v.keys[slot].Add(1)
	v.queued.Add(1)
	return true
}

// full reports whether a slot has as many records queued as one key may have.
func (v *valve) full(slot uint16) bool { return int64(v.keys[slot].Load()) >= v.perKey }

// give returns the room of records that are rows now, or dropped.
func (v *valve) give(taken []uint16) {
	for _, s := range taken {
		v.keys[s].Add(-1)
	}
	v.queued.Add(-int64(len(taken)))
}

// isOpen looks at the thresholds: closed at pauseAt, open again at resumeAt.
func (v *valve) isOpen() bool {
	queued := v.queued.Load()
	v.closed = queued >= v.pauseAt || v.closed && queued > v.resumeAt
	return !v.closed
}
