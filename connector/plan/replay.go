package plan

import (
	"fmt"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Replay is a commit that adds the rows of dead letters, whose records the positions have passed. It moves no position.
type Replay struct {
	Pipeline string
	TableID  string // of the table for which the rows were built
	// Intent is the seq of the commit's intent in the operations log. It becomes the version of the table's txn for
	// replays, so the table shows which intents took effect.
	Intent int64
	// After is the version that this txn must have, 0 if the table must have none. Of several intents with the same
	// After only one can be committed.
	After  int64
	Schema connector.Schema // for which the rows were built; nil without rows
	// Passed is the smallest position that each partition with replayed records may have.
	Passed  map[connector.Partition]int64
	Letters []connector.Replayed
}

const operationReplay = "SLUICE REPLAY"

// Commit returns the commit of the replay. staged are its rows, nil without rows.
func (r *Replay) Commit(batch string, staged *connector.Staged) *connector.Commit {
	return &connector.Commit{
		Operation: operationReplay, Batch: batch, Staged: staged, Replayed: r.Letters,
		Txns: []connector.Txn{{AppID: idempotency.ReplayAppID(r.Pipeline, r.TableID), Version: r.Intent}},
	}
}

// Precondition returns nil if the replay may extend the log prefix that s shows. Otherwise the error is Fenced, or a
// [hold.Error] with hold.TableReplaced. If it is nil, no other replay of the table was committed since After, and no
// position stands before a replayed record, whose record would then be read again.
func (r *Replay) Precondition(s *connector.Snapshot) error {
	if detail := Replaced(s, r.Pipeline); detail != "" {
		return hold.New(hold.TableReplaced, detail, nil)
	}
	fenced := func(format string, args ...any) error {
		return classify.Mark(fmt.Errorf(format, args...), classify.Fenced)
	}
	if s.TableID != r.TableID {
		return fenced("the table has id %s, the rows were built for the one with id %s", s.TableID, r.TableID)
	}
	if at := s.Positions[idempotency.ReplayAppID(r.Pipeline, r.TableID)]; at != r.After {
		return fenced("the newest replay of the table is intent %d, this one continues intent %d", at, r.After)
	}
	for p, passed := range r.Passed {
		if at, ok := s.Positions[p.AppID(r.Pipeline)]; !ok || at < passed {
			return fenced("the position of %v is %d, but the replay needs at least %d", p, at, passed)
		}
	}
	if r.Schema == nil {
		return nil
	}
	if err := s.Schema.Fits(r.Schema); err != nil {
		return fenced("rows do not fit the table any more: %w", err)
	}
	return nil
}
