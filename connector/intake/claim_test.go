package intake

import (
	"testing"

	"sluice/connector/plan"
)

// TestSpan_EndAt: a span that EndAt shortens has the leader epoch of the last record batch before its new end, -1 where
// that is unknown.
func TestSpan_EndAt(t *testing.T) {
	c := &claim{openSpan: openSpan{next: 10, epoch: 3}}
	c.pass(14, 3, 11)
	c.pass(20, 5, 16)
	c.pass(25, 5, 20)
	c.pass(30, 6, 29) // a record batch without records ends here
	for next, want := range map[int64]int32{10: 3, 14: 3, 15: -1, 16: -1, 17: 5, 25: 5, 29: -1, 30: 6} {
		span := plan.Span{From: 10, Next: c.next, Epoch: c.epoch, Earlier: c.earlier}
		if span.EndAt(next); span.Next != next || span.Epoch != want {
			t.Errorf("shortened to %d: next %d, epoch %d; want epoch %d", next, span.Next, span.Epoch, want)
		}
	}
}
