package lettercount

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

// Tally counts the dead letters in some dead-letter topics. It is for one goroutine.
//
// It keeps the dead letters in slices of the dead-letter log. When a part of a slice is kept nowhere any more (see
// [Kept]), the Tally drops the whole slice, and [Tally.Missing] returns its remaining offsets to read again; the other
// slices stay. A letter is judged as soon as the caller has said whether its record has a row: see [Tally.Unjudged] and
// [Tally.Judged].
type Tally struct {
	max     int64 // largest allowed value of bytes
	bytes   int64 // estimated memory of slices and sources
	dead    map[idempotency.Partition]*deadPartition
	sources map[idempotency.Partition]*source
}

// ErrFull means that the dead letters take more memory than the Tally may use.
var ErrFull = errors.New("more dead letters than are kept in memory")

const (
	// perSlice is the number of letters with which a slice is full.
	perSlice = 1 << 16
	// maxFresh is how many fresh letters of a source may wait to be judged one by one. If there are more, the Tally
	// makes all letters about offsets from the lowest fresh one on unjudged. A letter is fresh if it is new and about
	// an offset whose letters were judged before.
	maxFresh = 1 << 12
	// entryBytes and sourceBytes are the estimated memory of an entry in a slice, without its offsets, and of a source.
	entryBytes, sourceBytes = 160, 512
)

// New returns an empty Tally. Once its letters take more than most bytes, [Tally.Passed] and [Tally.Full] return
// [ErrFull].
func New(most int64) *Tally {
	return &Tally{max: most, dead: map[idempotency.Partition]*deadPartition{}, sources: map[idempotency.Partition]*source{}}
}

// deadPartition is the known content of a partition of a dead-letter topic: its slices in the order of their offsets.
type deadPartition struct {
	slices []*slice
	open   *slice // the slice that Add extends; nil before Begin
	whole  bool   // true if the first call of Passed ends the open slice
	// seen are the offsets of the slices at the last call of Missing, with those that it dropped. Their letters were in
	// each count before, so the judgements about them are known: if they are read again, they are not fresh.
	seen []Span
}

// slice has the letters at offsets [from, to) of a dead-letter partition. They are in the field pending while the slice
// may grow, and in the field sets once it is sealed.
type slice struct {
	from, to int64
	letters  int
	bytes    int64
	pending  map[entry][]int64     // the letters before the slice is sealed; nil afterwards
	sets     map[entry]offsets.Set // the letters once the slice is sealed; nil before
}

// entry groups letters about one source with one class of error.
type entry struct {
	of    *source
	class classify.Class
}

// source is a partition that letters are about.
type source struct {
	idempotency.Partition
	judged int64       // all letters about lower offsets are judged, except the fresh ones
	void   offsets.Set // judged offsets that do not count, because their record has a row
	fresh  []int64     // offsets below judged about which a letter was read later
	slices int         // number of slices that have letters about the source

	last *count // the last count; nil if letters or judgements have changed since
}

// count is the number of unresolved dead letters of one source, by class, and what it was computed from.
type count struct {
	at       Position
	resolved offsets.Set
	beyond   bool // true if there are letters about offsets from at.Next on
	replayed bool // true if a replay has added rows since, so counts is too high
	counts   map[classify.Class]int64
}

// of reports whether the count is still right for this position and these resolved letters. It is false for a nil
// count.
func (c *count) of(at Position, resolved offsets.Set) bool {
	return c != nil && !c.replayed && (at == c.at || at.Next >= c.at.Next && !c.beyond) && resolved.Equal(c.resolved)
}

// Span are the offsets [From, To) of a dead-letter partition. Archived is true if only the letter table still has them,
// because retention has deleted them from the topic.
type Span struct {
	From, To int64
	Archived bool
}

// Kept are the offsets of a dead-letter partition whose dead letters still exist: the topic has [Start, End), the letter
// table has [0, Archived), which is empty without one. If Archived is less than Start, retention deleted those between
// the two before members archived them.
type Kept struct{ Archived, Start, End int64 }

