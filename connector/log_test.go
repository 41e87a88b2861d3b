package connector_test

import (
	"testing"

	"sluice/connector"
	"sluice/reliability/hold"
)

func TestBounds_Unreadable(t *testing.T) {
	same := connector.Bounds{LogStart: 5, LastStable: 8, HighWatermark: 10, DivergedAt: -1}
	parted := same
	parted.DivergedAt = 7
	for _, c := range []struct {
		bounds connector.Bounds
		next   int64
		want   hold.Reason
	}{
		{same, 4, hold.BehindLogStart},
		{same, 5, ""},
		{same, 10, ""},
		{same, 11, hold.AheadOfLogEnd},
		// The position is before the log's start, so it does not matter where the epochs diverge.
		{parted, 4, hold.BehindLogStart},
		{parted, 8, hold.Truncated},
		{parted, 7, ""}, // the logs differ from offset 7 on, and the position is not past it
	} {
		if got := c.bounds.Unreadable(c.next); got != c.want {
			t.Errorf("position %d in %+v: %q, want %q", c.next, c.bounds, got, c.want)
		}
	}
}
