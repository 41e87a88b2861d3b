package plan

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/idempotency"
)

// Dropped is a range of health-check records that a lane has dropped: Count records of one session of a claim, at
// offsets from First to Last. The lane kept no candidate between them, so a plan passes all of them or none.
type Dropped struct {
	Partition   connector.Partition
	Session     uint64
	First, Last int64
	Count       int64

	Candidates int // how many candidates the lane had before it dropped First
}

// Explained returns, for each claim, how many health-check records lie before the position that a plan sets. They
// explain why the commit has fewer rows and dead letters than offsets.
func Explained(dropped []Dropped, next map[connector.Partition]Span) map[connector.Partition]int64 {
	counts := map[connector.Partition]int64{}
	for _, d := range dropped {
		if span, ok := next[d.Partition]; ok && span.Session == d.Session && d.First < span.Next {
			counts[d.Partition] += d.Count
		}
	}
	return counts
}

// Chunk is the rows of one lane and table, with the offsets they come from. It becomes a row group.
type Chunk struct {
	Rows   arrow.RecordBatch
	Schema connector.Schema // the schema for which the rows were built
	Runs   []Run            // the runs of all rows, in order
	// Entries are the identities of the rows for their producer, one for each row; nil if the table declares no
	// identity.
	Entries    []idempotency.Entry
	Allocated  int64 // the bytes reserved in the batch pool
	EntryBytes int64 // the bytes reserved for Entries and for comparing them with the window
}

// Run is rows [From, To) of a chunk, which come from offsets [First, Last] of one session of a claim.
type Run struct {
	Partition   connector.Partition
	Session     uint64
	First, Last int64
	From, To    int64
	// Oldest and Newest are the smallest and the largest timestamp of the records, in milliseconds. They are not
	// positive if no record has a timestamp.
	Oldest, Newest int64
	// Enqueued is when the first of the records was enqueued, in nanoseconds since 1970.
	Enqueued int64
}

// Span is the part of a claim that a sealed batch covers: offsets [From, Next) of one session. Epoch is the leader
// epoch of the last record batch before Next, -1 if it is unknown. If the leader changed within the span, Earlier has
// the epochs of the smaller offsets, in ascending order.
type Span struct {
	Session    uint64
	From, Next int64
	Epoch      int32
	Earlier    []EpochUntil
}

// EpochUntil says that for each position up to and including Until, the last record batch before it has the leader
// epoch Epoch. In a list, each element applies to the positions after the Until of the element before it.
type EpochUntil struct {
	Epoch int32
	Until int64
}

// EndAt shortens the span to [From, next), and sets Epoch to the leader epoch of the last record batch before next.
// With the epoch of a later record batch, a resume would report a truncation although the log lost only records after
// next, which are not in the table.
func (s *Span) EndAt(next int64) {
	s.Next = next
	for _, e := range s.Earlier {
		if next <= e.Until {
			s.Epoch = e.Epoch
			return
		}
	}
}

// SealedBatch is a batch that takes no more records: the offsets that it covers, and the rows and candidates that the
// lanes made of the records. The chunks of each lane are in the order in which it sealed them. A claim belongs to one
// lane, so its rows are in offset order.
type SealedBatch struct {
	ID         string // the id in log lines and dead letters
	Claims     map[connector.Partition]Span
	Chunks     []Chunk
	Candidates []Candidate
	Dropped    []Dropped
	// Origins are the authentic origins of records of the claims. Each of these records has a run of its own.
	Origins []Origin
	// Seen has the fingerprints of the batch's rows that the dedup window already contains, by claim, each with the
	// time of that earlier record in milliseconds.
	Seen     map[connector.Partition]map[idempotency.Fingerprint]int64
	Ignored  IgnoredNames
	Failures []Failure // the failures of lanes; if there is one, the batch cannot be committed
}

// Within reports whether next has the run's claim with the same session, and the run lies before the end of that span.
func (r *Run) Within(next map[connector.Partition]Span) bool {
	span, ok := next[r.Partition]
	return ok && span.Session == r.Session && r.First < span.Next
}

