package admin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// letterBook has the dead letters of some dead-letter topics, without repeats. It keeps foundBytes of each, so a
// million dead letters take 40 MiB. A command that shows more of a dead letter reads it again.
type letterBook struct {
	sources  map[idempotency.Partition]*sourceLetters
	dead     []connector.Partition // partitions of dead-letter topics, in the order in which they were read
	reasons  interned[deadletter.Reason]
	verdicts interned[verdict]
	count    int64 // repeats included
	others   map[string]*notLetters
	absent   []string // dead-letter topics that do not exist
	notes    []string // about dead letters that cannot be read
	bounded  bool
	free     int64 // memory left for more dead letters, if the book is bounded
	full     bool  // true if the bound was too low
}

// sourceLetters has the dead letters about one partition.
type sourceLetters struct {
	idempotency.Partition
	letters []foundLetter // by the offset of the record, once each after settle
	next    int64         // position of the partition in its table; judge sets it
}

// foundLetter is the entry of a dead letter in a book. All copies of a dead letter share one entry, which has the data
// of the newest copy.
type foundLetter struct {
	record  int64  // offset of the record
	offset  int64  // of the newest copy
	failed  int64  // its last failure in microseconds since 1970, noTime if it has none
	dead    uint32 // partition of the newest copy: index in letterBook.dead
	reason  uint32 // index in letterBook.reasons
	verdict uint32 // index in letterBook.verdicts
	copies  uint32
}

const (
	noTime = math.MinInt64
	// foundBytes is the memory of a foundLetter, and sourceBytes that of a sourceLetters without names and dead letters.
	foundBytes, sourceBytes = 40, 256
)

// verdict is the state of a dead letter. why is the cause of the states unknown and foreign.
type verdict struct {
	state LetterState
	why   string
}

// notLetters counts the records of a dead-letter topic that are no dead letters.
type notLetters struct {
	n     int64
	first string // the coordinates of the first one, and why it is none
}

// interned keeps equal values once, each with an index.
type interned[T comparable] struct {
	all []T
	at  map[T]uint32
}

// index returns the index of a value. If the value is new, it stores the result of own, a copy that does not share the
// memory of a fetch result.
func (i *interned[T]) index(v T, own func(T) T) uint32 {
	if at, ok := i.at[v]; ok {
		return at
	}
	if i.at == nil {
		i.at = map[T]uint32{}
	}
	v, at := own(v), uint32(len(i.all)) //nolint:gosec // fewer than dead letters
	i.all, i.at[v] = append(i.all, v), at
	return at
}

// newLetterBook returns an empty book. Its dead letters may take bound bytes; 0 is no bound.
func newLetterBook(bound int64) *letterBook {
	b := &letterBook{sources: map[idempotency.Partition]*sourceLetters{}, others: map[string]*notLetters{}, bounded: bound > 0, free: bound}
	b.verdicts.index(verdict{}, func(v verdict) verdict { return v }) // that of a dead letter before judge
	return b
}

// add adds a dead letter of the last partition in b.dead; of several copies, settle keeps the newest.
func (b *letterBook) add(l *deadletter.Letter, offset int64) {
	s := b.sources[l.Source.Partition]
	if s == nil {
		s = &sourceLetters{Partition: l.Source.Partition}
		s.Topic, s.Cluster = strings.Clone(s.Topic), strings.Clone(s.Cluster) // they share the memory of the fetch result
		b.sources[s.Partition] = s
		b.take(int64(sourceBytes+len(s.Topic)+len(s.Cluster)), 0)
	}
	if len(s.letters) == cap(s.letters) {
		b.grow(s)
	}
	failed := int64(noTime)
	if !l.LastFailure.IsZero() {
		failed = l.LastFailure.UnixMicro()
	}
	reason := b.reasons.index(l.Reason, func(r deadletter.Reason) deadletter.Reason { return deadletter.Reason(strings.Clone(string(r))) })
	s.letters = append(s.letters, foundLetter{
		record: l.Source.Offset, offset: offset, failed: failed, dead: uint32(len(b.dead) - 1), reason: reason, copies: 1, //nolint:gosec // fewer than dead letters
	})
	b.count++
}

// grow makes room for more dead letters about a partition. It first removes copies, so that these take no memory.
func (b *letterBook) grow(s *sourceLetters) {
	s.settle()
	if n := cap(s.letters); len(s.letters) > n/4*3 || n < 4 {
		larger := make([]foundLetter, len(s.letters), max(4, n+n/2))
		b.take(int64(cap(larger))*foundBytes, int64(n)*foundBytes)
		copy(larger, s.letters)
		s.letters = larger
	}
}

// take subtracts bytes from the free memory, and marks the book as full if these are too many. Then it adds back to the
// free memory, because that part was only needed for a moment.
func (b *letterBook) take(bytes, back int64) {
	b.free -= bytes
	b.full = b.full || b.bounded && b.free < 0
	b.free += back
}

