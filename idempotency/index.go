package idempotency

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"
)

// An index maps fingerprints to times, at about 23 bytes each: 16 and 4, with one slot in seven empty.
//
// Each shard is a hash table with open addressing. Fingerprints are random, so their first 64 bits are the hash, and
// the entries of a shard are in ascending order: a lookup ends at the first greater entry, and growing and sweeping are
// one pass in order. Shards grow one at a time and by an eighth, so the index never needs twice its memory. A small
// index has one shard.
type index struct {
	base   int64   // in milliseconds since 1970; the times of slots count from here
	count  int     // number of entries
	shift  uint8   // the first shift bits of a fingerprint are the number of its shard
	shards []shard // nil while the index is empty
}

const (
	slotBytes  = 20
	shardBytes = 40
	// indexBytes is the size in bytes of an index without entries.
	indexBytes = 128
	// An index with splitAt entries is split into 2^splitBits shards.
	splitAt, splitBits = 8192, 6
	// A shard grows once its entries are fillNum/fillDen of its home slots.
	fillNum, fillDen = 9, 10
)

type slot struct {
	f  Fingerprint // zero if the slot is empty
	at uint32      // time in milliseconds after base
}

type shard struct {
	slots []slot // the home slots, then a tail for entries that do not fit among the last home slots
	n     int    // number of entries
	shift uint8  // number of leading bits that all entries of the shard share
}

// newIndex returns an index that has memory for this number of entries from the start. For a small number, less than
// 1000 per shard, it returns an empty index, which grows as entries are added.
func newIndex(entries int) index {
	var x index
	// Random fingerprints do not fill all shards alike: each shard has room for six standard deviations more than the
	// mean.
	mean := float64(entries) / (1 << splitBits)
	if mean < 1000 {
		return x
	}
	x.shift, x.shards = splitBits, make([]shard, 1<<splitBits)
	for i := range x.shards {
		x.shards[i] = shard{slots: make([]slot, width(int(mean+6*math.Sqrt(mean)+1))), shift: splitBits}
	}
	return x
}

// width returns how many slots a shard needs for this number of entries.
func width(entries int) int {
	homes := entries*fillDen/fillNum + 4
	return homes + tail(homes)
}

// tail returns the number of slots that follow this number of home slots.
func tail(homes int) int { return homes/128 + 16 }

// homes returns the number of home slots of a shard: the inverse of tail.
func (s *shard) homes() int {
	n := len(s.slots)
	return max((n-16)*128/129, 1)
}

// home returns the home slot of a fingerprint. A greater fingerprint never has a lower home slot.
func (s *shard) home(f *Fingerprint) int {
	hi, _ := bits.Mul64(binary.BigEndian.Uint64(f[:8])<<s.shift, uint64(s.homes())) //nolint:gosec // not negative
	return int(hi)                                                                  //nolint:gosec // below homes
}

// find returns the slot of a fingerprint with ok = true, or with ok = false the slot where it must be inserted.
func (s *shard) find(f *Fingerprint) (i int, ok bool) {
	hi, lo := words(f)
	for i = s.home(f); i < len(s.slots); i++ {
		h, l := words(&s.slots[i].f)
		switch {
		case h < hi && h|l != 0, h == hi && l < lo && h|l != 0:
			continue
		}
		return i, h == hi && l == lo
	}
	return i, false
}

// words returns the fingerprint as two numbers whose order is that of fingerprints.
func words(f *Fingerprint) (hi, lo uint64) {
	return binary.BigEndian.Uint64(f[:8]), binary.BigEndian.Uint64(f[8:])
}

// shard returns the shard of a fingerprint.
func (x *index) shard(f *Fingerprint) *shard { return &x.shards[f[0]>>(8-x.shift)] }

// split divides the only shard into 2^splitBits shards. Its entries are in order, so those of each new shard are
// adjacent.
func (x *index) split() {
	old := x.shards[0].slots
	x.shift, x.shards = splitBits, make([]shard, 1<<splitBits)
	for from := 0; from < len(old); {
		if old[from].f.IsZero() {
			from++
			continue
		}
		s := x.shard(&old[from].f)
		to, n := from, 0
		for ; to < len(old) && (old[to].f.IsZero() || x.shard(&old[to].f) == s); to++ {
			if !old[to].f.IsZero() {
				n++
			}
		}
		*s = shard{slots: old[from:to], shift: splitBits}
		s.resize(n + n/8 + 4)
		from = to
	}
	for i := range x.shards {
		x.shards[i].shift = splitBits
	}
}

func (x *index) get(f Fingerprint) (at int64, ok bool) {
	if x.count == 0 {
		return 0, false
	}
	s := x.shard(&f)
	i, ok := s.find(&f)
	if !ok {
		return 0, false
	}
	return x.base + int64(s.slots[i].at), true
}

