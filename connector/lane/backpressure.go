package lane

import (
	"hash/maphash"
	"sync/atomic"

	"sluice/connector"
)

// slots is the number of counters for keys. The hash of a key selects its counter, so keys can share a counter; then
// the limit for one key applies to all of them together. A map with a counter for each key would grow without a limit.
const slots = 4096

// Backpressure limits the number of queued records: those that the reader has enqueued and the lanes have not decoded
// yet. The reader calls Reserve before it enqueues, the lanes call Release after they have decoded. While backpressure
// is active the reader enqueues nothing; group membership and heartbeats continue.
type Backpressure struct {
	pauseAt, resumeAt, perKey int64
	seed                      maphash.Seed
	keys                      [slots]atomic.Int32
	Queued                    atomic.Int64 // the number of queued records

	active bool // only the reader uses it
}

// NewBackpressure returns an inactive backpressure.
func NewBackpressure(q connector.QueueConfig) *Backpressure {
	return &Backpressure{pauseAt: q.PauseAt, resumeAt: q.ResumeAt, perKey: q.PerKey, seed: maphash.MakeSeed()}
}

// Slot returns the number of the counter for a record: by its key, or by its partition if the key is null.
func (b *Backpressure) Slot(p connector.Partition, key []byte) uint16 {
	if key == nil {
		return uint16(maphash.Comparable(b.seed, p) % slots)
	}
	return uint16(maphash.Bytes(b.seed, key) % slots)
}

// Reserve counts a record as queued, in its slot and in total. It returns false, and counts nothing, if the slot has as
// many records as one key may have or the queue is full.
func (b *Backpressure) Reserve(slot uint16) bool {
	// Only the reader adds records, so between this check and the increment the counters can only fall.
	if b.KeyFull(slot) || b.Queued.Load() >= b.pauseAt {
		return false
	}
	b.keys[slot].Add(1)
	b.Queued.Add(1)
	return true
}

// KeyFull reports whether the slot has as many queued records as one key may have.
func (b *Backpressure) KeyFull(slot uint16) bool { return int64(b.keys[slot].Load()) >= b.perKey }

// Release subtracts records that were decoded or dropped from the counters; taken has the slot of each.
func (b *Backpressure) Release(taken []uint16) {
	for _, s := range taken {
		b.keys[s].Add(-1)
	}
	b.Queued.Add(-int64(len(taken)))
}

// IsOpen reports whether the reader may enqueue. Once pauseAt records are queued, the reader must pause until the
// number falls to resumeAt. Only the reader calls IsOpen.
func (b *Backpressure) IsOpen() bool {
	queued := b.Queued.Load()
	b.active = queued >= b.pauseAt || b.active && queued > b.resumeAt
	return !b.active
}
