package idempotency

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"
)

// An index maps fingerprints to times, at about 23 bytes each: 16 and 4, with one slot in seven empty.
//
// Fingerprints are random already, so that the first 64 bits say where one belongs. Open addressing keeps those of a
// shard in ascending order: a lookup ends at the first greater one, growing and sweeping are one pass in order, and a
// shard grows by an eighth alone. So nothing ever needs twice the memory. A small index is one shard.
type index struct {
	base   int64 // milliseconds; the times of slots count from here
	count  int
	shift  uint8   // 2^shift shards, by the first bits
	shards []shard // none as long as it is empty
}

const (
	slotBytes  = 20
	shardBytes = 40
	// indexBytes is the size of an empty index in bytes.
	indexBytes = 128
	// An index of so many entries is split into shards.
	splitAt, splitBits = 8192, 6
	// A shard is grown when it is filled to 9/10, by an eighth.
	fillNum, fillDen = 9, 10
)

type slot struct {
	f  Fingerprint // zero: empty
	at uint32      // milliseconds after base
}

type shard struct {
	slots []slot // those where entries belong, and a tail for what the last of them push on
	n     int
	shift uint8 // the first bits, which all of its entries share
}

// newIndex returns an index with room for so many entries, if they are many.
func newIndex(entries int) index {
	var x index
	// Fingerprints spread like a draw: six deviations more than the mean.
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

// width is how many slots so many entries need.
func width(entries int) int {
	homes := entries*fillDen/fillNum + 4
	return homes + tail(homes)
}

func tail(homes int) int { return homes/128 + 16 }

// homes is how many slots of a shard entries may belong to.
func (s *shard) homes() int {
	n := len(s.slots)
	return max((n-16)*128/129, 1)
}

// home is where a fingerprint belongs. It never decreases from one fingerprint to the next greater one.
func (s *shard) home(f *Fingerprint) int {
	hi, _ := bits.Mul64(binary.BigEndian.Uint64(f[:8])<<s.shift, uint64(s.homes())) //nolint:gosec // not negative
	return int(hi)                                                                  //nolint:gosec // below homes
}

// find returns where a fingerprint is, or the slot that it would take.
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

// words are the fingerprint as two numbers, in its order.
func words(f *Fingerprint) (hi, lo uint64) {
	return binary.BigEndian.Uint64(f[:8]), binary.BigEndian.Uint64(f[8:])
}

// shard is where a fingerprint belongs.
func (x *index) shard(f *Fingerprint) *shard { return &x.shards[f[0]>>(8-x.shift)] }

// split makes one shard many. Its entries come in order, so that those of each lie side by side.
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

// put adds a fingerprint, or moves its time forward. before is the time that it had, Never if it is new; stored is false
// for a time that is too old for every window. put removes times that are too old beside this one, and calls
// forgotten for each.
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

// span is how far apart times may be, in milliseconds: seven weeks. A window is at most a quarter of it, so that what does
// not fit is never missed.
const span = int64(math.MaxUint32)

// MaxWindow is the longest window.
const MaxWindow = 12 * 24 * time.Hour

// insert puts an entry at a slot and moves those behind it on to the next empty one. It returns false if there is none.
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

// resize gives a shard room for so many entries.
func (s *shard) resize(entries int) {
	old := s.slots
	for {
		to := shard{slots: make([]slot, width(entries)), shift: s.shift}
		if to.fill(old) {
			*s = to
			return
		}
		entries += entries/8 + 8 // they crowd at the end
	}
}

// fill puts entries that come in order. It returns false if the tail is too short.
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

// sweep removes entries older than before and calls forgotten with the time of each. Shards that are mostly empty afterwards
// return memory.
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
			// Never before its old slot: entries in front of it are still there, or were removed.
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

// rebase moves the base of the stored times, so that the new, later time at fits. It removes entries that are then too old
// for every window.
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
