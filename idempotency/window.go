package idempotency

import "time"

// Entry is the entry of one row in a fingerprint window: the fingerprint, the offset, and the timestamp in milliseconds
// since 1970.
type Entry struct {
	Fingerprint Fingerprint
	Offset      int64
	At          int64
	// ID is the producer's own id, "" if the store does not keep ids, the identity has none, or [IsID] refuses it. People
	// search by it; duplicates are found by the fingerprint alone.
	ID string
}

// EntryBytes is the size of an Entry in bytes, without its ID.
const EntryBytes = 48

// ahead is how much later than now a record may be. Beyond that it counts as now: one producer with a wrong clock must
// not end the window of all others.
const ahead = int64(time.Hour / time.Millisecond)

// Never is the clock of a partition that has no row yet.
const Never = int64(-1)

// Effective is the timestamp that counts for a record, both in milliseconds. now is the time at which the record is
// decided about, or was written. It is false for a record without a timestamp, or one before 1970: that has no place
// in any window, is never a duplicate and is not remembered.
func Effective(at, now int64) (int64, bool) {
	switch {
	case at < 0:
		return 0, false
	case at > now+ahead:
		return now, true
	}
	return at, true
}

// A Judge decides about the records of one partition in the order of their offsets. It is pure: what it says follows
// from its arguments alone.
//
// A record is a duplicate if its fingerprint was remembered with a timestamp that is not more than the length of the
// window before the newest one of the partition, its own included. The newest one moves with what becomes a row, never
// with a duplicate: so it can be told from the table.
type Judge struct {
	length int64
	now    int64
	newest int64
	seen   map[Fingerprint]int64
	cut    index
	counts Counts
}

// Counts are the counts of a Judge.
type Counts struct {
	Hits    int64 // duplicates
	Misses  int64 // records with an identity that the window did not have
	None    int64 // records without an identity
	Undated int64 // records with an identity that have no timestamp
}

// NewJudge returns a Judge. newest is the newest timestamp among the rows of the partition, Never if it has none; seen
// is what a store remembers of the fingerprints to be judged; rows is how many will be, so that there is room.
func NewJudge(length time.Duration, now time.Time, newest int64, seen map[Fingerprint]int64, rows int) *Judge {
	return &Judge{length: length.Milliseconds(), now: now.UnixMilli(), newest: newest, seen: seen, cut: newIndex(rows)}
}

// JudgeBytes is the largest memory of a Judge per row, in bytes.
const JudgeBytes = 26

// Duplicate reports whether a record is one. If not, it counts as a row from now on.
func (j *Judge) Duplicate(e Entry) bool {
	at, dated := Effective(e.At, j.now)
	none := e.Fingerprint.IsZero()
	switch {
	case none:
		j.counts.None++
	case !dated:
		j.counts.Undated++
	}
	if !dated {
		return false
	}
	newest := max(j.newest, at)
	if !none {
		before, ok := j.cut.get(e.Fingerprint)
		if remembered, known := j.seen[e.Fingerprint]; known && (!ok || remembered > before) {
			before, ok = remembered, true
		}
		if ok && before >= newest-j.length {
			j.counts.Hits++
			return true
		}
		j.counts.Misses++
		j.cut.put(e.Fingerprint, at, func(int64) {})
	}
	j.newest = newest
	return false
}

// Newest is the newest timestamp among the rows of the partition, those that were judged included.
func (j *Judge) Newest() int64 { return j.newest }

// Counts returns the counts so far.
func (j *Judge) Counts() Counts { return j.counts }
