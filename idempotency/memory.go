package idempotency

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is the [Store] of one process: an [index] for each scope, within a limit for all of them together.
//
// At the limit it deletes the oldest hours of the largest window and calls forgotten. Records continue with a shorter
// window: a possible duplicate is better than a hold. The configuration checks the limit against declared rates (see
// [SizeOf]), so this happens only if a declared rate was wrong.
type Memory struct {
	limit     int64
	forgotten func(Forgotten)

	mu      sync.Mutex
	windows map[Scope]*window
	bytes   int64
	lost    int64
}

// Forgotten says that a limit shortened a window.
type Forgotten struct {
	Scope   Scope
	Entries int64
	// Before is the time from which on the window still has all entries, in milliseconds.
	Before int64
}

// window is the fingerprint window of one scope.
type window struct {
	index
	through int64
	hours   map[int64]int64 // number of entries by the hour of their time
	bytes   int64           // size of the window, as counted in Memory.bytes
}

const hour = int64(time.Hour / time.Millisecond)

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store with a limit in bytes. When the limit makes a window shorter, the store calls
// forgotten, unless it is nil, on the goroutine that adds fingerprints.
func NewMemory(limit int64, forgotten func(Forgotten)) *Memory {
	if forgotten == nil {
		forgotten = func(Forgotten) {}
	}
	return &Memory{limit: limit, forgotten: forgotten, windows: map[Scope]*window{}}
}

// BytesPerEntry is the average size of an entry in a window in bytes, empty slots included.
const BytesPerEntry = 24

// SizeOf returns how much memory in bytes a window of this length needs for this rate of records per second.
func SizeOf(rate float64, length time.Duration) int64 {
	const slack = 1 // in hours: expired entries stay until the next sweep
	return int64(rate * (length.Seconds() + slack*time.Hour.Seconds()) * BytesPerEntry)
}

// Through implements [Store].
func (m *Memory) Through(_ context.Context, s Scope) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.windows[s]; w != nil {
		return w.through, nil
	}
	return 0, nil
}

// Seen implements [Store].
func (m *Memory) Seen(_ context.Context, s Scope, entries iter.Seq[Entry]) (map[Fingerprint]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[Fingerprint]int64{}
	w := m.windows[s]
	if w == nil {
		return seen, nil
	}
	for e := range entries {
		if at, ok := w.get(e.Fingerprint); ok {
			seen[e.Fingerprint] = at
		}
	}
	return seen, nil
}

// Remember implements [Store].
func (m *Memory) Remember(_ context.Context, s Scope, from, next int64, entries iter.Seq[Entry]) error {
	told, err := m.remember(s, from, next, entries)
	for _, f := range told {
		m.forgotten(f)
	}
	return err
}

func (m *Memory) remember(s Scope, from, next int64, entries iter.Seq[Entry]) (told []Forgotten, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.windows[s]
	switch {
	case w == nil && from != 0, w != nil && w.through != from:
		return nil, ErrMoved
	case w == nil:
		w = &window{hours: map[int64]int64{}}
		m.windows[s] = w
	}
	n := 0
	for e := range entries {
		w.remember(e)
		if n++; n%1024 == 0 { // shortens every 1024 entries, so that the limit is never exceeded by much
			m.account(w)
			told = append(told, m.shorten()...)
		}
	}
	w.through = next
	m.account(w)
	return append(told, m.shorten()...), nil
}

func (w *window) remember(e Entry) {
	before, stored := w.put(e.Fingerprint, e.At, w.forget)
	switch {
	case !stored || before >= e.At:
		return
	case before != Never:
		w.forget(before)
	}
	w.hours[e.At/hour]++
}

// forget adjusts the counts of w after an entry with the time at was removed.
func (w *window) forget(at int64) {
	if w.hours[at/hour]--; w.hours[at/hour] == 0 {
		delete(w.hours, at/hour)
	}
}

// account updates m.bytes to the present size of w.
func (m *Memory) account(w *window) {
	now := w.size()
	m.bytes += now - w.bytes
	w.bytes = now
}

// shorten deletes the oldest hours of the largest window, again and again, until all windows together fit into the
// limit. It returns what it deleted.
func (m *Memory) shorten() (told []Forgotten) {
	for m.bytes > m.limit {
		largest, scope := (*window)(nil), Scope{}
		for s, w := range m.windows {
			if w.count > 0 && (largest == nil || w.bytes > largest.bytes) {
				largest, scope = w, s
			}
		}
		if largest == nil {
			return told // all windows are empty and together still exceed the limit
		}
		// A step deletes about an eighth of the window, because each sweep is a pass over the whole window.
		before, count, going := int64(0), largest.count, int64(0)
		for _, h := range slices.Sorted(maps.Keys(largest.hours)) {
			before = (h + 1) * hour
			if going += largest.hours[h]; going >= int64(count/8) {
				break
			}
		}
		largest.sweep(before, largest.forget)
		m.account(largest)
		gone := int64(count - largest.count)
		m.lost += gone
		told = append(told, Forgotten{scope, gone, before})
	}
	return told
}

// Sweep implements [Store].
func (m *Memory) Sweep(_ context.Context, s Scope, before int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.windows[s]; w != nil {
		w.sweep(before, w.forget)
		m.account(w)
	}
	return nil
}

// Reset implements [Store].
func (m *Memory) Reset(_ context.Context, s Scope) error {
	m.Release(s)
	return nil
}

// For implements [Store]. This store never retries.
func (m *Memory) For(string) Store { return m }

// Release implements [Store]. It deletes the scope, because no other member can use the fingerprints of this process.
func (m *Memory) Release(s Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.windows[s]; w != nil {
		m.bytes -= w.bytes
		delete(m.windows, s)
	}
}

// Entries returns the number of fingerprints of a scope.
func (m *Memory) Entries(s Scope) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.windows[s]; w != nil {
		return int64(w.count)
	}
	return 0
}

// MemoryUse is the part of a [Memory] that one topic takes.
type MemoryUse struct {
	Entries int64
	Bytes   int64
}

// ByTopic returns the use of each topic that has a window.
func (m *Memory) ByTopic() map[string]MemoryUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]MemoryUse{}
	for s, w := range m.windows {
		h := all[s.Partition.Topic]
		h.Entries, h.Bytes = h.Entries+int64(w.count), h.Bytes+w.bytes
		all[s.Partition.Topic] = h
	}
	return all
}

// MemoryStats says how much memory a [Memory] uses, and for how many scopes and entries.
type MemoryStats struct {
	Scopes  int
	Entries int64
	Bytes   int64
	Limit   int64
	Lost    int64 // number of entries deleted because of the limit since the start
}

// Stats returns the present numbers.
func (m *Memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := MemoryStats{Scopes: len(m.windows), Bytes: m.bytes, Limit: m.limit, Lost: m.lost}
	for _, w := range m.windows {
		s.Entries += int64(w.count)
	}
	return s
}