// put adds a fingerprint, or moves its time forward. before is the time that it had, Never if it is new; stored is
// false if at is too old for every window. If at is much newer than the other times, put removes entries that are then
// too old for every window, and calls forgotten for each.
func (x *index) put(f Fingerprint, at int64, forgotten func(at int64)) (before int64, stored bool) {
	switch {
	case x.count == 0:
		x.base = at - span/2
	case at < x.base:
		return Never, false
	case at-x.base > span:
		x.rebase(at, forgotten)
	}
	if x.shards == nil {
		x.shards = make([]shard, 1)
	}
	s := x.shard(&f)
	if len(s.slots) == 0 {
		s.slots = make([]slot, width(4))
	}
	for {
		i, ok := s.find(&f)
		if ok {
			before = x.base + int64(s.slots[i].at)
			if at > before {
				s.slots[i].at = uint32(at - x.base) //nolint:gosec // it fits
			}
			return before, true
		}
		if s.n < s.homes()*fillNum/fillDen && s.insert(i, slot{f, uint32(at - x.base)}) { //nolint:gosec // it fits
			if x.count++; x.count == splitAt && x.shift == 0 {
				x.split()
			}
			return Never, true
		}
		s.resize(s.n + max(s.n/8, 4))
	}
}

// span is the largest difference between two times, in milliseconds: seven weeks. A window is at most a quarter of it,
// so an entry that does not fit is older than every window.
const span = int64(math.MaxUint32)

// MaxWindow is the longest window.
const MaxWindow = 12 * 24 * time.Hour

// insert puts an entry into slot i. It moves the entries from i up to the next empty slot by one slot towards the end,
// and returns false if there is no empty slot.
func (s *shard) insert(i int, e slot) bool {
	j := i
	for ; j < len(s.slots) && !s.slots[j].f.IsZero(); j++ {
	}
	if j == len(s.slots) {
		return false
	}
	copy(s.slots[i+1:j+1], s.slots[i:j])
	s.slots[i] = e
	s.n++
	return true
}

// resize gives a shard room for the given number of entries.
func (s *shard) resize(entries int) {
	old := s.slots
	for {
		to := shard{slots: make([]slot, width(entries)), shift: s.shift}
		if to.fill(old) {
			*s = to
			return
		}
		entries += entries/8 + 8 // too many of the entries belong near the end of the shard
	}
}

// fill adds entries, which are in ascending order, to an empty shard. It returns false if the tail is too short for
// them.
func (s *shard) fill(entries []slot) bool {
	next := 0
	for i := range entries {
		if entries[i].f.IsZero() {
			continue
		}
		at := max(s.home(&entries[i].f), next)
		if at >= len(s.slots) {
			return false
		}
		s.slots[at] = entries[i]
		s.n++
		next = at + 1
	}
	return true
}

// sweep removes entries older than before and calls forgotten with the time of each. Shards that are mostly empty
// afterwards return memory.
func (x *index) sweep(before int64, forgotten func(at int64)) {
	if x.count == 0 || before <= x.base {
		return
	}
	for i := range x.shards {
		s := &x.shards[i]
		next, kept := 0, 0
		for j := range s.slots {
			e := s.slots[j]
			if e.f.IsZero() {
				continue
			}
			s.slots[j] = slot{}
			if at := x.base + int64(e.at); at < before {
				forgotten(at)
				continue
			}
			// Never after its old slot j, so no entry is overwritten before it was read: the entries before it were
			// removed, or moved towards the start.
			at := max(s.home(&e.f), next)
			s.slots[at] = e
			next, kept = at+1, kept+1
		}
		x.count -= s.n - kept
		s.n = kept
		switch {
		case kept == 0:
			s.slots = nil
		case len(s.slots) > width(kept+kept/10+8):
			s.resize(kept + kept/16 + 4)
		}
	}
}

// rebase moves the base of the stored times, so that the new, later time at fits. It removes entries that are then too
// old for every window.
func (x *index) rebase(at int64, forgotten func(at int64)) {
	base := at - span/2
	x.sweep(base, forgotten)
	for i := range x.shards {
		for j := range x.shards[i].slots {
			if e := &x.shards[i].slots[j]; !e.f.IsZero() {
				e.at = uint32(x.base + int64(e.at) - base) //nolint:gosec // it was not swept
			}
		}
	}
	x.base = base
}

// size returns the size of the index in bytes.
func (x *index) size() int64 {
	n := int64(indexBytes) + int64(len(x.shards))*shardBytes
	for i := range x.shards {
		n += int64(cap(x.shards[i].slots)) * slotBytes
	}
	return n
}
