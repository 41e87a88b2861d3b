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

// Dropped is health-check records of one session of a claim: Count of them at offsets [First, Last]. No candidate lies
// between them, so that they are in a plan or out of it as a whole.
type Dropped struct {
	Partition   connector.Partition
	Session     uint64
	First, Last int64
	Count       int64

	Candidates int // that the lane had before
}

// Explained counts the health-check records that a plan passes, by claim.
func Explained(dropped []Dropped, next map[connector.Partition]Span) map[connector.Partition]int64 {
	counts := map[connector.Partition]int64{}
	for _, d := range dropped {
		if span, ok := next[d.Partition]; ok && span.Session == d.Session && d.First < span.Next {
			counts[d.Partition] += d.Count
		}
	}
	return counts
}

// Chunk is rows of one lane and table, with what each of them stems from. It becomes a row group.
type Chunk struct {
	Rows   arrow.RecordBatch
	Schema connector.Schema // that the rows were built for
	Runs   []Run            // all rows, in order
	// Entries are what the rows are known by for their producer, one for each; nil if the table declares no identity.
	Entries    []idempotency.Entry
	Allocated  int64 // of the batch pool, in bytes
	EntryBytes int64 // the same of Entries, and of judging them
}

// Run is rows [From, To) of a chunk, which stem from offsets [First, Last] of one session of a claim.
type Run struct {
	Partition   connector.Partition
	Session     uint64
	First, Last int64
	From, To    int64
	// Oldest and newest are the least and the greatest timestamp of the records, in milliseconds; not positive if none has one.
	Oldest, Newest int64
	// Enqueued is when the first of them was handed over, in nanoseconds.
	Enqueued int64
}

// Span is the part of a claim that a cut covers: offsets [From, Next) of one session. Epoch is the leader epoch of the
// last record batch before Next, -1 if it is unknown. Earlier are those before places further back, if there are others.
type Span struct {
	Session    uint64
	From, Next int64
	Epoch      int32
	Earlier    []EpochUntil
}

// EpochUntil is the leader epoch of the last record batch before each place up to Until, which is the last such place.
type EpochUntil struct {
	Epoch int32
	Until int64
}

// EndAt shortens the span to [From, next). It takes the leader epoch of what lies before next: the log may lose what lies
// behind it, and what the table has is still there.
func (s *Span) EndAt(next int64) {
	s.Next = next
	for _, e := range s.Earlier {
		if next <= e.Until {
			s.Epoch = e.Epoch
			return
		}
	}
}

// SealedBatch is a batch closed: what the claims read, and what the lanes made of it. Chunks hold every lane's in its order; a
// claim belongs to one lane, so its rows are in the order of their offsets.
type SealedBatch struct {
	ID         string // its id, in log lines and letters
	Claims     map[connector.Partition]Span
	Chunks     []Chunk
	Candidates []Candidate
	Dropped    []Dropped
	// Seen is when those of the fingerprints of its rows that are remembered were, in milliseconds.
	Seen     map[connector.Partition]map[idempotency.Fingerprint]int64
	Ignored  IgnoredNames
	Failures []Failure // of lanes: nothing of the cut is usable
}

// Within tells whether a run belongs to a claim as far as that goes.
func (r *Run) Within(next map[connector.Partition]Span) bool {
	span, ok := next[r.Partition]
	return ok && span.Session == r.Session && r.First < span.Next
}

// Candidate is a record that could not become a row. With the record it may become a dead letter; without, it stops its
// claim.
type Candidate struct {
	Partition connector.Partition
	Session   uint64
	Offset    int64
	Err       error
	// Record is a copy, since the memory of what was fetched goes back when its block is done. nil: the claim holds here.
	Record *connector.Record
	// Retries is how often it was tried again. First and Last are when it failed.
	Retries     int
	First, Last time.Time

	Timestamp int64 // of the record

	Allocated int64 // of the batch pool, in bytes
}

// within tells whether a candidate belongs to a claim as far as that goes.
func (c *Candidate) within(next map[connector.Partition]Span) bool {
	span, ok := next[c.Partition]
	return ok && span.Session == c.Session && c.Offset < span.Next
}

// Entries yields the rows of a claim that have an identity.
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

// Failure is a record at which a lane's decoder failed for a reason that nobody knows, or the first record of a chunk that
// could not be sealed.
type Failure struct {
	Partition connector.Partition
	Session   uint64
	Offset    int64
	Err       error
	// Alone says that other records pass.
	Alone bool
	// Runs are the rows that went with the builder.
	Runs []Run
	// Sealing says that the chunk of runs could not be sealed, whichever of its rows is at fault.
	Sealing bool
}

// FailedAt returns the records of a cut at which lanes failed, and the first error. Nothing of such a cut is usable: the
// rows that stood beside the record are gone.
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

// RunOf is the run that a row of the cut belongs to.
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

// IgnoredNames collects names by topic.
type IgnoredNames map[string]*ignoredOf

type ignoredOf struct {
	names map[string]bool
	more  bool
}

// Add takes names of a topic until there are MaxIgnoredNames.
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

// Merge takes the names of another lane.
func (n IgnoredNames) Merge(other IgnoredNames) {
	for topic, of := range other {
		n.Add(topic, slices.Collect(maps.Keys(of.names)), of.more)
	}
}

// fields returns the names as commitInfo has them, nil without any.
func (n IgnoredNames) fields() (all []connector.IgnoredFields) {
	for _, topic := range slices.Sorted(maps.Keys(n)) {
		of := n[topic]
		all = append(all, connector.IgnoredFields{Topic: topic, Names: slices.Sorted(maps.Keys(of.names)), More: of.more})
	}
	return all
}

// Earliest is the lesser of two timestamps; one that is not positive is none.
func Earliest(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}
