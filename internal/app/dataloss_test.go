package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/reliability/hold"
)

// losses gathers two metrics: the seconds to data loss by topic and partition, and the retention of each topic.
func losses(t *testing.T, w *lossWatch) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(w); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 1 {
				found["retention of "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				continue
			}
			found[m.GetLabel()[1].GetValue()+":"+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return found
}

func TestSecondsToDataLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim := func(topic string, id int32, position, end int64) connector.ClaimStatus {
			return connector.ClaimStatus{Partition: connector.Partition{Topic: topic, ID: id}, Position: position, End: end}
		}
		behind := claim("week", 3, 5, 20)
		behind.Hold = &hold.Hold{Reason: hold.BehindLogStart}
		// A held claim does not fetch, so its end offset is old or unknown to the member.
		held, heldAtEnd := claim("week", 6, 10, 10), claim("week", 7, 20, 0)
		held.Hold = &hold.Hold{Reason: hold.TableReplaced}
		heldAtEnd.Hold = held.Hold
		week := kafka.TopicSettings{Delete: true, RetentionTime: 7 * 24 * time.Hour, RetentionBytes: 1000, MaxBatch: 77}
		settings := map[string]kafka.TopicSettings{
			"week": week, "ever": {Delete: true, RetentionTime: -1}, "compact": {Compact: true, RetentionTime: time.Hour},
		}
		denied := classify.Mark(errors.New("not authorized"), classify.Fatal)
		var busy, down atomic.Bool
		begin := time.Now()
		var log bytes.Buffer
		w := &lossWatch{
			status: func() connector.Status {
				return connector.Status{Claims: []connector.ClaimStatus{
					claim("week", 0, 10, 20), claim("week", 1, 20, 20), claim("week", 2, 11, 20), behind, claim("week", 4, -1, 20), claim("week", 5, 12, 20), held, heldAtEnd,
					claim("ever", 0, 10, 20), claim("compact", 0, 10, 20), claim("secret", 0, 10, 20),
				}}
			},
			settings: func(_ context.Context, topic string) (kafka.TopicSettings, error) {
				s, ok := settings[topic]
				switch {
				case down.Load():
					return kafka.TopicSettings{}, classify.Mark(errors.New("no answer"), classify.Transient)
				case !ok:
					return s, denied
				}
				return s, nil
			},
			timeAt: func(_ context.Context, p connector.Partition, offset, largest int64) (time.Time, error) {
				if p.Topic != "week" || largest != 77 {
					t.Errorf("asked for %v, %d bytes", p, largest)
				}
				switch offset {
				case 10:
					if busy.Load() {
						return time.Time{}, classify.Mark(errors.New("no memory"), classify.Transient)
					}
					return begin.Add(-24 * time.Hour), nil
				case 11:
					return time.Time{}, hold.New(hold.BehindLogStart, "gone", nil)
				case 20:
					return time.Time{}, hold.New(hold.AheadOfLogEnd, "nothing there", nil)
				}
				// The retention of these records is over, but brokers delete only whole segments.
				return begin.Add(-8 * 24 * time.Hour), nil
			},
			logger:  slog.New(slog.NewTextHandler(&log, nil)),
			refused: map[string]bool{}, until: map[connector.Partition]deadline{},
		}
		w.describe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.run(ctx) }()
		time.Sleep(soonLoss + time.Second)
		synctest.Wait()
		day := (24 * time.Hour).Seconds()
		want := map[string]float64{
			"week:0": 6*day - 11, "week:1": math.Inf(1), "week:2": 0, "week:3": 0, "week:5": 0, "week:6": 6*day - 11, "week:7": math.Inf(1), "ever:0": math.Inf(1), "compact:0": math.Inf(1),
			"retention of week": 7 * day, "retention of ever": math.Inf(1), "retention of compact": math.Inf(1),
		}
		if d := cmp.Diff(want, losses(t, w)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		for topics, want := range map[string]time.Duration{
			"week": week.RetentionTime, "week ever": math.MaxInt64, "compact": math.MaxInt64, "secret": 0, "week secret": week.RetentionTime, "none": 0,
		} {
			if got := w.longest(func(topic string) bool { return slices.Contains(strings.Fields(topics), topic) }); got != want {
				t.Errorf("the longest retention of %s is %v, want %v", topics, got, want)
			}
		}
		// If the retention cannot be read for a while, the countdown continues. If it is denied, this is logged once.
		busy.Store(true)
		time.Sleep(2 * watchLoss)
		synctest.Wait()
		want["week:0"] = 6*day - (soonLoss + time.Second + 2*watchLoss).Seconds()
		want["week:6"] = want["week:0"]
		if d := cmp.Diff(want, losses(t, w)); d != "" {
			t.Errorf("later (-want +got):\n%s", d)
		}
		// While Kafka is down, the countdown continues from the last deadline. A claim without a deadline cannot get
		// one.
		down.Store(true)
		time.Sleep(2 * watchLoss)
		synctest.Wait()
		for _, never := range []string{"week:1", "week:7"} {
			delete(want, never) // the deadline is unknown, because records may have been produced since
		}
		want["week:0"] -= (2 * watchLoss).Seconds()
		want["week:6"] = want["week:0"]
		if d := cmp.Diff(want, losses(t, w)); d != "" {
			t.Errorf("while Kafka is down (-want +got):\n%s", d)
		}
		if n := strings.Count(log.String(), "failed to read the retention of a topic"); n != 1 || !strings.Contains(log.String(), "topic=secret") {
			t.Errorf("logged %d times\n%s", n, log.String())
		}
		cancel()
		<-ended
	})
}
