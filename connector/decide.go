package connector

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// Chunk is rows of one lane and table, with what each of them stems from. It becomes a row group.
type Chunk struct {
	Rows   arrow.RecordBatch
	Schema Schema // that the rows were built for
	Runs   []Run  // all rows, in order
	// Entries are what the rows are known by for their producer, one for each; nil if the table declares no identity.
	Entries []idempotency.Entry
	held    int64 // of the batch pool, in bytes
	entries int64 // the same of Entries, and of judging them
}

// Run is rows [From, To) of a chunk, which stem from offsets [First, Last] of one session of a claim.
type Run struct {
	Partition   Partition
	Session     uint64
	First, Last int64
	From, To    int64
	// oldest and newest are the least and the greatest timestamp of the records, in milliseconds; not positive if none has one.
	oldest, newest int64
	// handed is when the first of them was handed over, in nanoseconds.
	handed int64
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

// endAt shortens the span to [From, next). It takes the leader epoch of what lies before next: the log may lose what lies
// behind it, and what the table has is still there.
func (s *Span) endAt(next int64) {
	s.Next = next
	for _, e := range s.Earlier {
		if next <= e.Until {
			s.Epoch = e.Epoch
			return
		}
	}
}

// Cut is a batch closed: what the claims read, and what the lanes made of it. Chunks hold every lane's in its order; a
// claim belongs to one lane, so its rows are in the order of their offsets.
type Cut struct {
	Batch      string // its id, in log lines and letters
	Claims     map[Partition]Span
	Chunks     []Chunk
	Candidates []Candidate
	Dropped    []Dropped
	// Seen is when those of the fingerprints of its rows that are remembered were, in milliseconds.
	Seen     map[Partition]map[idempotency.Fingerprint]int64
	ignored  ignoredNames
	failures []failure // of lanes: nothing of the cut is usable
}

// Plan is what a cut will commit.
type Plan struct {
	Pieces []Piece
	// Letters are the records that become dead letters, in the order of claims and offsets. The commit drops them once
	// they are durable.
	Letters []deadletter.Letter
	Commit  Commit
	// Next is where each claim of the plan will stand.
	Next map[Partition]Span
	// oldest is the least timestamp of the records behind the rows, in milliseconds; 0 if none has one.
	oldest int64
	// ways are how the runs behind the rows came here.
	ways []way
	// newest is the greatest one of each claim that has any.
	newest map[Partition]int64
	// owed is the timestamp of the record that each of Holds stands at.
	owed map[Partition]int64
	// Holds are the claims that a bad record stops, each at its offset.
	Holds []hold.Hold

	// Of duplicates: what is kept is remembered once the plan is in the log, as of now; some of what was skipped.
	kept    map[Partition][][]idempotency.Entry
	judged  map[Partition]idempotency.Counts
	skipped []duplicate
	now     time.Time

	tableID string
	// expects are the positions that PRE compares, by appId.
	expects map[string]int64
	schemas []Schema
	// start is the topic of a START, "" for any other plan.
	start, pipeline string
	// accepts says that this plan makes a table that was replaced one of the pipeline's.
	accepts bool
}

const (
	operationWrite = "STREAMING UPDATE"
	operationStart = "SLUICE START"
	operationMove  = "SLUICE POSITIONS"
	// operationOffsets is an operator's, who moved positions that were there.
	operationOffsets = "SLUICE OFFSETS"
)

// decide says what a cut commits, in offset order of each claim. It is pure: nothing outside its arguments steers it.
//
// Rows and letters whose session is not the cut's are masked: their claim was lost, fenced or held after they were read. A
// bad record that can have no letter truncates its claim at its offset, and so does a flood of those that could; the other
// claims commit.
func decide(cut *Cut, s *Snapshot, t terms) *Plan {
	p := &Plan{
		Next: maps.Clone(cut.Claims), tableID: s.TableID, pipeline: t.pipeline, expects: map[string]int64{},
		newest: map[Partition]int64{}, owed: map[Partition]int64{},
	}
	for _, bad := range stops(cut) {
		p.hold(holdOf(bad))
	}
	bad := lettered(cut, p.Next)
	if holds := floods(cut, p.Next, bad, t); len(holds) > 0 {
		for _, h := range holds {
			p.hold(h)
		}
		bad = lettered(cut, p.Next)
	}
	letters, rows := map[Partition]int64{}, map[Partition]int64{}
	p.Letters = make([]deadletter.Letter, len(bad))
	for i, c := range bad {
		letters[c.Partition]++
		p.Letters[i] = c.letter(t.member, cut.Batch)
	}
	for _, h := range p.Holds {
		for i := range cut.Candidates {
			if c := &cut.Candidates[i]; c.Partition == h.Partition && c.Offset == h.Offset {
				p.owed[h.Partition] = c.timestamp
			}
		}
	}
	d := deduct(cut, p, s, &t)
	for _, c := range cut.Chunks {
		pieces := p.unmasked(c, d, rows)
		if len(pieces) > 0 && !slices.Contains(p.schemas, c.Schema) {
			p.schemas = append(p.schemas, c.Schema)
		}
		p.Pieces = append(p.Pieces, pieces...)
	}
	d.done(p, s)
	health := explained(cut.Dropped, p.Next)
	for _, partition := range slices.SortedFunc(maps.Keys(p.Next), Partition.Compare) {
		span := p.Next[partition]
		if span.Next == span.From {
			delete(p.Next, partition)
			continue
		}
		p.add(partition, span.From, span, rows[partition], letters[partition])
		r := &p.Commit.Ranges[len(p.Commit.Ranges)-1]
		r.HealthRecords, r.Duplicates = health[partition], p.judged[partition].Hits
	}
	p.Commit.Operation, p.Commit.Batch = operationWrite, cut.Batch
	if len(p.Pieces) == 0 {
		p.Commit.Operation = operationMove
		return p
	}
	p.Commit.Ignored = cut.ignored.fields()
	return p
}

// decideStart plans the first commit of a topic: one txn for each of its partitions, whoever works on them, and the
// pipeline's mark on the table.
func decideStart(topic string, starts map[Partition]int64, s *Snapshot, pipeline string) *Plan {
	p := &Plan{Next: map[Partition]Span{}, tableID: s.TableID, start: topic, pipeline: pipeline, expects: map[string]int64{}}
	p.Commit.Operation = operationStart
	mark := idempotency.TableAppID(pipeline, s.TableID)
	if _, marked := s.Positions[mark]; !marked {
		p.Commit.Txns = append(p.Commit.Txns, Txn{mark, 0})
	}
	for _, partition := range slices.SortedFunc(maps.Keys(starts), Partition.Compare) {
		p.add(partition, -1, Span{From: starts[partition], Next: starts[partition], Epoch: -1}, 0, 0)
		p.Next[partition] = Span{From: -1, Next: starts[partition], Epoch: -1}
	}
	return p
}

// decideLateStart plans the first commit of partitions that were added to a topic which the table already follows. For
// them PRE compares only their own txn: the topic has others by nature.
func decideLateStart(starts map[Partition]int64, s *Snapshot, pipeline string) *Plan {
	return decideStart("", starts, s, pipeline)
}

// hold truncates a claim at the place of a hold. One that comes before takes the place of a later one.
func (p *Plan) hold(h hold.Hold) {
	span := p.Next[h.Partition]
	span.endAt(h.Offset)
	p.Next[h.Partition] = span
	p.Holds = append(slices.DeleteFunc(p.Holds, func(later hold.Hold) bool { return later.Partition == h.Partition }), h)
}

// add puts the new position of a claim into the plan, and beside it the leader epoch of what was read before it: every
// resume compares that with the log, whatever became of Kafka's committed offset.
func (p *Plan) add(partition Partition, from int64, span Span, rows, letters int64) {
	appID := partition.AppID(p.pipeline)
	p.Commit.Txns = append(p.Commit.Txns, Txn{appID, span.Next}, Txn{partition.EpochAppID(p.pipeline), int64(span.Epoch)})
	p.Commit.Ranges = append(p.Commit.Ranges, Range{
		Topic: partition.Topic, Partition: partition.ID, From: from, Next: span.Next, Rows: rows, Letters: letters, Epoch: span.Epoch,
	})
	if p.start == "" {
		p.expects[appID] = from
	}
}

// pre is PRE: whether this plan may extend the log prefix that s shows. Its error is Fenced, or a hold if nobody accepted
// the table.
func (p *Plan) pre(s *Snapshot) error {
	if s.TableID != p.tableID {
		return hold.New(hold.TableReplaced, fmt.Sprintf("the table has id %s, it was %s when its claims resumed", s.TableID, p.tableID), nil)
	}
	// That this is the table of the newest look is not enough: the look may have been at other claims.
	if detail := Replaced(s, p.pipeline); detail != "" && !p.accepts {
		return hold.New(hold.TableReplaced, detail, nil)
	}
	for appID, want := range p.expects {
		at, ok := s.Positions[appID]
		if !ok {
			at = -1
		}
		if at != want {
			return classify.Mark(fmt.Errorf("%s stands at %d, this commit starts at %d", appID, at, want), classify.Fenced)
		}
	}
	if p.start != "" {
		if past := history(s, p.start); len(past) > 0 {
			return classify.Mark(fmt.Errorf("START of topic %q over its history: %s", p.start, past[0].appID), classify.Fenced)
		}
	}
	for _, built := range p.schemas {
		if err := s.Schema.Fits(built); err != nil {
			return classify.Mark(fmt.Errorf("rows do not fit the table any more: %w", err), classify.Fenced)
		}
	}
	return nil
}

// unmasked returns the rows of a chunk that belong to the plan, without duplicates, and counts them by partition. A run
// never spans a bad record that stops its claim, so that it is in or out as a whole.
func (p *Plan) unmasked(c Chunk, d *deduction, rows map[Partition]int64) []Piece {
	var pieces []Piece
	for _, r := range c.Runs {
		if !r.within(p.Next) {
			continue
		}
		kept := false
		for from, to := range d.rows(p, &c, r) {
			kept = true
			p.oldest, p.newest[r.Partition] = older(p.oldest, r.oldest), max(p.newest[r.Partition], r.newest)
			rows[r.Partition] += to - from
			if n := len(pieces); n > 0 && pieces[n-1].To == from {
				pieces[n-1].To = to
				continue
			}
			pieces = append(pieces, Piece{c.Rows, from, to})
		}
		if kept {
			p.ways = append(p.ways, way{r.handed, r.oldest})
		}
	}
	return pieces
}

// way is how a run came to its commit: when it was handed over, in nanoseconds, and the least timestamp of its records, in
// milliseconds.
type way struct{ handed, oldest int64 }

// within tells whether a run belongs to a claim as far as that goes.
func (r *Run) within(next map[Partition]Span) bool {
	span, ok := next[r.Partition]
	return ok && span.Session == r.Session && r.First < span.Next
}

func holdOf(c Candidate) hold.Hold {
	h := hold.Hold{Partition: c.Partition, Reason: hold.Poison, Detail: c.Err.Error(), Offset: c.Offset}
	if held := (*hold.Error)(nil); errors.As(c.Err, &held) {
		h.Reason, h.Detail = held.Reason, held.Detail
	}
	return h
}

// past is a txn of ours that tells of earlier work on a topic.
type past struct {
	appID string
	idempotency.AppID
}

// history returns all txns in the table for a topic of this name, under any pipeline, cluster or topic id.
func history(s *Snapshot, topic string) []past {
	var all []past
	for _, appID := range slices.Sorted(maps.Keys(s.Positions)) {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.TableID == "" && id.Partition.Topic == topic {
			all = append(all, past{appID, id})
		}
	}
	return all
}
