package health_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/health"
)

// usual has the default rules of config.yaml, for a pipeline of one topic.
var usual = health.LagRules{Max: 10_000, Every: 10 * time.Second, Window: 5, Rises: 3, Topic: "orders"}

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// seen is the result of one poll of a partition; polls are ten seconds apart. A zero waiting means that no rows wait.
type seen struct {
	end, position, consumed int64
	waiting                 time.Duration // how long rows have waited for their commit; 0 if none wait
	hold                    string
}

// lags returns the results of polls of a partition whose position stays 0, with these lags.
func lags(lags ...int64) (all []seen) {
	for _, lag := range lags {
		all = append(all, seen{end: lag})
	}
	return all
}

func (s seen) sample(now time.Time) health.LagSample {
	l := health.LagSample{
		TopicPartition: health.TopicPartition{Topic: "orders"}, Table: "bronze/orders", End: s.end, Position: s.position,
		Consumed: max(s.consumed, s.position), Hold: s.hold, CommitEvery: time.Minute,
	}
	if s.waiting > 0 {
		l.Waiting = now.Add(-s.waiting)
	}
	return l
}

// TestLagHistories compares the verdict and the reason for a partition after the last poll of each history.
func TestLagHistories(t *testing.T) {
	const (
		rising  = "Partition 0 lag consistently increasing"
		unknown = -1
	)
	for _, c := range []struct {
		name    string
		looks   []seen
		verdict health.Verdict
		reason  string
	}{
		// The cases from the requirement for the lag check.
		{"a healthy one", lags(3, 4, 5, 4, 5), "STALL", ""}, // the position does not move here; the case "reads on" below is the same with one that moves
		{"two rises", lags(1000, 1500, 2100), "OK", ""},
		{"three rises", lags(1000, 1500, 2100, 2800), "OK", rising},
		{"four points rise three times", lags(100, 150, 200, 280), "OK", rising},
		{"above the maximum", lags(8000, 9000, 10_500), "OK", "Partition 0 lag (10500) exceeds maximum (10000)"},
		{"below it again", lags(8000, 9000, 10_500, 8500), "OK", ""},

		// Cases at the limits of the rules, and with an unknown lag.
		{"the first look", lags(10_000), "OK", ""},
		{"just above", lags(10_001), "OK", "Partition 0 lag (10001) exceeds maximum (10000)"},
		{"equal resets", lags(1, 2, 3, 3, 4), "STALL", ""},
		{"lower resets", lags(1, 2, 3, 2, 3, 4), "STALL", ""},
		{"older rises have left the window", lags(1, 2, 3, 4, 4), "STALL", ""},
		{"rises for long", lags(1, 2, 3, 4, 5, 6, 7), "STALL", rising},
		{"both", lags(9000, 9500, 9900, 10_100), "OK", rising + "; Partition 0 lag (10100) exceeds maximum (10000)"},
		{"an unknown lag is no rise", []seen{{end: 1}, {end: 2}, {end: unknown}, {end: 3}}, "OK", ""},
		{"and no pause", []seen{{end: 1}, {end: 2}, {end: unknown}, {end: 3}, {end: 4, position: unknown}, {end: 4}}, "OK", rising},
		{"what was known stays", []seen{{end: 20_000}, {end: unknown}, {end: unknown}}, "OK", "Partition 0 lag (20000) exceeds maximum (10000)"},
		{"never known", []seen{{end: unknown}, {position: unknown}}, "", ""},

		// Cases with rows that wait for their commit.
		{"a batch that fills is no lag", []seen{
			{20_000, 0, 20_000, 10 * time.Second, ""},
			{40_000, 0, 40_000, 20 * time.Second, ""},
			{60_000, 0, 60_000, 30 * time.Second, ""},
			{80_000, 0, 80_000, 40 * time.Second, ""},
			{90_000, 0, 90_000, 50 * time.Second, ""},
			{90_000, 0, 90_000, 60 * time.Second, ""},
		}, "OK", ""},
		{"reads on", []seen{
			{103, 0, 100, 10 * time.Second, ""},
			{204, 0, 200, 20 * time.Second, ""},
			{305, 0, 300, 30 * time.Second, ""},
			{404, 0, 400, 40 * time.Second, ""},
			{505, 0, 500, 50 * time.Second, ""},
		}, "OK", ""},
		{"a full batch that waits for its commit is not stuck", []seen{
			{500, 0, 100, 70 * time.Second, ""},
			{500, 0, 100, 80 * time.Second, ""},
			{500, 0, 100, 90 * time.Second, ""},
			{500, 0, 100, 100 * time.Second, ""},
			{500, 0, 100, 2 * time.Minute, ""},
		}, "OK", ""},
		{"an overdue one is", []seen{
			{500, 0, 100, 120 * time.Second, ""},
			{600, 0, 100, 130 * time.Second, ""},
			{700, 0, 100, 140 * time.Second, ""},
			{800, 0, 100, 150 * time.Second, ""},
		}, "OK", rising + ", commit overdue: table bronze/orders"},
		{
			"and counts for the maximum",
			[]seen{{20_000, 0, 20_000, 121 * time.Second, ""}},
			"OK",
			"Partition 0 lag (20000) exceeds maximum (10000), commit overdue: table bronze/orders",
		},
		{
			"rows of other partitions are overdue",
			[]seen{{20_100, 100, 100, 121 * time.Second, ""}},
			"OK",
			"Partition 0 lag (20000) exceeds maximum (10000)",
		},
		{"overdue, and nothing comes", []seen{
			{500, 0, 500, 130 * time.Second, ""},
			{500, 0, 500, 140 * time.Second, ""},
			{500, 0, 500, 150 * time.Second, ""},
			{500, 0, 500, 160 * time.Second, ""},
			{500, 0, 500, 170 * time.Second, ""},
		}, "STALL", ""},

		// Cases with a held partition.
		{"a hold is never stuck", []seen{
			{end: 1, hold: "paused"}, {end: 2, hold: "paused"}, {end: 3, hold: "paused"}, {end: 4, hold: "paused"}, {end: 5, hold: "paused"}, {end: 6, hold: "paused"},
		}, "HELD", ""},
		{
			"it counts for the maximum",
			[]seen{{end: 10_500, hold: "store_down"}},
			"HELD",
			"Partition 0 lag (10500) exceeds maximum (10000), held: store_down",
		},
		{"what rose before a hold does not count behind it", []seen{{end: 1}, {end: 2}, {end: 3}, {end: 4, hold: "paused"}, {end: 5}, {end: 6}, {end: 7}}, "OK", ""},
		{"what rises behind it does", []seen{{end: 9, hold: "paused"}, {end: 5}, {end: 6}, {end: 7}, {end: 8}}, "OK", rising},
		{"it has ended, the lag is unknown", []seen{{end: 9, hold: "paused"}, {end: 9, position: unknown}}, "OK", ""},

		// Cases for the verdicts, which follow the rules of Burrow.
		{"STALL", lags(5, 5, 5, 5, 5), "STALL", ""},
		{"not yet a whole window", lags(5, 5, 5, 5), "OK", ""},
		{"it had no lag in between", lags(5, 5, 0, 5, 5), "OK", ""},
		{"STALL for two windows", lags(5, 5, 5, 5, 5, 5, 5, 5, 5), "STALL", ""},
		{"STOP", lags(5, 5, 5, 5, 5, 5, 5, 5, 5, 5), "STOP", ""},
		{"it moves after a STOP", append(lags(5, 5, 5, 5, 5, 5, 5, 5, 5, 5), seen{end: 5, position: 3}), "OK", ""},
		{"WARN", []seen{{end: 20, position: 10}, {end: 30, position: 20}, {end: 40, position: 29}, {end: 50, position: 39}, {end: 60, position: 40}}, "WARN", ""},
		{"it moves, and the lag shrinks once", []seen{
			{end: 20, position: 10}, {end: 30, position: 21}, {end: 40, position: 29}, {end: 50, position: 39}, {end: 60, position: 40},
		}, "OK", ""},
		{"REWIND", []seen{{end: 20, position: 20}, {end: 20, position: 5}}, "REWIND", ""},
		{"it has caught up", []seen{{end: 20, position: 20}, {end: 20, position: 5}, {end: 20, position: 20}}, "OK", ""},
		{"a REWIND leaves the window", []seen{{end: 20, position: 20}, {end: 20, position: 5}, {end: 20, position: 6}, {end: 20, position: 7}, {end: 20, position: 8}, {end: 20, position: 9}}, "OK", ""},
		{"REWIND before STALL", []seen{{end: 20, position: 9}, {end: 20, position: 5}, {end: 20, position: 5}, {end: 20, position: 5}, {end: 20, position: 5}}, "REWIND", ""},
		{"a batch that becomes overdue does not go back", []seen{{30, 10, 20, time.Minute, ""}, {30, 10, 20, 3 * time.Minute, ""}}, "OK", ""},
	} {
		m := health.NewMonitor(usual)
		var l health.LagReport
		for i, s := range c.looks {
			now := midnight.Add(time.Duration(i) * usual.Every)
			l = m.Observe(now, []health.LagSample{s.sample(now)})
		}
		if l.Status.Reason != c.reason || l.Status.Healthy != (c.reason == "") {
			t.Errorf("%s: reason %q, want %q", c.name, l.Status.Reason, c.reason)
		}
		if got := l.Partitions[health.TopicPartition{Topic: "orders"}].Verdict; got != c.verdict {
			t.Errorf("%s: verdict %q, want %q", c.name, got, c.verdict)
		}
	}
}

