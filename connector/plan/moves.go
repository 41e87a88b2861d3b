package plan

import (
	"fmt"
	"maps"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
)

// Move is the new position for one partition.
type Move struct {
	Partition connector.Partition
	// From is the position that the command showed to the operator, -1 for none. Next is the new position.
	From, Next int64
}

// Moves are the positions that one command of an operator commits to a table, without rows. The command needs no
// member and may run beside members: a member that reads from a moved position is fenced.
type Moves struct {
	connector.Moved
	Pipeline string
	// TableID is the id of the table that the command showed, "" if the table did not exist.
	TableID string
	Moves   []Move
	// Others are versions of other programs' txns, by appId; -1 means no txn. The new positions were computed from
	// them, so the commit fails if one of them has changed.
	Others map[string]int64
	// Accept also marks the table as the pipeline's own. If it is false, the commit to a table without this mark fails:
	// see [hold.TableReplaced].
	Accept bool
}

// Plan returns the commit of the moves, for a snapshot.
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

// Precondition returns nil if p, the plan of the moves, may extend the log prefix that s shows; see
// [Plan.Precondition]. If the table was replaced since the command showed it to the operator, the error is Fenced.
func (m *Moves) Precondition(p *Plan, s *connector.Snapshot) error {
	if s.TableID != p.tableID {
		return classify.Mark(fmt.Errorf("the table has id %s, but the command showed id %s", s.TableID, p.tableID), classify.Fenced)
	}
	return p.Precondition(s)
}