// settle sorts the dead letters by the offset of the record, and keeps the newest of several copies.
func (s *sourceLetters) settle() {
	order := func(x, y foundLetter) int {
		return cmp.Or(cmp.Compare(x.record, y.record), cmp.Compare(x.failed, y.failed), cmp.Compare(x.dead, y.dead), cmp.Compare(x.offset, y.offset))
	}
	if !slices.IsSortedFunc(s.letters, order) { // mostly they are: members write them in the order of their records
		slices.SortFunc(s.letters, order)
	}
	kept := s.letters[:0]
	for _, l := range s.letters {
		if n := len(kept); n > 0 && kept[n-1].record == l.record {
			l.copies += kept[n-1].copies
			kept[n-1] = l
			continue
		}
		kept = append(kept, l)
	}
	s.letters = kept
}

// settle ends the addition of dead letters.
func (b *letterBook) settle() {
	for _, s := range b.sources {
		s.settle()
	}
}

// find returns the dead letter about an offset, nil if there is none.
func (s *sourceLetters) find(record int64) *foundLetter {
	i := sort.Search(len(s.letters), func(i int) bool { return s.letters[i].record >= record })
	if i == len(s.letters) || s.letters[i].record != record {
		return nil
	}
	return &s.letters[i]
}

// inOrder returns the partitions with dead letters, by topic and number.
func (b *letterBook) inOrder() []*sourceLetters {
	return slices.SortedFunc(maps.Values(b.sources), func(x, y *sourceLetters) int { return x.Compare(y.Partition) })
}

// distinct returns the number of dead letters without repeats.
func (b *letterBook) distinct() (n int) {
	for _, s := range b.sources {
		n += len(s.letters)
	}
	return n
}

// keep removes the dead letters that want does not accept.
func (b *letterBook) keep(want func(*sourceLetters, *foundLetter) bool) {
	for p, s := range b.sources {
		s.letters = slices.DeleteFunc(s.letters, func(l foundLetter) bool { return !want(s, &l) })
		if len(s.letters) == 0 {
			delete(b.sources, p)
		}
	}
}

// set sets the state of a dead letter.
func (b *letterBook) set(l *foundLetter, state LetterState, why string) {
	l.verdict = b.verdicts.index(verdict{state, why}, func(v verdict) verdict { return v })
}

// verdict returns the state of a dead letter with its cause, both empty before judge.
func (b *letterBook) verdict(l *foundLetter) verdict { return b.verdicts.all[l.verdict] }

// LetterKey is the place of a dead letter in a list by records. The zero key is before all.
type LetterKey struct {
	Topic     string
	Partition int32
	Offset    int64
	Rest      string // tells apart the records of several topics or clusters with these coordinates
}

// letterRef is a dead letter of a book.
type letterRef struct {
	of *sourceLetters
	l  *foundLetter
}

func (r letterRef) key() LetterKey {
	sum := sha256.Sum256(append(r.of.TopicID[:], r.of.Cluster...)) // the cluster may be a text of any length
	return LetterKey{r.of.Topic, r.of.ID, r.l.record, hex.EncodeToString(sum[:8])}
}

// compare orders dead letters by topic, partition and offset of their records.
func (r letterRef) compare(k LetterKey) int {
	if c := cmp.Or(strings.Compare(r.of.Topic, k.Topic), cmp.Compare(r.of.ID, k.Partition), cmp.Compare(r.l.record, k.Offset)); c != 0 {
		return c
	}
	return strings.Compare(r.key().Rest, k.Rest)
}

// byRecord is the order of [LetterKey].
func byRecord(x, y letterRef) int {
	k := LetterKey{Topic: y.of.Topic, Partition: y.of.ID, Offset: y.l.record}
	if x.of.Topic == k.Topic && x.of.ID == k.Partition && x.l.record == k.Offset {
		k = y.key()
	}
	return x.compare(k)
}

// newestFirst orders dead letters by their last failures.
func newestFirst(x, y letterRef) int {
	return cmp.Or(cmp.Compare(y.l.failed, x.l.failed), strings.Compare(x.of.Topic, y.of.Topic), cmp.Compare(x.of.ID, y.of.ID),
		cmp.Compare(x.l.record, y.l.record), x.of.Compare(y.of.Partition))
}

// firstLetters keeps the first n dead letters of an order, all if n is 0.
type firstLetters struct {
	n     int
	order func(x, y letterRef) int
	kept  []letterRef
}

func (f *firstLetters) add(r letterRef) {
	const spare = 1000 // so that a small n does not sort at each one
	if f.kept = append(f.kept, r); f.n > 0 && len(f.kept) >= 2*f.n+spare {
		f.sorted()
	}
}

// sorted sorts the kept dead letters, drops all but the first n, and returns them.
func (f *firstLetters) sorted() []letterRef {
	slices.SortFunc(f.kept, f.order)
	if f.n > 0 && len(f.kept) > f.n {
		f.kept = f.kept[:f.n]
	}
	return f.kept
}

// failedAt returns the time of the last failure to the microsecond, nil if the dead letter has none.
func (l *foundLetter) failedAt() *time.Time {
	if l.failed == noTime {
		return nil
	}
	return new(time.UnixMicro(l.failed).UTC())
}
