package canary_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health/canary"
)

// pond is a fake of Kafka and of the table to which canary records go.
type pond struct {
	mu      sync.Mutex
	sent    []time.Time
	landing time.Duration // the time until a record is in the table; negative if it never is
	down    error         // the error of Kafka, nil while it works
	denied  error         // the error of the store, nil while it works
	stuck   bool          // true while Kafka does not answer
}

func (p *pond) set(change func(*pond)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *pond) produce(ctx context.Context, n int64, sent time.Time) (canary.Place, error) {
	p.mu.Lock()
	down, stuck := p.down, p.stuck
	p.sent = append(p.sent, sent)
	p.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return canary.Place{}, ctx.Err()
	}
	return canary.Place{Partition: 2, Offset: n}, down
}

func (p *pond) visible(_ context.Context, n int64, at canary.Place) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.Offset != n || at.Partition != 2 {
		return false, errors.New("another place")
	}
	return p.denied == nil && p.landing >= 0 && time.Since(p.sent[n]) >= p.landing, p.denied
}

// run runs a canary with the fake p in virtual time until the test ends. It returns the canary, its metrics and its
// log.
func run(t *testing.T, p *pond) (*canary.Canary, *prometheus.Registry, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	k, err := canary.New(canary.Config{
		Topic: "p-canary", Every: time.Minute, Deadline: 90 * time.Second, Poll: time.Second, Produce: p.produce, Visible: p.visible,
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return k, reg, &log
}

// wantMetrics fails the test unless the metric has counted these numbers of failures in the stages produce and visible.
func wantMetrics(t *testing.T, reg *prometheus.Registry, produce, visible float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "sluice_canary_failures_total" {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if len(got) != 2 || got["produce"] != produce || got["visible"] != visible {
		t.Errorf("failures %v, want %v produced and %v visible", got, produce, visible)
	}
}

func TestACanaryIsTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pond{landing: 7500 * time.Millisecond}
		k, reg, _ := run(t, p)
		if s := k.State(); s.Topic != "p-canary" || s.Seen != nil || s.Failing != nil {
			t.Errorf("before the first: %+v", s)
		}
		time.Sleep(4*time.Minute + 30*time.Second)
		synctest.Wait()
		s := k.State()
		if len(p.sent) != 5 || s.Seen == nil || *s.Seconds != 8 || time.Since(*s.Seen) != 22*time.Second || s.Failing != nil {
			t.Errorf("%d were sent, %+v", len(p.sent), s)
		}
		for i, at := range p.sent[1:] {
			if at.Sub(p.sent[i]) != time.Minute {
				t.Errorf("sent %v apart", at.Sub(p.sent[i]))
			}
		}
		wantMetrics(t, reg, 0, 0)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			switch m := f.GetMetric()[0]; f.GetName() {
			case "sluice_canary_seconds":
				if m.GetHistogram().GetSampleCount() != 5 || m.GetHistogram().GetSampleSum() != 40 {
					t.Errorf("histogram %v", m)
				}
			case "sluice_canary_last_success_timestamp_seconds":
				if m.GetGauge().GetValue() != float64(s.Seen.UnixMilli())/1e3 {
					t.Errorf("last success %v, want %v", m, s.Seen)
				}
			}
		}
	})
}

func TestACanaryFails(t *testing.T) {
	denied := errors.New("denied")
	for _, c := range []struct {
		name             string
		fail             func(*pond)
		stage, text      string
		produce, visible float64
	}{
		{"Kafka is down", func(p *pond) { p.down = errors.New("refused") }, "produce", "refused", 4, 0},
		{"Kafka does not answer", func(p *pond) { p.stuck = true }, "produce", "deadline", 2, 0},
		{"the record never lands", func(p *pond) { p.landing = -1 }, "visible", "it is not in the table", 0, 2},
		{"the store denies", func(p *pond) { p.denied = denied }, "visible", "denied", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pond{landing: time.Second}
				k, reg, log := run(t, p)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				seen := k.State().Seen
				if seen == nil {
					t.Fatal("the first did not arrive")
				}
				p.set(c.fail)
				// This is the time for four records that are seen, or for two that are not seen before their deadline.
				time.Sleep(3*time.Minute + 40*time.Second)
				synctest.Wait()
				s := k.State()
				if s.Stage != c.stage || !strings.Contains(s.Error, c.text) || s.Failing == nil || !s.Failing.Equal(p.sent[1]) || s.Seen != seen {
					t.Errorf("%+v", s)
				}
				wantMetrics(t, reg, c.produce, c.visible)
				p.set(func(p *pond) { p.landing, p.down, p.denied, p.stuck = time.Second, nil, nil, false })
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if s := k.State(); s.Failing != nil || s.Error != "" || s.Seen == seen {
					t.Errorf("afterwards: %+v", s)
				}
				// A failure is logged at once, and once more after a minute.
				if n := strings.Count(log.String(), "UNHEALTHY"); n != 2 || !strings.Contains(log.String(), "arrive again") {
					t.Errorf("said %d times:\n%s", n, log)
				}
			})
		})
	}
}
