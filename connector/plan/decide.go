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

// Plan is the content of the next version of the table: what a sealed batch, an initial commit or the moves of an
// operator will commit.
type Plan struct {
	Pieces []connector.Piece
	// Letters are the dead letters, ordered by claim and offset. The committer sets Letters to nil once they are
	// durable, to free their memory.
	Letters []deadletter.Letter
	Commit  connector.Commit
	// Next has the claims of the plan. The position of a claim after the commit is the Next of its span.
	Next map[connector.Partition]Span
	// Oldest is the smallest timestamp of the records that become rows, in milliseconds; 0 if none has one.
	Oldest int64
	// Arrivals has one element for each run that becomes rows. The metrics of latency use them.
	Arrivals []arrival
	// Newest is the largest record timestamp of each claim that has rows, in milliseconds.
	Newest map[connector.Partition]int64
	// HoldTimestamps has, for each claim in Holds, the timestamp of the record that stops it.
	HoldTimestamps map[connector.Partition]int64
	// Holds has a hold for each claim that a bad record stops, at the offset of that record.
	Holds []hold.Hold
	// Origins has, for each claim, the counts of the records that a replay has produced again. It is nil if there are
	// none.
	Origins map[connector.Partition]OriginCounts

	// These fields are set if the table declares an identity. kept has the entries to store after the commit. Judged
	// has the numbers of identities that were found in the dedup window and that were new. Skipped has some of the
	// duplicates that were left out, for the log. now is the time of the decision.
	kept    map[connector.Partition][][]idempotency.Entry
	Judged  map[connector.Partition]idempotency.Counts
	Skipped []duplicate
	now     time.Time

	tableID string
	// expects has the positions that the precondition requires, by appId. -1 means that the table must have no position
	// for that appId.
	expects map[string]int64
	schemas []connector.Schema
	// initialTopic is set only in the first commit of a topic: the table must then have no position of a topic of this
	// name, of any pipeline. It is "" in all other plans, also in the initial commit of partitions that were added to a
	// topic, because the other partitions have positions.
	initialTopic, pipeline string
	// accepts allows the plan to commit to a replaced table and to mark it as the pipeline's own.
	accepts bool
}

const (
	operationWrite   = "STREAMING UPDATE"
	operationInitial = "SLUICE START"
	// operationPositions marks a batch without rows: only positions move.
	operationPositions = "SLUICE POSITIONS"
	// operationOffsets marks a commit of an operator that changed existing positions.
	operationOffsets = "SLUICE OFFSETS"
)

// Decide returns the plan of a sealed batch. The rows of each claim stay in the order of their offsets. It is pure.
//
// It leaves out rows and dead letters of a session other than the batch's, because their claim was lost, fenced or held
// after they were read. A claim with a bad record that cannot become a dead letter commits only up to that record, and
// is held there. In a flood of bad records of a topic, each claim of the topic that has bad records is held at the
// first of them. The other claims commit.
//
// It also leaves out records that a replay has produced again and the table has accepted already: see judgeOrigins.
func Decide(batch *SealedBatch, s *connector.Snapshot, t Terms) *Plan {
	p := &Plan{
		Next: maps.Clone(batch.Claims), tableID: s.TableID, pipeline: t.Pipeline, expects: map[string]int64{},
		Newest: map[connector.Partition]int64{}, HoldTimestamps: map[connector.Partition]int64{},
	}
	origins := judgeOrigins(batch, s, t.Pipeline)
	batch = origins.without(batch)
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
		r.Repeats = origins.pass(p, s, partition).LeftOut()
	}
	p.Commit.Operation, p.Commit.Batch = operationWrite, batch.ID
	if len(p.Pieces) == 0 {
		p.Commit.Operation = operationPositions
		return p
	}
	p.Commit.Ignored = batch.Ignored.fields()
	return p
}

// hold makes the plan end a claim at the offset of h and hold it there. If the claim has a hold already, h replaces it:
// Decide adds floods last, and a flood begins at a smaller offset.
func (p *Plan) hold(h hold.Hold) {
	span := p.Next[h.Partition]
	span.EndAt(h.Offset)
	p.Next[h.Partition] = span
	p.Holds = append(slices.DeleteFunc(p.Holds, func(later hold.Hold) bool { return later.Partition == h.Partition }), h)
}

// add adds a claim to the commit: the txn with its new position, the txn with the leader epoch of the last record
// before that position, and the range. It also adds to the precondition that the position must be from. A resume
// compares the epoch with the log, even if the group's committed offset is lost.
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

// Precondition returns nil if the plan may extend the log prefix that s shows. Otherwise the error is Fenced, or a
// [hold.Error] if no operator has accepted a replaced table.
func (p *Plan) Precondition(s *connector.Snapshot) error {
	if s.TableID != p.tableID {
		return hold.New(hold.TableReplaced, fmt.Sprintf("the table has id %s, it was %s when its claims resumed", s.TableID, p.tableID), nil)
	}
	// The table id is not enough: the plan may have taken it from a snapshot that was loaded after the table was
	// replaced.
	if detail := Replaced(s, p.pipeline); detail != "" && !p.accepts {
		return hold.New(hold.TableReplaced, detail, nil)
	}
	for appID, want := range p.expects {
		at, ok := s.Positions[appID]
		if !ok {
			at = -1
		}
		if at != want {
			return classify.Mark(fmt.Errorf("the position of %s is %d, but this commit starts at %d", appID, at, want), classify.Fenced)
		}
	}
	if p.initialTopic != "" {
		if past := History(s, p.initialTopic); len(past) > 0 {
			return classify.Mark(fmt.Errorf("initial commit of topic %q, but the table already has %s", p.initialTopic, past[0].appID), classify.Fenced)
		}
	}
	for _, built := range p.schemas {
		if err := s.Schema.Fits(built); err != nil {
			return classify.Mark(fmt.Errorf("rows do not fit the table any more: %w", err), classify.Fenced)
		}
	}
	return nil
}

// unmasked returns the rows of a chunk that the plan commits, and adds their numbers to rows, by partition. It leaves
// out duplicates, and runs that the plan does not reach. No run is cut: a bad record at which a claim ends also ends a
// run.
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

// arrival describes a run: when its first record was enqueued, in nanoseconds since 1970, and the smallest timestamp of
// its records, in milliseconds.
type arrival struct{ Enqueued, Oldest int64 }

func holdOf(c Candidate) hold.Hold {
	h := hold.Hold{Partition: c.Partition, Reason: hold.Poison, Detail: c.Err.Error(), Offset: c.Offset}
	if held := (*hold.Error)(nil); errors.As(c.Err, &held) {
		h.Reason, h.Detail = held.Reason, held.Detail
	}
	return h
}
