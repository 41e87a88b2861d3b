package story_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/test/story"
)

// shipped has the queue bounds of the default configuration.
var shipped = connector.QueueConfig{PauseAt: 10_000, ResumeAt: 5_000, PerKey: 1_000}

// slowDecoder is a decoder that waits after each row. The function takes returns for how long.
type slowDecoder struct {
	connector.Decoder
	*slowness
}

type slowness struct {
	takes func(connector.Partition) time.Duration
}

func slowed(h *story.Harness, takes func(connector.Partition) time.Duration) {
	h.Wrap = func(target *connector.Target) { target.Decoder = slowDecoder{target.Decoder, &slowness{takes}} }
}

func (d slowDecoder) Builder(s connector.Schema) (connector.Builder, error) {
	b, err := d.Decoder.Builder(s)
	return slowBuilder{b, d.slowness}, err
}

type slowBuilder struct {
	connector.Builder
	*slowness
}

func (b slowBuilder) Add(p connector.Partition, r *connector.Record) error {
	err := b.Builder.Add(p, r)
	if err == nil {
		time.Sleep(b.takes(p))
	}
	return err
}

// TestBackpressure_QueueLimits produces a thousand records per second, of which five hundred are decoded. Backpressure
// must start at 10 000 queued records, not before, and end at 5 000, with a log line for both.
func TestBackpressure_QueueLimits(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Queue, h.CommitRows, h.Broker.Answer = shipped, 1_000_000, 500
		slowed(h, func(connector.Partition) time.Duration { return 2 * time.Millisecond })
		log := hear(h)
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
		produced := 0
		var fine int64 // maximum number of queued records without backpressure
		for second := 0; !p.Connector.Status().Paused; second++ {
			if second == 60 {
				t.Fatalf("a minute, %d records, and backpressure is inactive", produced)
			}
			for key := range 100 {
				h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 10), fmt.Sprintf("customer-%d", key))
			}
			produced += 1000
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				if s := p.Connector.Status(); !s.Paused {
					fine = max(fine, s.Queued)
					if n := len(log.lines(t, "BACKPRESSURE")); n > 0 || p.Counted("sluice_backpressure_started_total") > 0 && s.Queued < 9_000 {
						t.Fatalf("%d queued, and it says PAUSED", s.Queued)
					}
				}
			}
		}
		if fine < 9_000 || fine >= 10_000 {
			t.Errorf("backpressure was inactive with up to %d queued", fine)
		}
		closed, most := time.Now(), int64(0)
		for p.Connector.Status().Paused {
			if most = max(most, p.Connector.Status().Queued); time.Since(closed) > time.Minute {
				t.Fatalf("closed for a minute, %d queued", p.Connector.Status().Queued)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if most > 10_000 || most < 9_500 {
			t.Errorf("%d queued when it closed", most)
		}
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, h.Want(0, 0, int64(produced)))
		paused, resumed := log.lines(t, "BACKPRESSURE: PAUSED"), log.lines(t, "BACKPRESSURE: RESUMED")
		if len(paused) != 1 || len(resumed) != 1 {
			t.Fatalf("%d lines PAUSED, %d RESUMED", len(paused), len(resumed))
		}
		if n, _ := paused[0]["queued"].(float64); paused[0]["level"] != "WARN" || n > 10_000 || n < 9_000 || paused[0]["pause_at"] != 10_000.0 {
			t.Errorf("it said %v", paused[0])
		}
		if n, _ := resumed[0]["queued"].(float64); resumed[0]["level"] != "INFO" || n > 5_000 || n < 4_000 {
			t.Errorf("it said %v", resumed[0])
		}
		for name, want := range map[string]float64{"sluice_backpressure_started_total": 1, "sluice_backpressure_ended_total": 1} {
			if n := p.Counted(name); n != want {
				t.Errorf("%s is %v, want %v", name, n, want)
			}
		}
		if s := p.Counted("sluice_backpressure_seconds_total"); s < 8 || s > 12 {
			t.Errorf("5 000 records at 500 a second, and it was closed for %v s", s)
		}
	})
}

// TestBackpressure_PerKey has a key whose records take half a second each to decode. The key's partition must wait once
// a thousand of these records are queued, and continue as they are decoded. Meanwhile the other partition must continue
// without backpressure.
func TestBackpressure_PerKey(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Queue, h.CommitRows, h.Every, h.Broker.Answer = shipped, 1_000_000, 24*time.Hour, 100
		slowed(h, func(p connector.Partition) time.Duration {
			if p.ID == 0 {
				return 500 * time.Millisecond
			}
			return 100 * time.Millisecond
		})
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1)) // each partition has a lane of its own
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		claim := func(id int) connector.ClaimStatus { return p.Connector.Status().Claims[id] }
		h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 3000), "customer-123")
		began := time.Now()
		for n := int64(10); n <= 40; n += 10 {
			h.Broker.Produce(story.Topic, 1, strings.Repeat("r", 10), "customer-456")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if hot, other := claim(0), claim(1); hot.Next != 1000 || hot.Consumed != 0 || other.Consumed != n {
				t.Errorf("after %v: of the hot customer %d are taken and %d rows, of the other %d", time.Since(began), hot.Next, hot.Consumed, other.Consumed)
			}
		}
		if s := p.Connector.Status(); s.Paused || s.Queued != 1000 || p.Counted("sluice_backpressure_started_total") != 0 {
			t.Errorf("backpressure is active: %v, %d queued", s.Paused, s.Queued)
		}
		// After 50 s a hundred are decoded, so a hundred more are enqueued.
		time.Sleep(time.Until(began.Add(55 * time.Second)))
		if hot := claim(0); hot.Consumed != 100 || hot.Next != 1100 {
			t.Errorf("when there is room again: %d taken, %d rows", hot.Next, hot.Consumed)
		}
		h.Broker.Produce(story.Topic, 1, strings.Repeat("r", 10), "customer-456")
		eventually(t, "the other customer's", func() bool { return claim(1).Consumed == 50 })
		time.Sleep(time.Until(began.Add(1510 * time.Second)))
		if hot := claim(0); hot.Consumed != 3000 {
			t.Errorf("in the end: %d taken, %d rows", hot.Next, hot.Consumed)
		}
		h.Stop(p)
		wantRows(t, h, 0, h.Want(0, 0, 3000))
		wantRows(t, h, 1, h.Want(1, 0, 50))
	})
}