// TestLagOfPartitions: each partition is judged by its own lag, and its Level by the lags of all partitions of its
// topic together.
func TestLagOfPartitions(t *testing.T) {
	rules := usual
	rules.Topic = "" // a pipeline of several topics
	m := health.NewMonitor(rules)
	sample := func(topic string, id int32, end int64) health.LagSample {
		return health.LagSample{
			TopicPartition: health.TopicPartition{Topic: topic, Partition: id}, Identity: 1, End: end, Position: 10, Consumed: 10,
			Thresholds: health.LagThresholds{Warning: 100, Critical: 500},
		}
	}
	unread := sample("users", 3, -1)
	l := m.Observe(midnight, []health.LagSample{
		sample("users", 1, 20_010), unread,
		sample("orders", 10, 60), sample("orders", 2, 60), sample("orders", 4, 11), // no partition alone is above the threshold
		sample("invoices", 0, 60), sample("invoices", 1, 60),
	})
	want := health.LagReport{
		Status: health.LagStatus{
			Reason: "Topic users partition 1 lag (20000) exceeds maximum (10000)",
			PartitionLags: map[string]int64{
				"users:1": 20_000, "orders:10": 50, "orders:2": 50, "orders:4": 1, "invoices:0": 50, "invoices:1": 50,
			}, LastCheckTime: midnight,
		},
		Partitions: map[health.TopicPartition]health.PartitionLag{
			{Topic: "users", Partition: 1}:    {Lag: 20_000, Adjusted: 20_000, Verdict: health.VerdictOK, Level: health.LevelCritical},
			{Topic: "users", Partition: 3}:    {Lag: -1, Adjusted: -1, Level: health.LevelCritical},
			{Topic: "orders", Partition: 10}:  {Lag: 50, Adjusted: 50, Verdict: health.VerdictOK, Level: health.LevelWarning},
			{Topic: "orders", Partition: 2}:   {Lag: 50, Adjusted: 50, Verdict: health.VerdictOK, Level: health.LevelWarning},
			{Topic: "orders", Partition: 4}:   {Lag: 1, Adjusted: 1, Verdict: health.VerdictOK, Level: health.LevelWarning},
			{Topic: "invoices", Partition: 0}: {Lag: 50, Adjusted: 50, Verdict: health.VerdictOK, Level: health.LevelOK},
			{Topic: "invoices", Partition: 1}: {Lag: 50, Adjusted: 50, Verdict: health.VerdictOK, Level: health.LevelOK},
		},
	}
	if d := cmp.Diff(want, l); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	// Kafka does not answer, so LastCheckTime stays. Partitions without a sample are removed nevertheless.
	l = m.Observe(midnight.Add(time.Minute), []health.LagSample{unread})
	if len(l.Partitions) != 1 || len(l.Status.PartitionLags) != 0 || !l.Status.Healthy || !l.Status.LastCheckTime.Equal(midnight) {
		t.Errorf("%+v", l)
	}
	if l = m.Observe(midnight.Add(2*time.Minute), nil); !l.Status.Healthy || !l.Status.LastCheckTime.Equal(midnight.Add(2*time.Minute)) {
		t.Errorf("without partitions: %+v", l)
	}

	// With many reasons, the text lists five of them and the number of the others.
	var all []health.LagSample
	for i := range int32(40) {
		all = append(all, sample("orders", i, 20_010))
	}
	l = m.Observe(midnight, all)
	if !strings.HasPrefix(l.Status.Reason, "Topic orders partition 0 lag (20000) exceeds maximum (10000); Topic orders partition 1 lag") ||
		!strings.HasSuffix(l.Status.Reason, "; and 35 more") || strings.Count(l.Status.Reason, ";") != 5 || len(l.Partitions) != 40 {
		t.Error(l.Status.Reason)
	}
}

