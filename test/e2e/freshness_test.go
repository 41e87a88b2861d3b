//go:build lab

package e2e

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// freshness reads the gauge sluice_partition_freshness_seconds of members every 200 ms. It keeps the values by phase of
// the test.
type freshness struct {
	s       *scene
	members []*member
	stop    chan struct{}
	done    sync.WaitGroup

	mu      sync.Mutex
	now     string // the current phase; "" while nothing disturbs the members
	scrapes map[string]int
	values  map[string][]float64 // the values of all partitions of the scene's topic, by phase
}

// watchFreshness reads the freshness of members until end is called. It leaves out reads that fail.
func (s *scene) watchFreshness(members ...*member) *freshness {
	f := &freshness{s: s, members: members, stop: make(chan struct{}), scrapes: map[string]int{}, values: map[string][]float64{}}
	f.done.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				return
			case <-tick.C:
				f.scrape()
			}
		}
	})
	return f
}

func (f *freshness) end() {
	close(f.stop)
	f.done.Wait()
}

// phase begins a phase of the test: later values belong to it.
func (f *freshness) phase(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = name
}

func (f *freshness) scrape() {
	f.mu.Lock()
	phase := f.now
	f.mu.Unlock()
	var values []float64
	for _, m := range f.members {
		resp, err := m.get("/metrics")
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			series, value, _ := strings.Cut(lines.Text(), "} ")
			if !strings.HasPrefix(series, "sluice_partition_freshness_seconds{") || !strings.Contains(series, `topic="`+f.s.name+`"`) {
				continue
			}
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				values = append(values, v)
			}
		}
		_ = resp.Body.Close() // the body has been read, so an error of Close means nothing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[phase] = append(f.values[phase], values...)
	if len(values) > 0 {
		f.scrapes[phase]++
	}
}

// read waits for n more reads in the phase that has begun. Failed ones do not count.
func (f *freshness) read(n int) {
	f.s.t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.scrapes[f.now]
	}
	enough := count() + n
	f.s.await("the freshness was read often enough", func() (bool, error) { return count() >= enough, nil })
}

// compare expects the median of a phase to be at most twice that of the calm time, which is the phase named "". Both
// come from the same run, so the speed of the machine hardly matters. compare does not judge the 99th percentile,
// because one pause of a busy machine decides it.
func (f *freshness) compare(phase string) {
	f.s.t.Helper()
	calm, busy := f.values[""], f.values[phase]
	if len(calm) < calmScrapes || len(busy) == 0 {
		f.s.t.Fatalf("%d values of the freshness while calm, %d while %s", len(calm), len(busy), phase)
	}
	quantiles := func(all []float64) (median, p99 float64) {
		slices.Sort(all)
		return all[len(all)/2], all[len(all)*99/100]
	}
	median, p99 := quantiles(calm)
	busyMedian, busyP99 := quantiles(busy)
	text := fmt.Sprintf("freshness: median %.2f s, p99 %.2f s (%d values); while %s %.2f s and %.2f s (%d values), ratios %.2f and %.2f",
		median, p99, len(calm), phase, busyMedian, busyP99, len(busy), busyMedian/median, busyP99/p99)
	f.s.t.Log(text)
	if median <= 0 || busyMedian > 2*median {
		f.s.t.Error(text)
	}
}
