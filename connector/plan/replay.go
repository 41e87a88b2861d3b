package plan

import (
	"fmt"
	"maps"
	"slices"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/reliability/origin"
)

// Replay is a commit of a replay of dead letters. Either it adds the rows of dead letters whose records the positions
// have already passed, or it opens or closes a replay that produces the records to their topic again. It moves no
// position.
type Replay struct {
	Pipeline string
	TableID  string // of the table for which the rows were built
	// Intent is the number of the commit's intent in the operations log. The commit makes it the version of the table's
	// txn for replays, so the table shows which intent took effect last.
	Intent int64
	// After is the version that this txn must have before the commit; 0 means that the table must have no such txn.
	// Therefore, of several intents with the same After, only one can be committed.
	After  int64
	Schema connector.Schema // for which the rows were built; nil without rows
	// Passed is the smallest position that each partition with replayed records may have.
	Passed  map[connector.Partition]int64
	Letters []connector.Replayed
	// Origins has the partitions for which the commit opens or closes a replay through the topic: see ADR 20. The value
	// is the version that the partition's txn of accepted origins must have before the commit; 0 means that there must
	// be none.
	Origins map[connector.Partition]int64
}

const operationReplay = "SLUICE REPLAY"

// Commit returns the commit of the replay. staged are its rows, nil without rows.
func (r *Replay) Commit(batch string, staged *connector.Staged) *connector.Commit {
	c := &connector.Commit{
		Operation: operationReplay, Batch: batch, Staged: staged, Replayed: r.Letters,
		Txns: []connector.Txn{{AppID: idempotency.ReplayAppID(r.Pipeline, r.TableID), Version: r.Intent}},
	}
	for _, p := range slices.SortedFunc(maps.Keys(r.Origins), connector.Partition.Compare) {
		c.Txns = append(c.Txns, connector.Txn{AppID: p.OriginsAppID(r.Pipeline), Version: origin.Txn(r.Intent, 0)})
	}
	return c
}

// Precondition returns nil if the replay may extend the log prefix that s shows: no other replay was committed since
// After, and all positions have passed the replayed records, which would otherwise be read again. Else the error is
// Fenced, or a [hold.Error] with hold.TableReplaced.
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
	for p, want := range r.Origins {
		if at := s.Positions[p.OriginsAppID(r.Pipeline)]; at != want {
			return fenced("members accepted more origins of %v: the txn is %d, the replay needs %d", p, at, want)
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
