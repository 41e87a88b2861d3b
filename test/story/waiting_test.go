package story_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/story"
)

// largeRecord sets the size of records of kind Was: a member reserves percent of the batch pool for the row of each.
func largeRecord(h *story.Harness, percent int) {
	h.Batch = 20_000
	h.Broker.Value = func(k story.Kind, _ int64) []byte {
		size := 26
		if k == story.Was {
			size = 160 * percent // the pool reserves a quarter more than this
		}
		return append([]byte{byte(k)}, make([]byte, size-1)...)
	}
}

// TestMemory_HeldByALateCommit has a slow commit whose rows take most of the batch pool, and a record of a second table
// that needs 60 % of the pool and waits. Other partitions of the second table and a third table must continue, even if
// the fetch pool is small. The record must become a row once the commit has ended.
func TestMemory_HeldByALateCommit(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		var late atomic.Bool
		late.Store(true)
		h, rows, end := tables(t, s, func(h *story.Harness) {
			largeRecord(h, 60)
			h.Fetch, h.CommitRows = story.Response+4<<10*int64(4+s%3), 1_000
			h.Broken = func(step string) error {
				for step == "stage" && late.Load() {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		for range 40 {
			h.Broker.Produce(story.Topic, 0, "rrrrrrrrrr", "k")
			h.Broker.Produce(story.Topic, 1, "rrrrrrrrrr", "l")
		}
		time.Sleep(20 * time.Second)
		h.Broker.Produce("b", 0, string(story.Was), "large")
		time.Sleep(time.Duration(h.Chance.N(int(3 * time.Second))))
		for range 3 {
			h.Broker.Produce("b", 1, "rrrrr", "k")
			h.Broker.Produce("c", 0, "rrrrr", "k")
			time.Sleep(time.Second)
		}
		if !within(time.Minute, func() bool { return rows("b") == 15 && rows("c") == 15 }) {
			t.Errorf("seed %d: %d and %d rows, want 15 each", s, rows("b"), rows("c"))
		}
		late.Store(false)
		if !within(5*time.Minute, func() bool { return rows("b") == 16 && rows(story.Topic) == 800 }) {
			t.Errorf("seed %d: %d and %d rows, want 16 and 800", s, rows("b"), rows(story.Topic))
		}
		end()
	})
}

// TestMemory_LargeBesideSmall expects a record that needs 90 % of the batch pool to become a row, although two other
// tables always have records to read and their commits take several seconds.
func TestMemory_LargeBesideSmall(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		h, rows, end := tables(t, s, func(h *story.Harness) {
			largeRecord(h, 90)
			h.CommitRows = 1_000
			h.Broken = func(step string) error {
				if step == "stage" {
					time.Sleep(time.Duration(1+s%7) * time.Second)
				}
				return nil
			}
		})
		done := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				for _, name := range []string{story.Topic, "c"} {
					h.Broker.Produce(name, 0, "rrrrrrrrrrrrrrrrrrrr", fmt.Sprint(n%5))
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		time.Sleep(20 * time.Second)
		h.Broker.Produce("b", 0, string(story.Was), "large")
		if !within(5*time.Minute, func() bool { return rows("b") == 1 }) {
			t.Errorf("seed %d: the large record still waits after five minutes", s)
		}
		close(done)
		<-stopped
		end()
	})
}

// TestBackpressure_Commit expects backpressure while a sealed batch is being committed and the next batch is full.
// Metrics must count the backpressure at once and its seconds while it lasts. The log must have it only if it lasts
// longer than a second.
func TestBackpressure_Commit(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.CommitRows, h.Queue = 20, shipped
		takes := make(chan time.Duration, 1)
		takes <- 90 * time.Second
		h.Broken = func(step string) error {
			if step == "put data files" {
				select {
				case d := <-takes:
					time.Sleep(d)
				default:
				}
			}
			return nil
		}
		log := hear(h)
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 200), "k")
		eventually(t, "PAUSED", func() bool { return len(log.lines(t, "BACKPRESSURE: PAUSED")) > 0 })
		line := log.lines(t, "BACKPRESSURE: PAUSED")[0]
		if line["level"] != "WARN" || line["cause"] != "commit" || line["table"] != "t" {
			t.Errorf("it said %v", line)
		}
		if !p.Connector.Status().Paused {
			t.Error("the status does not say so")
		}
		time.Sleep(time.Minute)
		for name, want := range map[string]float64{"sluice_backpressure_started_total": 1, "sluice_backpressure_ended_total": 0, "sluice_backpressure_long_total": 1} {
			if n := p.Counted(name); n != want {
				t.Errorf("%s is %v, want %v", name, n, want)
			}
		}
		if s := p.Counted("sluice_backpressure_seconds_total"); s < 59 || s > 65 {
			t.Errorf("paused for a minute, and the counter says %v s", s)
		}
		eventually(t, "RESUMED", func() bool { return len(log.lines(t, "BACKPRESSURE: RESUMED")) > 0 })
		if line := log.lines(t, "BACKPRESSURE: RESUMED")[0]; line["level"] != "INFO" || line["cause"] != "commit" || line["table"] != "t" {
			t.Errorf("it said %v", line)
		}
		eventually(t, "end", h.AtEnd)
		time.Sleep(time.Second)
		if paused, resumed := p.Counted("sluice_backpressure_started_total"), p.Counted("sluice_backpressure_ended_total"); paused != resumed {
			t.Errorf("paused %v times, resumed %v times", paused, resumed)
		}
		if p.Connector.Status().Paused {
			t.Error("paused at the end")
		}

		// Quick commits lead to backpressure that is counted, but too short to be logged.
		long, lines := p.Counted("sluice_backpressure_long_total"), len(log.lines(t, "BACKPRESSURE"))
		before := p.Counted("sluice_backpressure_started_total")
		h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 400), "k")
		eventually(t, "end", h.AtEnd)
		if p.Counted("sluice_backpressure_started_total") == before || p.Counted("sluice_backpressure_long_total") != long || len(log.lines(t, "BACKPRESSURE")) != lines {
			t.Errorf("%v short pauses, %v long ones, %d lines", p.Counted("sluice_backpressure_started_total")-before, p.Counted("sluice_backpressure_long_total")-long, len(log.lines(t, "BACKPRESSURE"))-lines)
		}
		if want := h.Want(0, 0, 600); !slices.Equal(h.Rows(0), want) {
			t.Errorf("%d rows, want %d", len(h.Rows(0)), len(want))
		}
	})
}