// has reports whether all of [from, to) is kept. A range that extends from the letter table into the topic has no gap.
func (k Kept) has(from, to int64) bool {
	return from >= k.Start || k.Archived >= k.Start || to <= k.Archived
}

// missing appends the kept offsets of [from, to) to all.
func (k Kept) missing(all []Span, from, to int64) []Span {
	if end := min(to, k.Archived, k.Start); from < end {
		all = append(all, Span{From: from, To: end, Archived: true})
	}
	if from = max(from, k.Start); from < to {
		all = append(all, Span{From: from, To: to})
	}
	return all
}

// Keep drops the dead-letter partitions for which keep returns false.
func (t *Tally) Keep(keep func(idempotency.Partition) bool) {
	for p, d := range t.dead {
		if !keep(p) {
			t.drop(d.slices...)
			delete(t.dead, p)
		}
	}
}

// Missing returns the ranges to read of a dead-letter partition of which the offsets in kept exist now. It drops the
// slices of which a part exists no more; if the log was truncated, it drops all slices.
func (t *Tally) Missing(p idempotency.Partition, kept Kept) (missing []Span) {
	d := t.dead[p]
	if d == nil {
		d = &deadPartition{}
		t.dead[p] = d
	}
	d.open = nil
	d.seen = d.seen[:0]
	for _, s := range d.slices {
		if n := len(d.seen); n > 0 && d.seen[n-1].To == s.from {
			d.seen[n-1].To = s.to
		} else if s.from < s.to {
			d.seen = append(d.seen, Span{From: s.from, To: s.to})
		}
	}
	if n := len(d.slices); n > 0 && d.slices[n-1].to > kept.End { // the log was truncated: other records may be at these offsets now
		t.drop(d.slices...)
		d.slices, d.seen = nil, nil
	}
	d.slices = slices.DeleteFunc(d.slices, func(s *slice) bool {
		gone := !kept.has(s.from, s.to) || s.from == s.to // retention deleted a part of the slice, or nothing was read completely
		if gone {
			t.drop(s)
		}
		return gone
	})
	at := int64(0)
	for i, s := range d.slices {
		if s.pending != nil && i < len(d.slices)-1 { // only the last slice may still grow
			t.seal(s)
		}
		missing = kept.missing(missing, at, s.from)
		at = s.to
	}
	return kept.missing(missing, at, kept.End)
}

// Begin starts the reading of a missing span, or of a part of it: Add and Passed then apply to it. Of the letter table,
// a span is read as a whole, in any order, and Passed is called once, at its end; if it is not called, the next Missing
// drops what was added.
func (t *Tally) Begin(p idempotency.Partition, span Span) {
	d := t.dead[p]
	if d == nil {
		return
	}
	from := span.From
	d.whole = span.Archived
	i := sort.Search(len(d.slices), func(i int) bool { return d.slices[i].from >= from })
	if i > 0 && !span.Archived && d.slices[i-1].to == from && d.slices[i-1].pending != nil {
		d.open = d.slices[i-1]
		return
	}
	d.open = &slice{from: from, to: from, pending: map[entry][]int64{}}
	d.slices = slices.Insert(d.slices, i, d.open)
}

