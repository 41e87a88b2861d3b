package kafka

import (
	"testing"

	"sluice/connector"
	"sluice/reliability/hold"
)

// TestOutside_AgreesWithBounds: outside returns a hold for exactly the positions that [connector.Bounds.Unreadable]
// rejects, with the same reason. So the same positions stop a claim that is being read and a claim that resumes;
// package plan has the same test for Finding.
func TestOutside_AgreesWithBounds(t *testing.T) {
	found := make(map[hold.Reason]bool)
	for next := range int64(15) {
		for diverged := int64(-1); diverged < next; diverged++ { // the leader's history diverges below the position, at diverged, or nowhere (-1)
			at := connector.Position{Next: next, Epoch: 1}
			b := connector.Bounds{LogStart: 5, LastStable: 8, HighWatermark: 10, DivergedAt: diverged}
			reason, detail, _ := hold.Of(outside(at, b))
			if want := b.Unreadable(next); reason != want || (detail == "") != (want == "") {
				t.Errorf("position %d in %+v: %q %q, want %q", next, b, reason, detail, want)
			}
			found[reason] = true
		}
	}
	if len(found) != 4 {
		t.Errorf("found only %v", found)
	}
	if err := outside(connector.Position{Next: -1}, connector.Bounds{LogStart: 5, HighWatermark: 10, DivergedAt: -1}); err != nil {
		t.Errorf("without a position: %v", err)
	}
}
