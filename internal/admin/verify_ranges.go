package admin

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/idempotency"
)

// source is a topic name and a partition, as in the columns of a table.
type source struct {
	Topic     string
	Partition int32
}

func (s source) String() string { return fmt.Sprintf("%s:%d", s.Topic, s.Partition) }

func compareSources(a, b source) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// VerifyFinding is a fact that contradicts exactly-once delivery.
type VerifyFinding struct {
	Topic     string `json:"topic"` // empty if the finding is about the table
	Partition int32  `json:"partition"`
	// The kind of the contradiction: gap, overlap, position, duplicate, uncovered, missing, file, lost or foreign.
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

func (f VerifyFinding) String() string {
	if f.Topic == "" {
		return f.Kind + ": " + f.Detail
	}
	return fmt.Sprintf("%s: %s:%d: %s", f.Kind, f.Topic, f.Partition, f.Detail)
}

// Interval is the offsets [From, Next).
type Interval struct {
	From int64 `json:"from"`
	Next int64 `json:"next"`
}

// covered has the offsets and counts of one partition, as the commits in a table's log give them.
type covered struct {
	intervals []Interval // ascending, with gaps between them
	again     []Interval // offsets that members read again after an operator moved the position back, so that rows may repeat
	next      int64      // the end of the newest commit; -1 if there is none
	rows      int64      // the number of rows that the commits have added
	health    int64      // the number of health-check records that the commits have dropped
	letters   int64      // the number of dead letters in the ranges of the commits
	twins     int64      // the number of duplicates that the commits have left out
	replays   int64      // the number of dead letters of which replays have made rows
	replayed  offsetSet  // the offsets of these dead letters
	lettered  []lettered // the commits that have dead letters, duplicates or repeats, in the order of the log
	whole     bool       // true if the log still has the initial commit
	findings  []VerifyFinding
}

// lettered has the offsets of a commit, and how many of their records became dead letters, were duplicates, or repeated
// a record that a replay had produced.
type lettered struct {
	Interval
	letters int64
}

// chain is a partition of one pipeline and topic id. The ranges of its commits are adjacent.
type chain struct {
	source
	appID string // "" if the commit has no txn for its range
}

// topicID returns the topic id as rows have it, "" if it is unknown.
func (c chain) topicID() string {
	if id, err := idempotency.ParseAppID(c.appID); err == nil && id.Partition.TopicID != (idempotency.TopicID{}) {
		return id.Partition.TopicID.String()
	}
	return ""
}

// coverage collects the ranges of all commits, oldest first.
type coverage map[chain]*covered

// add adds a partition's range of the next commit, and checks that the range continues the one before. A move by an
// operator covers no offsets: after a move forwards offsets are left out, after a move backwards members read offsets
// again.
func (c coverage) add(version int64, at chain, r connector.Range, moved bool) {
	p := c[at]
	first := p == nil
	if first {
		p = &covered{next: -1}
		c[at] = p
	}
	find := func(kind, format string, args ...any) {
		p.findings = append(p.findings, VerifyFinding{at.Topic, at.Partition, kind, fmt.Sprintf(format, args...)})
	}
	p.rows += r.Rows
	p.health += r.HealthRecords
	if left := r.Letters + r.Duplicates + r.Repeats; left > 0 {
		p.letters += r.Letters
		p.twins += r.Duplicates
		p.lettered = append(p.lettered, lettered{Interval{r.From, r.Next}, left})
	}
	if r.From < 0 { // the initial commit has no records
		if !first {
			find("overlap", "version %d starts again at %d, the commit before ended at %d", version, r.Next, p.next)
		}
		p.whole = first
		p.next = r.Next
		return
	}
	switch {
	case r.Next < r.From && !moved:
		find("overlap", "version %d goes backwards, from %d to %d", version, r.From, r.Next)
	case first:
	case r.From > p.next:
		find("gap", "offsets [%d, %d) are in no commit: version %d begins at %d", p.next, r.From, version, r.From)
	case r.From < p.next:
		find("overlap", "offsets [%d, %d) are in two commits, the second one is version %d", r.From, min(p.next, r.Next), version)
	}
	p.next = r.Next
	switch {
	case !moved:
		p.intervals = cover(p.intervals, Interval{r.From, r.Next})
	case r.Next < r.From:
		p.again = cover(p.again, Interval{r.Next, r.From})
	}
}

// addReplayed adds dead letters of which a replay made rows. It adds nothing if the log no longer has the commits of
// their partition, because then there is nothing to compare them with.
func (c coverage) addReplayed(r connector.Replayed, pipeline string) {
	of, ok := r.Source()
	p := c[chain{source{r.Topic, r.Partition}, of.AppID(pipeline)}]
	if !ok || p == nil || r.Offsets.Len() > connector.MaxReplayed {
		return
	}
	p.replays += r.Offsets.Len()
	for offset := range r.Offsets.All() {
		p.replayed.add(offset)
	}
}

// cover adds an interval to the intervals in to, which stay ascending and separate. The new interval nearly always
// continues the last one.
func cover(to []Interval, in Interval) []Interval {
	if in.Next <= in.From {
		return to
	}
	if n := len(to); n > 0 && to[n-1].Next == in.From {
		to[n-1].Next = in.Next
		return to
	}
	all := append(to, in)
	slices.SortFunc(all, func(a, b Interval) int { return cmp.Compare(a.From, b.From) })
	merged := all[:1]
	for _, i := range all[1:] {
		last := &merged[len(merged)-1]
		if i.From <= last.Next {
			last.Next = max(last.Next, i.Next)
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

// holds reports whether a commit covers the offset.
func (p *covered) holds(offset int64) bool { return holds(p.intervals, offset) }

func holds(all []Interval, offset int64) bool {
	i, found := slices.BinarySearchFunc(all, offset, func(in Interval, o int64) int { return cmp.Compare(in.From, o) })
	return found || i > 0 && offset < all[i-1].Next
}

// pageBits is the number of offsets in a page of an [offsetSet].
const pageBits = 1 << 16

// page is a part of an [offsetSet]. bits is nil once the page is full.
type page struct {
	count int
	bits  *[pageBits / 64]uint64
}

// offsetSet is a set of offsets. A full page needs no bits; any other page has one bit for each of its offsets. A
// thousand million rows with holes take 125 MB.
type offsetSet struct {
	pages map[int64]*page
	last  *page   // the page of the offset that was added last; rows come in order
	index int64   // the index of last
	order []int64 // the indexes of the pages in order; nil until the method from needs them
}

// add adds an offset and reports whether it is new.
func (s *offsetSet) add(offset int64) bool {
	index := offset / pageBits
	p := s.last
	if p == nil || s.index != index {
		if s.pages == nil {
			s.pages = map[int64]*page{}
		}
		if p = s.pages[index]; p == nil {
			p = &page{bits: new([pageBits / 64]uint64)}
			s.pages[index], s.order = p, nil
		}
		s.last, s.index = p, index
	}
	if p.bits == nil {
		return false
	}
	bit := uint64(1) << (offset % 64)
	word := &p.bits[offset%pageBits/64]
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	if p.count++; p.count == pageBits {
		p.bits = nil
	}
	return true
}

// has reports whether the offset is in the set.
func (s *offsetSet) has(offset int64) bool {
	p := s.pages[offset/pageBits]
	return offset >= 0 && p != nil && (p.bits == nil || p.bits[offset%pageBits/64]&(1<<(offset%64)) != 0)
}

// from returns the lowest offset of the set that is at least offset. ok is false if there is none.
func (s *offsetSet) from(offset int64) (at int64, ok bool) {
	if s.order == nil {
		s.order = slices.Sorted(maps.Keys(s.pages))
	}
	first, _ := slices.BinarySearch(s.order, offset/pageBits)
	for _, index := range s.order[first:] {
		p, begin := s.pages[index], max(offset, index*pageBits)
		if p.bits == nil {
			return begin, true
		}
		word := begin % pageBits / 64
		left := p.bits[word] >> (begin % 64) << (begin % 64)
		for left == 0 && word < pageBits/64-1 {
			word++
			left = p.bits[word]
		}
		if left != 0 {
			return index*pageBits + word*64 + int64(bits.TrailingZeros64(left)), true
		}
	}
	return 0, false
}

// rowCheck checks the rows of one partition against its commits. If the topic was created again, rows that have a topic
// id are checked against the commits of their own id, by a check in byID.
type rowCheck struct {
	chains []*covered            // the commits by pipeline and topic id; nearly always one chain
	ids    map[string][]*covered // the chains by topic id, with chains whose commits the log no longer has
	byID   map[string]*rowCheck  // nil if all rows are checked together

	rows       int64
	seen       offsetSet
	repeated   int64
	uncovered  int64
	firstTwice int64
	firstBare  int64
}

// addRow adds the next row of the partition. id is its topic id, "" if it has none.
func (r *rowCheck) addRow(id string, offset int64) {
	if id == "" || len(r.ids) == 0 || r.only(id) {
		r.add(offset)
		return
	}
	of := r.byID[id]
	if of == nil {
		if r.byID == nil {
			r.byID = map[string]*rowCheck{}
		}
		of = &rowCheck{chains: r.ids[id]}
		r.byID[id] = of
	}
	of.add(offset)
}

// only reports whether all commits are of this one topic id: then rows without an id have it, too.
func (r *rowCheck) only(id string) bool { return len(r.ids) == 1 && r.ids[id] != nil }

// of returns the check of the rows of a topic id. If the rows of all ids are checked together, it returns r. If some
// rows have no topic id and may be of this id or of another one, it returns nil.
func (r *rowCheck) of(id string) *rowCheck {
	switch {
	case r.byID == nil || r.only(id):
		return r
	case r.rows > 0:
		return nil
	case r.byID[id] == nil:
		return &rowCheck{chains: r.ids[id]}
	}
	return r.byID[id]
}

// rowsOf returns the number of rows of a topic id. If some rows may be of this id or of another one, it returns the
// number of all rows.
func (r *rowCheck) rowsOf(id string) int64 {
	if of := r.of(id); of != nil {
		return of.rows
	}
	n := r.rows
	for _, of := range r.byID {
		n += of.rows
	}
	return n
}

// add adds the next row of the partition. It counts the row if it repeats an offset or if no commit covers it.
func (r *rowCheck) add(offset int64) {
	r.rows++
	if offset < 0 || !r.seen.add(offset) && !r.again(offset) {
		if r.repeated++; r.repeated == 1 {
			r.firstTwice = offset
		}
	}
	for _, in := range r.chains {
		if (offset < in.next || holds(in.again, offset)) && (!in.whole || in.holds(offset)) {
			return
		}
	}
	if r.uncovered++; r.uncovered == 1 {
		r.firstBare = offset
	}
}

// again reports whether members read the offset again after an operator moved the position back, so that its row may
// repeat.
func (r *rowCheck) again(offset int64) bool {
	return slices.ContainsFunc(r.chains, func(in *covered) bool { return holds(in.again, offset) })
}

// findings returns the contradictions between rows and commits. If altered is set, other programs changed the table, so
// missing rows are no contradiction. If rows are checked against several chains, of two pipelines or of a topic that
// was created again, repeated offsets are no contradiction either.
func (r *rowCheck) findings(at source, altered bool) []VerifyFinding {
	var all []VerifyFinding
	find := func(kind, format string, args ...any) {
		all = append(all, VerifyFinding{at.Topic, at.Partition, kind, fmt.Sprintf(format, args...)})
	}
	committed, whole := int64(0), len(r.chains) > 0
	for _, in := range r.chains {
		committed += in.rows + in.replays
		whole = whole && in.whole
	}
	found := int64(0)
	judge := func(of *rowCheck, rows string) {
		if found += of.rows; len(of.chains) < 2 {
			found -= of.repeated
			if of.repeated > 0 {
				find("duplicate", "%d %s repeat an offset, the first one %d", of.repeated, rows, of.firstTwice)
			}
		}
		if of.uncovered > 0 {
			find("uncovered", "%d %s have an offset that no commit covers, the first one %d", of.uncovered, rows, of.firstBare)
		}
	}
	judge(r, "rows")
	for _, id := range slices.Sorted(maps.Keys(r.byID)) {
		judge(r.byID[id], "rows of topic id "+id)
	}
	if whole && !altered && found < committed {
		find("missing", "the commits hold %d rows, the table has %d", committed, found)
	}
	return all
}
