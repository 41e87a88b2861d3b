package app

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
)

// TestCollectWork: a member reports the total lag of its partitions. The time of the last record stays when the
// partition of that record goes to another member.
func TestCollectWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		time.Sleep(time.Hour)
		at := func(d time.Duration) time.Time { return start.Add(time.Hour - d) }
		var st connector.Status
		look := collectWork(func() connector.Status { return st })
		for _, c := range []struct {
			what   string
			status connector.Status
			idle   time.Duration
			lag    int64
		}{
			{"before it began", connector.Status{}, -1, -1},
			{"without a partition", connector.Status{At: start}, -1, 0},
			{"before it knows", connector.Status{At: start, Claims: []connector.ClaimStatus{{Position: -1, End: -1}}}, -1, -1},
			{"one of two known", connector.Status{At: start, Claims: []connector.ClaimStatus{{Position: -1, End: 9}, {Position: 3, End: 5, Lag: 2}}}, -1, 2},
			{"at work", connector.Status{At: start, Claims: []connector.ClaimStatus{
				{Position: 1, End: 41, Lag: 40, LastRecord: at(time.Minute)}, {Position: 3, End: 5, Lag: 2, LastRecord: at(time.Second)},
			}}, time.Second, 42},
			{"it lost the newest", connector.Status{At: start, Claims: []connector.ClaimStatus{{Position: 1, End: 1, LastRecord: at(time.Minute)}}}, time.Second, 0},
			{"it lost all", connector.Status{At: start}, time.Second, 0},
			{"a clock that is ahead", connector.Status{At: start, Claims: []connector.ClaimStatus{{LastRecord: at(-time.Minute)}}}, 0, 0},
		} {
			st = c.status
			if idle, lag := look(); idle != c.idle || lag != c.lag {
				t.Errorf("%s: idle %s, lag %d; want %s, %d", c.what, idle, lag, c.idle, c.lag)
			}
		}
	})
}