// Add adds a dead letter of the span that Begin started. at is the offset of the dead letter, about the coordinates of
// its record, class the class of its error.
func (t *Tally) Add(p idempotency.Partition, at int64, about idempotency.Coordinates, class classify.Class) {
	d := t.dead[p]
	if d == nil || d.open == nil {
		return
	}
	of := t.sources[about.Partition]
	if of == nil {
		key := about.Partition
		key.Cluster, key.Topic = strings.Clone(key.Cluster), strings.Clone(key.Topic) // the strings would otherwise keep the fetched batch in memory
		of = &source{Partition: key}
		t.sources[key] = of
		t.bytes += sourceBytes
	}
	in, cost := entry{of, class}, int64(8)
	if _, there := d.open.pending[in]; !there {
		cost += entryBytes
		of.slices++
	}
	d.open.pending[in] = append(d.open.pending[in], about.Offset)
	of.last = nil
	d.open.letters++
	d.open.bytes, t.bytes = d.open.bytes+cost, t.bytes+cost
	if about.Offset >= of.judged || slices.ContainsFunc(d.seen, func(s Span) bool { return s.From <= at && at < s.To }) {
		return
	}
	if of.fresh = append(of.fresh, about.Offset); len(of.fresh) > maxFresh {
		of.again(slices.Min(of.fresh))
	}
}

// Passed records that the span was read up to an offset. The error is [ErrFull] if nothing more may be added, or says
// that Begin was not called.
func (t *Tally) Passed(p idempotency.Partition, next int64) error {
	d := t.dead[p]
	if d == nil || d.open == nil {
		return fmt.Errorf("partition %v is not read", p)
	}
	d.open.to = max(d.open.to, next)
	if d.whole {
		t.seal(d.open)
		d.open = nil
	} else if d.open.letters >= perSlice {
		t.seal(d.open)
		t.Begin(p, Span{From: d.open.to})
	}
	return t.Full()
}

// Full returns [ErrFull] if nothing more may be added.
func (t *Tally) Full() error {
	if t.bytes > t.max {
		return ErrFull
	}
	return nil
}

// seal ends a slice and packs its dead letters.
func (t *Tally) seal(s *slice) {
	s.sets = make(map[entry]offsets.Set, len(s.pending))
	bytes := int64(0)
	for at, pending := range s.pending {
		slices.Sort(pending)
		s.sets[at] = offsets.Of(pending...)
		bytes += entryBytes + s.sets[at].Bytes()
	}
	t.bytes += bytes - s.bytes
	s.bytes, s.pending = bytes, nil
}

// drop frees the memory of slices and deletes the sources that have a letter in no other slice. The caller removes the
// slices from their partition.
func (t *Tally) drop(all ...*slice) {
	for _, s := range all {
		t.bytes -= s.bytes
		for at := range s.pending {
			t.leave(at.of)
		}
		for at := range s.sets {
			t.leave(at.of)
		}
	}
}

func (t *Tally) leave(of *source) {
	of.last = nil
	if of.slices--; of.slices == 0 {
		t.bytes -= sourceBytes + of.void.Bytes()
		delete(t.sources, of.Partition)
	}
}

// again makes the dead letters about offsets from `from` on unjudged.
func (s *source) again(from int64) {
	if from < s.judged {
		s.judged = from
		s.fresh = slices.DeleteFunc(s.fresh, func(offset int64) bool { return offset >= from })
	}
}

