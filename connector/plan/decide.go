package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// Plan is what a cut will commit.
type Plan struct {
	Pieces []connector.Piece
	// Letters are the records that become dead letters, in the order of claims and offsets. The commit drops them once
	// they are durable.
	Letters []deadletter.Letter
	Commit  connector.Commit
	// Next is where each claim of the plan will stand.
	Next map[connector.Partition]Span
	// Oldest is the least timestamp of the records behind the rows, in milliseconds; 0 if none has one.
	Oldest int64
	// Arrivals are how the runs behind the rows came here.
	Arrivals []arrival
	// Newest is the greatest one of each claim that has any.
	Newest map[connector.Partition]int64
	// HoldTimestamps is the timestamp of the record that each of Holds stands at.
	HoldTimestamps map[connector.Partition]int64
	// Holds are the claims that a bad record stops, each at its offset.
	Holds []hold.Hold

	// Of duplicates: what is kept is remembered once the plan is in the log, as of now; some of what was skipped.
	kept    map[connector.Partition][][]idempotency.Entry
	Judged  map[connector.Partition]idempotency.Counts
	Skipped []duplicate
	now     time.Time

	tableID string
	// expects are the positions that PRE compares, by appId.
	expects map[string]int64
	schemas []connector.Schema
	// initialTopic is the topic of a START, "" for any other plan.
	initialTopic, pipeline string
	// accepts says that this plan makes a table that was replaced one of the pipeline's.
	accepts bool
}

const (
	operationWrite   = "STREAMING UPDATE"
	operationInitial = "SLUICE START"
	operationMove    = "SLUICE POSITIONS"
	// operationOffsets is an operator's, who moved positions that were there.
	operationOffsets = "SLUICE OFFSETS"
)

// Decide says what a cut commits, in offset order of each claim. It is pure: nothing outside its arguments steers it.
//
// Rows and letters whose session is not the cut's are masked: their claim was lost, fenced or held after they were read. A
// bad record that can have no letter truncates its claim at its offset, and so does a flood of those that could; the other
// claims commit.
func Decide(batch *SealedBatch, s *connector.Snapshot, t Terms) *Plan {
	p := &Plan{
		Next: maps.Clone(batch.Claims), tableID: s.TableID, pipeline: t.Pipeline, expects: map[string]int64{},
		Newest: map[connector.Partition]int64{}, HoldTimestamps: map[connector.Partition]int64{},
	}
	for _, bad := range stops(batch) {
		p.hold(holdOf(bad))
	}
	bad := lettered(batch, p.Next)
	if holds := floods(batch, p.Next, bad, t); len(holds) > 0 {
		for _, h := range holds {
			p.hold(h)
		}
		bad = lettered(batch, p.Next)
	}
	letters, rows := map[connector.Partition]int64{}, map[connector.Partition]int64{}
	p.Letters = make([]deadletter.Letter, len(bad))
	for i, c := range bad {
		letters[c.Partition]++
		p.Letters[i] = c.letter(t.Member, batch.ID)
	}
	for _, h := range p.Holds {
		for i := range batch.Candidates {
			if c := &batch.Candidates[i]; c.Partition == h.Partition && c.Offset == h.Offset {
				p.HoldTimestamps[h.Partition] = c.Timestamp
			}
		}
	}
	d := deduct(batch, p, s, &t)
	for _, c := range batch.Chunks {
		pieces := p.unmasked(c, d, rows)
		if len(pieces) > 0 && !slices.Contains(p.schemas, c.Schema) {
			p.schemas = append(p.schemas, c.Schema)
		}
		p.Pieces = append(p.Pieces, pieces...)
	}
	d.done(p, s)
	health := Explained(batch.Dropped, p.Next)
	for _, partition := range slices.SortedFunc(maps.Keys(p.Next), connector.Partition.Compare) {
		span := p.Next[partition]
		if span.Next == span.From {
			delete(p.Next, partition)
			continue
		}
		p.add(partition, span.From, span, rows[partition], letters[partition])
		r := &p.Commit.Ranges[len(p.Commit.Ranges)-1]
		r.HealthRecords, r.Duplicates = health[partition], p.Judged[partition].Hits
	}
	p.Commit.Operation, p.Commit.Batch = operationWrite, batch.ID
	if len(p.Pieces) == 0 {
		p.Commit.Operation = operationMove
		return p
	}
	p.Commit.Ignored = batch.Ignored.fields()
	return p
}

// hold truncates a claim at the place of a hold. One that comes before takes the place of a later one.
func (p *Plan) hold(h hold.Hold) {
	span := p.Next[h.Partition]
	span.EndAt(h.Offset)
	p.Next[h.Partition] = span
	p.Holds = append(slices.DeleteFunc(p.Holds, func(later hold.Hold) bool { return later.Partition == h.Partition }), h)
}

// add puts the new position of a claim into the plan, and beside it the leader epoch of what was read before it: every
// resume compares that with the log, whatever became of Kafka's committed offset.
func (p *Plan) add(partition connector.Partition, from int64, span Span, rows, letters int64) {
	appID := partition.AppID(p.pipeline)
	p.Commit.Txns = append(p.Commit.Txns, connector.Txn{AppID: appID, Version: span.Next}, connector.Txn{AppID: partition.EpochAppID(p.pipeline), Version: int64(span.Epoch)})
	p.Commit.Ranges = append(p.Commit.Ranges, connector.Range{
		Topic: partition.Topic, Partition: partition.ID, From: from, Next: span.Next, Rows: rows, Letters: letters, Epoch: span.Epoch,
	})
	if p.initialTopic == "" {
		p.expects[appID] = from
	}
}

// Precondition is PRE: whether this plan may extend the log prefix that s shows. Its error is Fenced, or a hold if nobody accepted
// the table.
func (p *Plan) Precondition(s *connector.Snapshot) error {
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
	if p.initialTopic != "" {
		if past := History(s, p.initialTopic); len(past) > 0 {
			return classify.Mark(fmt.Errorf("START of topic %q over its history: %s", p.initialTopic, past[0].appID), classify.Fenced)
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
func (p *Plan) unmasked(c Chunk, d *deduction, rows map[connector.Partition]int64) []connector.Piece {
	var pieces []connector.Piece
	for _, r := range c.Runs {
		if !r.Within(p.Next) {
			continue
		}
		kept := false
		for from, to := range d.rows(p, &c, r) {
			kept = true
			p.Oldest, p.Newest[r.Partition] = Earliest(p.Oldest, r.Oldest), max(p.Newest[r.Partition], r.Newest)
			rows[r.Partition] += to - from
			if n := len(pieces); n > 0 && pieces[n-1].To == from {
				pieces[n-1].To = to
				continue
			}
			pieces = append(pieces, connector.Piece{Rows: c.Rows, From: from, To: to})
		}
		if kept {
			p.Arrivals = append(p.Arrivals, arrival{r.Enqueued, r.Oldest})
		}
	}
	return pieces
}

// arrival is how a run came to its commit: when it was handed over, in nanoseconds, and the least timestamp of its records, in
// milliseconds.
type arrival struct{ Enqueued, Oldest int64 }

func holdOf(c Candidate) hold.Hold {
	h := hold.Hold{Partition: c.Partition, Reason: hold.Poison, Detail: c.Err.Error(), Offset: c.Offset}
	if held := (*hold.Error)(nil); errors.As(c.Err, &held) {
		h.Reason, h.Detail = held.Reason, held.Detail
	}
	return h
}
