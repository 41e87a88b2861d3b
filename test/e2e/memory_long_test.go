//go:build lab && long && linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMemoryOverTime lets records arrive for 20 minutes and measures the live heap in the last ten. From the first five
// of these ten minutes to the last five, its median must grow by less than 1 MiB a minute. The resident memory must
// always stay within mostResident; its growth is not judged, because samples differ by 20 MiB with the garbage
// collector.
func TestMemoryOverTime(t *testing.T) {
	const warm, half, every = 10 * time.Minute, 5 * time.Minute, 2 * time.Second
	t.Parallel()
	s := newSceneOf(t, 8)
	m := s.start(littleMemory, func(c *settings) { c.commit = "{every: 10s}" })
	m.awaitReady()
	end := s.stream(5000)
	var series strings.Builder
	var before, after []int64
	began := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; time.Since(began) < warm+2*half; n++ {
		<-tick.C
		now, peak, err := m.Resident()
		if err != nil {
			t.Fatalf("%v: %s", err, m.Tail())
		}
		if peak > mostResident && bounded() {
			t.Fatalf("%d MiB resident, the limit and 15 %% are %d", peak>>20, mostResident>>20)
		}
		live := int64(m.metric("go_gc_heap_live_bytes"))
		switch at := time.Since(began); {
		case at > warm+half:
			after = append(after, live)
		case at > warm:
			before = append(before, live)
		}
		if n%15 == 0 {
			fmt.Fprintf(&series, " %d/%d", now>>20, live>>20)
		}
	}
	end()
	growth := (median(after) - median(before)) / (1 << 20) / half.Minutes()
	t.Logf("MiB resident/live every 30 s:%s; the live heap grows by %.2f MiB a minute", &series, growth)
	if growth >= 1 && bounded() {
		t.Errorf("the live heap grows by %.2f MiB a minute", growth)
	}
	s.awaitRows(s.ledger.Len())
	m.drain()
}

func median(sizes []int64) float64 {
	slices.Sort(sizes)
	return float64(sizes[len(sizes)/2])
}
