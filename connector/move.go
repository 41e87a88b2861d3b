package connector

import (
	"context"
	"fmt"
	"maps"

	"sluice/classify"
	"sluice/idempotency"
)

// Move sets the position of a partition.
type Move struct {
	Partition Partition
	// From is the position that was shown to the operator, -1 for none. Next is the one to read from now on.
	From, Next int64
}

// Moved says in commitInfo who moved positions by which command, and why.
type Moved struct {
	Command  string `json:"command"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
}

// Moves are what one command of an operator commits to a table: positions and no rows. They need no member and are safe
// beside running ones: whoever reads from a position that moves is fenced.
type Moves struct {
	Moved
	Pipeline string
	// TableID is the table that was shown, "" if there was none yet.
	TableID string
	Moves   []Move
	// Others are txns of other programs that the moves were taken from, by appId, -1 for none. They must still be the same.
	Others map[string]int64
	// Accept marks the table as one of the pipeline's. Without it a table that was not marked refuses: see
	// [hold.TableReplaced].
	Accept bool
}

// Apply commits the moves all together, or none of them. PRE, in the prefix that the commit extends: the table and each
// position are still those that were shown. Errors: Fenced if they are not; a hold.Error with hold.TableReplaced; those of
// [Table.Commit] else, ErrUndecided among them.
func (m *Moves) Apply(ctx context.Context, t Table) (*Snapshot, error) {
	s, err := t.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	p := m.plan(s)
	if s, err = t.Commit(ctx, &p.Commit, func(s *Snapshot) error { return m.pre(p, s) }); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return s, nil
}

// plan is the commit of the moves on a snapshot.
func (m *Moves) plan(s *Snapshot) *Plan {
	p := &Plan{Next: map[Partition]Span{}, tableID: m.TableID, pipeline: m.Pipeline, accepts: m.Accept, expects: map[string]int64{}}
	if p.tableID == "" {
		p.tableID = s.TableID
	}
	p.Commit.Moved = &m.Moved
	p.Commit.Operation = operationStart
	mark := idempotency.TableAppID(m.Pipeline, s.TableID)
	if _, marked := s.Positions[mark]; m.Accept && !marked {
		p.Commit.Txns = append(p.Commit.Txns, Txn{mark, 0})
	}
	maps.Copy(p.expects, m.Others)
	for _, move := range m.Moves {
		p.add(move.Partition, move.From, Span{From: move.From, Next: move.Next, Epoch: -1}, 0, 0)
		if move.From >= 0 {
			p.Commit.Operation = operationOffsets
		}
	}
	return p
}

// pre is PRE of the moves.
func (m *Moves) pre(p *Plan, s *Snapshot) error {
	if s.TableID != p.tableID {
		return classify.Mark(fmt.Errorf("the table has id %s, shown was %s", s.TableID, p.tableID), classify.Fenced)
	}
	return p.pre(s)
}
