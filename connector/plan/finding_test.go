package plan

import (
	"testing"

	"sluice/connector"
	"sluice/reliability/hold"
)

// TestFinding_AgreesWithBounds: for every position, Finding returns a hold exactly if Bounds.Unreadable returns a
// reason, and with that reason. So the same positions stop a claim that resumes and a claim that is being read.
func TestFinding_AgreesWithBounds(t *testing.T) {
	found := make(map[hold.Reason]bool)
	for next := range int64(15) {
		for diverged := int64(-1); diverged < next; diverged++ {
			at := connector.Position{Partition: connector.Partition{Topic: "orders", ID: 1}, Next: next, Epoch: 1}
			b := connector.Bounds{LogStart: 5, LastStable: 8, HighWatermark: 10, DivergedAt: diverged}
			want := b.Unreadable(next)
			switch h := Finding(at, b, true); {
			case h == nil && want != "", h != nil && (h.Reason != want || h.Detail == "" || h.Offset != next || h.Partition != at.Partition):
				t.Errorf("position %d in %+v: %+v, want %q", next, b, h, want)
			}
			found[want] = true
			if h := Finding(at, b, false); h == nil || h.Reason != hold.TopicRecreated {
				t.Errorf("without the partition: %+v", h)
			}
		}
	}
	if len(found) != 4 {
		t.Errorf("found only %v", found)
	}
}
