//go:build lab && long && linux

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestMemoryOverTime: records arrive for 20 minutes. After the first five, the resident memory grows by less than 1 MiB
// a minute.
func TestMemoryOverTime(t *testing.T) {
	const lasts, warm, every = 20 * time.Minute, 5 * time.Minute, 2 * time.Second
	t.Parallel()
	s := newSceneOf(t, 8)
	m := s.start(littleMemory, func(c *settings) { c.commit = "{every: 10s}" })
	m.awaitReady()
	end := s.stream(5000)
	var series strings.Builder
	var minutes, sizes []float64
	began := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; time.Since(began) < lasts; n++ {
		<-tick.C
		now, peak, err := m.Resident()
		if err != nil {
			t.Fatalf("%v: %s", err, m.Tail())
		}
		if peak > mostResident && bounded() {
			t.Fatalf("%d MiB resident, the limit and 15 %% are %d", peak>>20, mostResident>>20)
		}
		if at := time.Since(began); at > warm {
			minutes, sizes = append(minutes, at.Minutes()), append(sizes, float64(now)/(1<<20))
		}
		if n%15 == 0 {
			fmt.Fprintf(&series, " %d", now>>20)
		}
	}
	end()
	growth := slope(minutes, sizes)
	t.Logf("MiB resident every 30 s:%s; it grows by %.2f MiB a minute", &series, growth)
	if growth >= 1 && bounded() {
		t.Errorf("resident memory grows by %.2f MiB a minute, want less than 1", growth)
	}
	s.awaitRows(s.ledger.Len())
	m.drain()
}

// slope returns the slope of the least-squares line.
func slope(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	n := float64(len(x))
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