// Candidate is a record that could not become a row. If Record is set, it may become a dead letter; otherwise its claim
// is held at its offset.
type Candidate struct {
	Partition connector.Partition
	Session   uint64
	Offset    int64
	Err       error
	// Record is a copy of the record, because the memory of the fetch result is released when its block is decoded. If
	// it is nil, the record cannot become a dead letter and stops its claim.
	Record *connector.Record
	// Retries is the number of retries. First and Last are the times of the first and the last failure.
	Retries     int
	First, Last time.Time

	Timestamp int64 // the timestamp of the record

	Allocated int64 // the bytes reserved in the batch pool
}

// within reports whether next has the candidate's claim with the same session, and the candidate lies before the end of
// that span.
func (c *Candidate) within(next map[connector.Partition]Span) bool {
	span, ok := next[c.Partition]
	return ok && span.Session == c.Session && c.Offset < span.Next
}

// Entries yields the fingerprint entries of those rows of a claim that have an identity.
func (b *SealedBatch) Entries(p connector.Partition) iter.Seq[idempotency.Entry] {
	return func(yield func(idempotency.Entry) bool) {
		for i := range b.Chunks {
			for _, run := range b.Chunks[i].Runs {
				if run.Partition != p || b.Chunks[i].Entries == nil || !run.Within(b.Claims) {
					continue
				}
				for _, e := range b.Chunks[i].Entries[run.From:run.To] {
					if !e.Fingerprint.IsZero() && !yield(e) {
						return
					}
				}
			}
		}
	}
}

// Failure says that a lane's decoder failed for an unknown reason. Offset is that of the record at which it failed; if
// it failed to seal a chunk, of the first record in the chunk.
type Failure struct {
	Partition connector.Partition
	Session   uint64
	Offset    int64
	Err       error
	// Alone is true if the decoder makes rows of other records, so that only this one is at fault.
	Alone bool
	// Runs are about the rows that were in the builder when it failed, and are lost.
	Runs []Run
	// Sealing is true if the chunk of Runs could not be sealed; which of its rows is at fault is unknown.
	Sealing bool
}

// FailedAt returns the failures for which a single record is at fault (Alone), and the first error of all failures. The
// error is nil if no lane failed. If it is not nil, the whole batch is unusable, because the rows in that builder are
// lost.
func (b *SealedBatch) FailedAt() (at []Failure, err error) {
	for _, f := range b.Failures {
		if err == nil {
			err = f.Err
		}
		if span, ok := b.Claims[f.Partition]; ok && span.Session == f.Session && f.Alone {
			at = append(at, f)
		}
	}
	return at, err
}

// RunOf returns the run that contains the first row of a piece, nil if the batch does not have that row.
func (b *SealedBatch) RunOf(row connector.Piece) *Run {
	for i := range b.Chunks {
		if b.Chunks[i].Rows != row.Rows {
			continue
		}
		for j := range b.Chunks[i].Runs {
			if r := &b.Chunks[i].Runs[j]; r.From <= row.From && row.From < r.To {
				return r
			}
		}
	}
	return nil
}

// IgnoredNames are the names of ignored fields by topic.
type IgnoredNames map[string]*ignoredOf

type ignoredOf struct {
	names map[string]bool
	more  bool
}

// Add adds names of a topic, up to MaxIgnoredNames in all; more says that the caller left names out.
func (n IgnoredNames) Add(topic string, names []string, more bool) {
	if len(names) == 0 && !more {
		return
	}
	of := n[topic]
	if of == nil {
		of = &ignoredOf{names: map[string]bool{}}
		n[topic] = of
	}
	of.more = of.more || more
	for _, name := range names {
		if len(of.names) >= connector.MaxIgnoredNames && !of.names[name] {
			of.more = true
			return
		}
		of.names[name] = true
	}
}

// Merge adds the names that another lane has seen.
func (n IgnoredNames) Merge(other IgnoredNames) {
	for topic, of := range other {
		n.Add(topic, slices.Collect(maps.Keys(of.names)), of.more)
	}
}

// fields returns the names in the form that commitInfo has; nil if there are none.
func (n IgnoredNames) fields() (all []connector.IgnoredFields) {
	for _, topic := range slices.Sorted(maps.Keys(n)) {
		of := n[topic]
		all = append(all, connector.IgnoredFields{Topic: topic, Names: slices.Sorted(maps.Keys(of.names)), More: of.more})
	}
	return all
}

// Earliest returns the smaller of two timestamps. A timestamp that is not positive counts as missing; 0 if both
// are.
func Earliest(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}
