package plan

import (
	"fmt"
	"maps"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
)

// Move sets the position of a partition.
type Move struct {
	Partition connector.Partition
	// From is the position that was shown to the operator, -1 for none. Next is the one to read from now on.
	From, Next int64
}

// Moves are what one command of an operator commits to a table: positions and no rows. They need no member and are safe
// beside running ones: whoever reads from a position that moves is fenced.
type Moves struct {
	connector.Moved
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

// Plan is the commit of the moves on a snapshot.
func (m *Moves) Plan(s *connector.Snapshot) *Plan {
	p := &Plan{Next: map[connector.Partition]Span{}, tableID: m.TableID, pipeline: m.Pipeline, accepts: m.Accept, expects: map[string]int64{}}
	if p.tableID == "" {
		p.tableID = s.TableID
	}
	p.Commit.Moved = &m.Moved
	p.Commit.Operation = operationInitial
	mark := idempotency.TableAppID(m.Pipeline, s.TableID)
	if _, marked := s.Positions[mark]; m.Accept && !marked {
		p.Commit.Txns = append(p.Commit.Txns, connector.Txn{AppID: mark, Version: 0})
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

// Precondition is PRE of the moves.
func (m *Moves) Precondition(p *Plan, s *connector.Snapshot) error {
	if s.TableID != p.tableID {
		return classify.Mark(fmt.Errorf("the table has id %s, shown was %s", s.TableID, p.tableID), classify.Fenced)
	}
	return p.Precondition(s)
}
