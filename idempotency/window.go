package idempotency

import "time"

// Entry is the entry of one row in a fingerprint window: the fingerprint, the offset, and the timestamp in milliseconds
// since 1970.
type Entry struct {
	Fingerprint Fingerprint
	Offset      int64
	At          int64
	// ID is the id that the producer gave, "" if the store does not keep ids, the identity has none, or [IsID] refuses
	// it. People search by it; duplicates are found by the fingerprint alone.
	ID string
}

// EntryBytes is the size of an Entry in bytes, without its ID.
const EntryBytes = 48

// ahead is how much later than now a record may be. Beyond that it counts as now: one producer with a wrong clock must
// not end the window of all others.
const ahead = int64(time.Hour / time.Millisecond)

// Never is the newest timestamp of a partition that has no row yet.
const Never = int64(-1)

// Effective returns the timestamp that counts for a record with timestamp at, both in milliseconds. now is the time at
// which the record is judged, or was written. The result is false for a record without a timestamp or with one before
// 1970: it is in no window, is never a duplicate and is not remembered.
func Effective(at, now int64) (int64, bool) {
	switch {
	case at < 0:
		return 0, false
	case at > now+ahead:
		return now, true
	}
	return at, true
}

// A Judge decides which records of one partition are duplicates, in the order of their offsets. It is pure: the result
// depends on its arguments alone.
//
// A record is a duplicate if a row with its fingerprint has a timestamp in the window. The window ends at the newest
// timestamp of the partition, that of the record included. Only rows move the newest timestamp, never duplicates, so it
// can be computed from the table.
type Judge struct {
	length int64
	now    int64
	newest int64
	seen   map[Fingerprint]int64
	cut    index // fingerprints of the records that Duplicate has accepted as rows, with their timestamps
	counts Counts
}

// Counts says how many records a Judge has judged, by their result.
type Counts struct {
	Hits    int64 // number of duplicates
	Misses  int64 // number of records with an identity that the window did not have
	None    int64 // number of records without an identity
	Undated int64 // number of records with an identity and without a timestamp that counts: see [Effective]
}

// NewJudge returns a Judge for a window of a length. newest is the newest timestamp among the rows of the partition,
// Never if it has none. seen has the timestamps of the fingerprints to be judged, as [Store.Seen] returns them, and
// rows is the expected number of records.
func NewJudge(length time.Duration, now time.Time, newest int64, seen map[Fingerprint]int64, rows int) *Judge {
	return &Judge{length: length.Milliseconds(), now: now.UnixMilli(), newest: newest, seen: seen, cut: newIndex(rows)}
}

// JudgeBytes is the largest memory of a Judge per row, in bytes.
const JudgeBytes = 26

// Duplicate reports whether a record is a duplicate. If not, it counts as a row from now on.
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
