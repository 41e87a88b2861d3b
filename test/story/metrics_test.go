package story_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// scraped returns the values of a metric of a process, by "label=value label=value". A histogram has two: its count
// under the key with " n" appended, its sum with " sum". The result is nil if the process has no such metric.
func scraped(t *testing.T, p *story.Process, name string) map[string]float64 {
	t.Helper()
	families, err := p.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	if i < 0 {
		return nil
	}
	all := map[string]float64{}
	for _, m := range families[i].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		key := strings.Join(labels, " ")
		switch h := m.GetHistogram(); {
		case h != nil:
			all[key+" n"], all[key+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
		case m.GetGauge() != nil:
			all[key] = m.GetGauge().GetValue()
		default:
			all[key] = m.GetCounter().GetValue()
		}
	}
	return all
}

func wantMetric(t *testing.T, p *story.Process, name string, want map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(want, scraped(t, p, name)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func failures(topic string, transient, poison, fatal, fenced float64) map[string]float64 {
	all := map[string]float64{}
	for class, n := range map[string]float64{"transient": transient, "poison": poison, "fatal": fatal, "fenced": fenced} {
		all["class="+class+" topic="+topic] = n
	}
	return all
}

func TestMetrics_Batch(t *testing.T) {
	letters := func(h *story.Harness) { h.Letters = &story.LetterLog{} }
	slowly(t, 2, letters, func(t *testing.T, h *story.Harness, p *story.Process, c clock) {
		wantMetric(t, p, "sluice_rows_committed_total", map[string]float64{"topic=orders": 0})
		wantMetric(t, p, "worker_dlq_messages_total", map[string]float64{"topic=orders": 0})
		wantMetric(t, p, "sluice_records_failed_total", failures("orders", 0, 0, 0, 0))
		wantMetric(t, p, "sluice_last_record_timestamp_seconds", nil)
		h.Broker.Produce(story.Topic, 0, "rrp", "k")
		h.Broker.Produce(story.Topic, 1, "rt", "k")
		c.at(30 * time.Second)
		h.Broker.Produce(story.Topic, 0, "r", "k")
		c.at(70 * time.Second)
		wantMetric(t, p, "sluice_rows_committed_total", map[string]float64{"topic=orders": 4})
		wantMetric(t, p, "sluice_records_failed_total", failures("orders", 0, 1, 0, 0))
		wantMetric(t, p, "worker_dlq_messages_total", map[string]float64{"topic=orders": 1})
		wantMetric(t, p, "sluice_batch_rows", map[string]float64{" n": 1, " sum": 4})
		for _, name := range []string{"sluice_processing_seconds", "sluice_freshness_seconds"} {
			// The data have three runs: two of partition 0, because the bad record separates them, and one of partition
			// 1.
			if got := scraped(t, p, name); got[" n"] != 3 || got[" sum"] < 2*60+30 || got[" sum"] > 2*60+30+3 {
				t.Errorf("%s: %v", name, got)
			}
		}
		first, second := float64(c.began.Unix()), float64(c.began.Unix()+30)
		last := scraped(t, p, "sluice_last_record_timestamp_seconds")
		if at := last["partition=0 topic=orders"] - second; len(last) != 2 || at < 0 || at > 1 || last["partition=1 topic=orders"]-first > 1 {
			t.Errorf("last records %v, want about %v and %v", last, second, first)
		}
		p.Member.Assign(joined(h, 1))
		c.at(80 * time.Second)
		if last := scraped(t, p, "sluice_last_record_timestamp_seconds"); len(last) != 1 || last["partition=1 topic=orders"] == 0 {
			t.Errorf("a claim was lost, and last records are %v", slices.Sorted(maps.Keys(last)))
		}
	})
}

// TestMetrics_Failures expects failed records to be counted by class, each time they fail.
func TestMetrics_Failures(t *testing.T) {
	for name, c := range map[string]struct {
		kinds  string
		broken error
		want   map[string]float64
		rows   float64
	}{
		"a bad record that holds":   {"rrprr", nil, failures("orders", 0, 1, 0, 0), 2},
		"a bad record at the start": {"prr", nil, failures("orders", 0, 1, 0, 0), 0},
		"a failure that passes":     {"rrr", errors.New("unknown cause"), failures("orders", 3, 0, 0, 0), 3},
		"a table that moved":        {"rrr", classify.Mark(errors.New("moved"), classify.Fenced), failures("orders", 0, 0, 0, 3), 3},
		"a store that denies":       {"rrr", hold.New(hold.StoreDenied, "no", nil), failures("orders", 0, 0, 3, 0), 3},
		"our own failure":           {"rrr", connector.Local("encode", errors.New("unknown cause")), failures("orders", 3, 0, 0, 0), 3},
		"the decoder's":             {"rrx", nil, failures("orders", 3+3+3+3, 1, 0, 0), 2},
	} {
		t.Run(name, func(t *testing.T) {
			failing := c.broken
			set := func(h *story.Harness) {
				h.Retry = thrice
				h.Broken = func(step string) error {
					err := failing
					if step == "stage" {
						failing = nil
						return err
					}
					return nil
				}
			}
			slowly(t, 1, set, func(t *testing.T, h *story.Harness, p *story.Process, k clock) {
				h.Broker.Produce(story.Topic, 0, c.kinds, "k")
				k.at(10 * time.Minute)
				wantMetric(t, p, "sluice_records_failed_total", c.want)
				wantMetric(t, p, "sluice_rows_committed_total", map[string]float64{"topic=orders": c.rows})
				if t.Failed() {
					t.Log(fmt.Sprint(p.Holds()), history(h))
				}
			})
		})
	}
}
