package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/idempotency"
)

// TestMoves_EpochUnknown: an operator may move a position to an offset up to which no member has read, so the epoch of
// the new position is unknown.
func TestMoves_EpochUnknown(t *testing.T) {
	p := connectortest.Partition(0)
	m := Moves{Pipeline: "pipe", Moves: []Move{{Partition: p, From: 10, Next: 4}}}
	s := connectortest.Snapshot(map[string]int64{p.AppID("pipe"): 10, p.EpochAppID("pipe"): 7, idempotency.TableAppID("pipe", "T"): 0})
	want := []connector.Txn{{AppID: p.AppID("pipe"), Version: 4}, {AppID: p.EpochAppID("pipe"), Version: -1}}
	if diff := cmp.Diff(want, m.Plan(s).Commit.Txns); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