// TestLagOfAnotherPartition: the window of a partition that was lost and assigned again begins empty. So does that of a
// partition with the same name in another topic id.
func TestLagOfAnotherPartition(t *testing.T) {
	for _, c := range []struct {
		name    string
		between func(m *health.Monitor, s *health.LagSample)
	}{
		{"revoked", func(m *health.Monitor, _ *health.LagSample) { m.Observe(midnight, nil) }},
		{"revoked, unseen", func(_ *health.Monitor, s *health.LagSample) { s.Identity = "second" }},
	} {
		m := health.NewMonitor(usual)
		s := health.LagSample{TopicPartition: health.TopicPartition{Topic: "orders"}, Identity: "first"}
		for _, s.End = range []int64{1, 2, 3} {
			m.Observe(midnight, []health.LagSample{s})
		}
		c.between(m, &s)
		for _, s.End = range []int64{4, 5, 6} {
			if l := m.Observe(midnight, []health.LagSample{s}); !l.Status.Healthy {
				t.Errorf("%s: %s", c.name, l.Status.Reason)
			}
		}
		s.End = 7
		if l := m.Observe(midnight, []health.LagSample{s}); l.Status.Healthy {
			t.Errorf("%s: three rises are healthy", c.name)
		}
	}
}

func TestFreshness(t *testing.T) {
	at := midnight.Add(-90 * time.Second)
	for _, c := range []struct {
		name   string
		lag    int64
		known  bool
		oldest time.Time
		want   string
	}{
		{"nothing unread", 0, true, at, "0"},
		{"a record", 1, true, at, "90"},
		{"of a time to come", 1, true, midnight.Add(time.Hour), "0"},
		{"nobody knows", 1, true, time.Time{}, "nil"},
		{"neither", 0, false, time.Time{}, "nil"},
		{"the lag is unknown", 0, false, at, "90"},
	} {
		got := "nil"
		if f := health.Freshness(midnight, c.lag, c.known, c.oldest); f != nil {
			got = fmt.Sprint(*f)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestLagProperties draws histories of several partitions and compares the monitor with a second implementation of the
// rules.
func TestLagProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := health.LagRules{
			Max: rapid.Int64Range(0, 40).Draw(t, "max"), Every: 10 * time.Second, Rises: rapid.IntRange(1, 4).Draw(t, "rises"),
		}
		rules.Window = rules.Rises + rapid.IntRange(1, 3).Draw(t, "more")
		m := health.NewMonitor(rules)
		type known struct {
			lags   []int64 // the adjusted lags in the current window
			newest int64
		}
		all := map[int32]*known{}
		now := midnight
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now = now.Add(rules.Every)
			var samples []health.LagSample
			for id := range int32(3) {
				if rapid.IntRange(0, 9).Draw(t, "revoked") == 0 {
					delete(all, id)
					continue
				}
				s := health.LagSample{TopicPartition: health.TopicPartition{Topic: "t", Partition: id}, CommitEvery: time.Minute}
				s.Position = rapid.Int64Range(-1, 5).Draw(t, "position")
				s.Consumed = s.Position + rapid.Int64Range(0, 5).Draw(t, "ahead")
				s.End = rapid.Int64Range(-1, 50).Draw(t, "end")
				s.Hold = rapid.SampledFrom([]string{"", "", "", "paused"}).Draw(t, "hold")
				age := rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute}).Draw(t, "age")
				if age > 0 {
					s.Waiting = now.Add(-age)
				}
				samples = append(samples, s)
				k := all[id]
				if k == nil {
					k = &known{newest: -1}
					all[id] = k
				}
				if s.Hold != "" {
					k.lags = nil
				}
				if s.End < 0 || s.Position < 0 {
					continue
				}
				if k.newest = max(0, s.End-s.Consumed); age > 2*time.Minute {
					k.newest = max(0, s.End-s.Position)
				}
				if s.Hold == "" {
					k.lags = append(k.lags, k.newest)
				}
			}
			l := m.Observe(now, samples)
			healthy := true
			for _, k := range all {
				rises := len(k.lags) > rules.Rises
				for i := len(k.lags) - rules.Rises; rises && i < len(k.lags); i++ {
					rises = k.lags[i] > k.lags[i-1]
				}
				healthy = healthy && k.newest <= rules.Max && !rises
			}
			if l.Status.Healthy != healthy || (l.Status.Reason == "") != healthy {
				t.Fatalf("healthy is %v, reason %q", l.Status.Healthy, l.Status.Reason)
			}
			if len(l.Partitions) != len(samples) {
				t.Fatalf("%d partitions of %d", len(l.Partitions), len(samples))
			}
			for _, s := range samples {
				p := l.Partitions[s.TopicPartition]
				stands := p.Verdict == health.VerdictStall || p.Verdict == health.VerdictStop
				if s.Hold != "" && p.Verdict != health.VerdictHeld || s.Hold == "" && p.Verdict == health.VerdictHeld {
					t.Fatalf("hold %q has verdict %s", s.Hold, p.Verdict)
				}
				if stands && p.Adjusted == 0 {
					t.Fatalf("%s without a lag", p.Verdict)
				}
				if p.Adjusted > p.Lag {
					t.Fatalf("adjusted %d, lag %d", p.Adjusted, p.Lag)
				}
			}
		}
	})
}

// TestMoreLagIsNeverHealthier: if a history of end offsets makes a partition unhealthy, so does the same history with a
// greater last end offset.
func TestMoreLagIsNeverHealthier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := rapid.SliceOfN(rapid.Int64Range(0, 20_000), 1, 8).Draw(t, "ends")
		more := append([]int64(nil), ends...)
		more[len(more)-1] += rapid.Int64Range(0, 20_000).Draw(t, "more")
		last := func(ends []int64) (l health.LagReport) {
			m := health.NewMonitor(usual)
			for i, s := range lags(ends...) {
				now := midnight.Add(time.Duration(i) * usual.Every)
				l = m.Observe(now, []health.LagSample{s.sample(now)})
			}
			return l
		}
		if !last(ends).Status.Healthy && last(more).Status.Healthy {
			t.Fatalf("%v is healthier than %v", more, ends)
		}
	})
}