// Topics returns the topics that letters are about, sorted.
func (t *Tally) Topics() []string {
	var all []string
	for p := range t.sources {
		all = append(all, p.Topic)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Back makes the dead letters of a partition from the offset to on unjudged: the position moved back, so their records
// are read again and may become rows. Dead letters that are void stay void.
func (t *Tally) Back(p idempotency.Partition, to int64) {
	if s := t.sources[p]; s != nil {
		s.again(max(to, 0))
	}
}

// Again makes all dead letters of a topic unjudged, void ones included, because another program changed the rows of its
// table.
func (t *Tally) Again(topic string) {
	for _, s := range t.of(topic) {
		s.again(0)
		t.setVoid(s, offsets.Set{})
	}
}

func (t *Tally) setVoid(s *source, v offsets.Set) {
	t.bytes += v.Bytes() - s.void.Bytes()
	s.void, s.last = v, nil
}

// cursors returns a cursor for each set of letters about the source s. The cursors begin at offset `from`, and the tag
// of a cursor is the class of its set.
func (t *Tally) cursors(s *source, from int64) (all []offsets.Cursor) {
	for _, d := range t.dead {
		for _, part := range d.slices {
			for _, class := range classes {
				at := entry{s, class}
				letters, ok := part.sets[at]
				if pending := part.pending[at]; len(pending) > 0 {
					slices.Sort(pending) // sorts in place: the order of pending letters does not matter
					letters, ok = offsets.Of(pending...), true
				}
				if ok && letters.End() > from {
					c := letters.From(from)
					c.Tag = int(class)
					all = append(all, c)
				}
			}
		}
	}
	return all
}

var classes = [...]classify.Class{classify.Transient, classify.Poison, classify.Fatal, classify.Fenced, classify.Canceled}

// Part is a group of letters about one partition. [Tally.Unjudged] returns it, and the caller finds out which of their
// records have rows.
type Part struct {
	Source  idempotency.Partition
	Offsets []int64 // in ascending order
	// next is the value of source.judged once this part is judged, -1 if the offsets are those of fresh letters.
	next int64
}

// Has reports whether the offset is in p.Offsets.
func (p *Part) Has(offset int64) bool {
	_, ok := slices.BinarySearch(p.Offsets, offset)
	return ok
}

// Beyond returns the partitions of a topic that have a letter about the position or a later offset. Such a letter may
// be pending; that depends on the offsets that Kafka has of the partition. position returns the next offset to read of
// a partition, 0 if the table has none.
func (t *Tally) Beyond(topic string, position func(idempotency.Partition) int64) (all []idempotency.Partition) {
	for _, s := range t.of(topic) {
		if t.last(s) >= position(s.Partition) {
			all = append(all, s.Partition)
		}
	}
	return all
}

// last returns the greatest offset of a source that has a letter, -1 if none has.
func (t *Tally) last(of *source) int64 {
	last := int64(-1)
	for _, d := range t.dead {
		for _, part := range d.slices {
			for _, class := range classes {
				at := entry{of, class}
				last = max(last, part.sets[at].End()-1)
				if pending := part.pending[at]; len(pending) > 0 {
					last = max(last, slices.Max(pending))
				}
			}
		}
	}
	return last
}

// Unjudged returns letters about a topic that are not judged yet and whose records are before the position. most is the
// largest number of letters that it returns. If a position was set back, it first makes the letters after it unjudged.
// position returns the next offset to read of a partition, 0 if the table has none.
func (t *Tally) Unjudged(topic string, position func(idempotency.Partition) int64, most int) (parts []Part) {
	for _, s := range t.of(topic) {
		if most <= 0 {
			return parts
		}
		at := position(s.Partition)
		s.again(at) // the position may have been moved back without a call of Back
		if at == s.judged && len(s.fresh) == 0 {
			continue
		}
		if len(s.fresh) > 0 {
			slices.Sort(s.fresh)
			fresh := slices.Compact(s.fresh)
			n := min(len(fresh), most)
			parts = append(parts, Part{s.Partition, slices.Clone(fresh[:n]), -1})
			if most -= n; most == 0 {
				return parts
			}
		}
		part := Part{Source: s.Partition, next: at}
		offsets.Merge(t.cursors(s, s.judged), func(offset int64, _ int) bool {
			if offset >= at {
				return false
			}
			if len(part.Offsets) == most {
				part.next = offset
				return false
			}
			part.Offsets = append(part.Offsets, offset)
			return true
		})
		if len(part.Offsets) == 0 {
			s.judged = at
			continue
		}
		parts = append(parts, part)
		most -= len(part.Offsets)
	}
	return parts
}

// Judged marks the letters of a part as judged. void are the offsets among them whose records have rows.
func (t *Tally) Judged(part Part, void []int64) {
	s := t.sources[part.Source]
	if s == nil {
		return
	}
	if part.next >= 0 {
		s.judged = part.next
	} else {
		s.fresh = slices.DeleteFunc(s.fresh, part.Has)
	}
	if len(void) == 0 {
		return
	}
	t.setVoid(s, offsets.Union(s.void, offsets.Of(void...)))
}

// HasRows records that dead letters of a partition are void, because a replay added the rows of their records. at has
// the offsets of these records. [Tally.Recount] can still count afterwards.
func (t *Tally) HasRows(p idempotency.Partition, at offsets.Set) {
	s := t.sources[p]
	if s == nil {
		return
	}
	last := s.last
	t.setVoid(s, offsets.Union(s.void, at))
	if last != nil {
		s.last = &count{at: last.at, replayed: true}
	}
}

// Count counts the unresolved letters about a topic by class: see [Position.Counts]. resolved returns the letters of a
// partition that operators discarded or acknowledged. A record with letters of several classes counts once, for the
// class with the lowest number. Letters that are not judged count as letters without a row, so call Count when
// [Tally.Unjudged] returns none.
func (t *Tally) Count(topic string, position func(idempotency.Partition) Position, resolved func(idempotency.Partition) offsets.Set) map[classify.Class]int64 {
	counts := make(map[classify.Class]int64)
	for _, s := range t.of(topic) {
		if at, done := position(s.Partition), resolved(s.Partition); !s.last.of(at, done) {
			t.count(s, at, done)
		}
		for class, n := range s.last.counts {
			counts[class] += n
		}
	}
	return counts
}

// Recount is [Tally.Count] at the positions of the last Count of the topic, with new decisions of operators and the
// rows of replays since. ok is false if the topic has letters and there was no such Count, if letters were added or
// deleted since, or if Judged or Again changed which letters are void.
func (t *Tally) Recount(topic string, resolved func(idempotency.Partition) offsets.Set) (counts map[classify.Class]int64, ok bool) {
	at := map[idempotency.Partition]Position{}
	for _, s := range t.of(topic) {
		if s.last == nil {
			return nil, false
		}
		at[s.Partition] = s.last.at
	}
	return t.Count(topic, func(p idempotency.Partition) Position { return at[p] }, resolved), true
}

// count counts the letters about a source that are unresolved at a position, by class, and keeps the result as s.last.
// It also removes from s.void the offsets whose letters were deleted.
func (t *Tally) count(s *source, at Position, resolved offsets.Set) {
	c := &count{at: at, resolved: resolved, counts: make(map[classify.Class]int64)}
	var stale bool // true if a void dead letter was deleted from the topic
	void, done := s.void.From(0), resolved.From(0)
	offsets.Merge(t.cursors(s, 0), func(offset int64, tag int) bool {
		for void.OK && void.At < offset {
			stale = true
			void.Next()
		}
		is := void.OK && void.At == offset
		if is {
			void.Next()
		}
		c.beyond = c.beyond || offset >= at.Next
		if at.Counts(offset, is, done.Has(offset)) {
			c.counts[classify.Class(tag)]++ //nolint:gosec // it was made of one
		}
		return true
	})
	if stale || void.OK {
		t.prune(s)
	}
	s.last = c
}

// prune removes from s.void the offsets that no longer have a letter.
func (t *Tally) prune(s *source) {
	letters := t.cursors(s, 0)
	var p offsets.Packer
	void := s.void.From(0)
	offsets.Merge(letters, func(offset int64, _ int) bool {
		if void.Has(offset) {
			p.Add(offset)
		}
		return void.OK
	})
	t.setVoid(s, p.Done())
}

// of returns the sources of a topic by partition number, then by cluster and topic id.
func (t *Tally) of(topic string) (all []*source) {
	for p, s := range t.sources {
		if p.Topic == topic {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *source) int {
		if a.ID != b.ID {
			return int(a.ID) - int(b.ID)
		}
		return strings.Compare(a.Cluster+string(a.TopicID[:]), b.Cluster+string(b.TopicID[:]))
	})
	return all
}
