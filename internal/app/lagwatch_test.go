package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/health"
	"sluice/health/ops"
	"sluice/internal/config"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// lagScene is a lag watch in virtual time. The test sets its claims and end offsets.
type lagScene struct {
	*lagWatch
	t *testing.T

	mu     sync.Mutex
	claims []connector.ClaimStatus
	ends   map[connector.Partition]int64
	err    error
	silent bool // true while Kafka does not answer before any deadline
	asked  int
	log    bytes.Buffer
}

func newLagScene(t *testing.T, topic string) *lagScene {
	t.Helper()
	s := &lagScene{t: t, ends: map[connector.Partition]int64{}}
	rules := (&config.Config{Health: config.Health{Lag: config.DefaultLag()}}).LagRules()
	rules.Topic = topic
	s.lagWatch = &lagWatch{
		rules: rules, grace: 1500 * time.Millisecond, monitor: health.NewMonitor(rules),
		status: func() connector.Status {
			s.mu.Lock()
			defer s.mu.Unlock()
			return connector.Status{At: time.Now(), Joined: true, Resumed: true, Claims: slices.Clone(s.claims)}
		},
		bounds: func(ctx context.Context, positions []connector.Position) (map[connector.Partition]connector.Bounds, error) {
			s.mu.Lock()
			silent := s.silent
			s.mu.Unlock()
			if silent {
				<-ctx.Done()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked++
			bounds := map[connector.Partition]connector.Bounds{}
			for _, p := range positions {
				if p.Next != -1 || p.Epoch != -1 {
					t.Errorf("%+v asks for more than the ends", p)
				}
				if end, ok := s.ends[p.Partition]; ok {
					bounds[p.Partition] = connector.Bounds{LastStable: end, HighWatermark: end + 7}
				}
			}
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > min(endsTimeout, s.rules.Every/2) {
				t.Error("the question has no bound")
			}
			return bounds, s.err
		},
		ask:        func(ctx context.Context, op func(context.Context) error) error { return op(ctx) },
		thresholds: func(topic string) health.LagThresholds { return health.LagThresholds{Warning: 500, Critical: 2000} },
		logger:     slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	}
	return s
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "since" {
		return slog.Attr{}
	}
	return a
}

func (s *lagScene) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(line)
}

// logged returns what was logged since its last call.
func (s *lagScene) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.log.Reset()
	return strings.TrimSpace(s.log.String())
}

func (s *lagScene) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// lag sets the end offset of a partition so that it has this lag; no record is in flight.
func (s *lagScene) lag(topic string, id int32, lag int64) {
	s.set(func() {
		p := connector.Partition{Topic: topic, ID: id}
		i := slices.IndexFunc(s.claims, func(c connector.ClaimStatus) bool { return c.Partition == p })
		if i < 0 {
			i = len(s.claims)
			s.claims = append(s.claims, connector.ClaimStatus{Partition: p, Table: topic, State: "reading", Every: time.Minute})
		}
		c := &s.claims[i]
		c.Position, c.Consumed, c.End = 100, 100, 100
		s.ends[p] = 100 + lag
	})
}

// starts runs the watch. The returned function stops it.
func (s *lagScene) starts() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.run(ctx) }()
	return func() { cancel(); <-ended }
}

// next waits until the next poll is done.
func (s *lagScene) next() {
	time.Sleep(s.rules.Every)
	synctest.Wait()
}

// report returns a health report with the lag that the watch has found.
func (s *lagScene) report() health.Report {
	found := s.found()
	r := health.Report{Group: "g", Joined: true, Resumed: true}
	if found != nil {
		r.Lag = &found.Status
	}
	for _, c := range s.status().Claims {
		r.Partitions = append(r.Partitions, found.of(c))
	}
	return r
}

// TestLagScenarios goes through the examples of the requirement for lag, with their numbers and times. After each poll
// the verdict and the log line must be the expected ones.
func TestLagScenarios(t *testing.T) {
	type look struct {
		lag    int64
		reason string
		log    string
	}
	unhealthy := func(reason string) string { return `level=WARN msg="Consumer UNHEALTHY" reason="` + reason + `"` }
	const (
		stuck = "Partition 0 lag consistently increasing"
		high  = "Partition 0 lag (10500) exceeds maximum (10000)"
	)
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"1 healthy", []look{{3, "", ""}, {4, "", ""}, {5, "", ""}, {4, "", ""}, {5, "", ""}}},
		{"2 stuck", []look{{1000, "", ""}, {1500, "", ""}, {2100, "", ""}, {2800, stuck, unhealthy(stuck)}, {3500, stuck, ""}}},
		{"3 a burst", []look{
			{8000, "", ""}, {9000, "", ""}, {10_500, high, unhealthy(high)}, {8500, "", `level=INFO msg="Consumer healthy again" after=10s`},
		}},
	} {
		var reports []health.Report
		synctest.Test(t, func(t *testing.T) {
			s := newLagScene(t, "orders")
			s.lag("orders", 0, 0)
			stop := s.starts()
			defer stop()
			time.Sleep(s.grace) // from here on, each step begins directly after a poll
			begin := time.Now()
			for i, l := range c.looks {
				s.lag("orders", 0, l.lag)
				s.next()
				r := s.report()
				reports = append(reports, r)
				if at := time.Since(begin); at != time.Duration(i+1)*10*time.Second {
					t.Fatalf("%s: look %d at %s", c.name, i, at)
				}
				if r.Lag.Reason != l.reason || r.Lag.Healthy != (l.reason == "") || !r.Lag.LastCheckTime.Equal(time.Now()) {
					t.Errorf("%s: T+%d: %+v, want %q", c.name, i*10, r.Lag, l.reason)
				}
				if d := cmp.Diff(map[string]int64{"orders:0": l.lag}, r.Lag.PartitionLags); d != "" {
					t.Errorf("%s: T+%d (-want +got):\n%s", c.name, i*10, d)
				}
				if got := s.logged(); got != l.log {
					t.Errorf("%s: T+%d: log %s, want %s", c.name, i*10, got, l.log)
				}
			}
		})
		serveScenario(t, c.name, reports)
	}
}

// serveScenario requests the probes at each step of a scenario. Readiness must depend on the lag, liveness must not.
func serveScenario(t *testing.T, name string, reports []health.Report) {
	t.Helper()
	var step int
	var log bytes.Buffer
	report := func() health.Report { return reports[step] }
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(ops.NewCollector(report))
	server := ops.NewServer("127.0.0.1:0", report, func() error { return nil }, registry, slog.New(slog.NewTextHandler(&log, nil)))
	address, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for step = range reports {
		lag := reports[step].Lag
		want, healthy := http.StatusOK, 1
		if !lag.Healthy {
			want, healthy = http.StatusServiceUnavailable, 0
		}
		log.Reset()
		if code, body := get("/health/ready"); code != want || !strings.Contains(body, lag.Reason) {
			t.Errorf("%s, step %d: ready %d %s", name, step, code, body)
		}
		failed := strings.Contains(log.String(), `level=WARN msg="Readiness check FAILED" reason="`+lag.Reason+`"`)
		if first := !lag.Healthy && reports[step-1].Lag.Healthy; failed != first {
			t.Errorf("%s, step %d: log %s", name, step, &log)
		}
		if code, body := get("/health/live"); code != http.StatusOK {
			t.Errorf("%s, step %d: live %d %s", name, step, code, body)
		}
		_, metrics := get("/metrics")
		for _, want := range []string{
			fmt.Sprintf(`kafka_consumer_healthy{group="g"} %d`, healthy),
			fmt.Sprintf(`kafka_consumer_lag{group="g",partition="0",topic="orders"} %d`, lag.PartitionLags["orders:0"]),
			fmt.Sprintf(`kafka_consumer_total_lag{group="g"} %d`, lag.PartitionLags["orders:0"]),
		} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("%s, step %d: no %s in\n%s", name, step, want, metrics)
			}
		}
	}
}

// TestLagWatchOutages: while some leaders, or all, do not respond, the watch keeps the last lag of their partitions
// and logs the failure now and then. A revoked partition no longer counts.
func TestLagWatchOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLagScene(t, "")
		stop := s.starts()
		time.Sleep(s.grace)
		s.next()
		if l := s.report().Lag; !l.Healthy || s.asked != 0 {
			t.Errorf("without claims: %+v, %d questions", l, s.asked)
		}
		s.lag("orders", 0, 11_000)
		s.lag("users", 1, 5)
		s.next()
		known := time.Now()
		const reason = "Topic orders partition 0 lag (11000) exceeds maximum (10000)"
		if l := s.report().Lag; l.Reason != reason || s.asked != 1 {
			t.Errorf("%+v, %d questions", l, s.asked)
		}
		if got, want := s.logged(), `level=WARN msg="Consumer UNHEALTHY" reason="`+reason+`"`; got != want {
			t.Error(got)
		}

		// Kafka stops responding, except for one leader.
		s.set(func() {
			delete(s.ends, connector.Partition{Topic: "orders"})
			s.err = errors.New("bounds of orders:0: timeout")
		})
		s.lag("users", 1, 6)
		s.next()
		if l := s.report().Lag; l.Reason != reason || !l.LastCheckTime.After(known) || l.Error != "bounds of orders:0: timeout" ||
			l.PartitionLags["users:1"] != 6 || l.PartitionLags["orders:0"] != 11_000 {
			t.Errorf("one leader answers: %+v", l)
		}
		if p := s.report().Partitions[0]; p.End != 11_100 {
			t.Errorf("the end that was known is gone: %+v", p)
		}
		if got, want := s.logged(), `level=WARN msg="failed to fetch end offsets; keeping the last lag" err="bounds of orders:0: timeout"`; got != want {
			t.Error(got)
		}
		known = time.Now()
		s.set(func() { clear(s.ends); s.silent = true })
		for range 30 { // five minutes of polls
			s.next()
		}
		if l := s.report().Lag; l.Reason != reason || !l.LastCheckTime.Equal(known) || l.Error == "" {
			t.Errorf("no leader responds: %+v", l)
		}
		// The line about end offsets comes again after a minute, the one about lag every five minutes.
		if got, want := s.logged(), `level=WARN msg="failed to fetch end offsets; keeping the last lag" err="bounds of orders:0: timeout" left_out=5`+"\n"+
			`level=WARN msg="Consumer UNHEALTHY" reason="`+reason+`"`; got != want {
			t.Errorf("in five minutes: %s", got)
		}

		// Another member gets the partition; then Kafka responds again.
		s.set(func() { s.claims = s.claims[1:] })
		s.next()
		if l := s.report().Lag; !l.Healthy || len(l.PartitionLags) != 1 {
			t.Errorf("revoked: %+v", l)
		}
		s.set(func() { s.err, s.silent = nil, false })
		s.lag("users", 1, 0)
		s.next()
		if l := s.report().Lag; !l.Healthy || l.Error != "" || !l.LastCheckTime.Equal(time.Now()) {
			t.Errorf("%+v", l)
		}
		if got := s.logged(); !strings.Contains(got, `msg="Consumer healthy again" after=5m15s`) || !strings.Contains(got, `msg="fetching end offsets works again"`) {
			t.Error(got)
		}
		stop()
	})
}

// TestLagWatch_GracePeriod: records that were produced just before a poll, and read before it ends, are no lag.
func TestLagWatch_GracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLagScene(t, "orders")
		s.lag("orders", 0, 10)
		stop := s.starts()
		time.Sleep(s.rules.Every + s.grace/2) // now the poll has read the end offsets, and waits for the grace period
		s.set(func() { s.claims[0].Consumed = 110 })
		time.Sleep(s.grace)
		synctest.Wait()
		if p := s.report().Partitions[0]; p.Adjusted == nil || *p.Adjusted != 0 || p.End != 110 {
			t.Errorf("%+v", p)
		}
		stop()
	})
}

// TestLagSeries: a partition has series once its lag is known, and none after it is revoked.
func TestLagSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLagScene(t, "")
		s.lag("orders", 0, 600)
		s.lag("users", 3, 2001)
		s.set(func() {
			s.claims[1].Hold = &hold.Hold{Reason: hold.Paused}
			s.claims[1].End = 9_999 // the end offset from before the hold, when the claim was read
		})
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(ops.NewCollector(s.report))
		series := func() map[string]float64 {
			families, err := r.Gather()
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]float64{}
			for _, f := range families {
				if strings.HasPrefix(f.GetName(), "sluice_held") || f.GetName() == "sluice_partition_held" {
					continue
				}
				for _, m := range f.GetMetric() {
					name := f.GetName()
					for _, l := range m.GetLabel() {
						name += " " + l.GetValue()
					}
					found[name] = m.GetGauge().GetValue()
				}
			}
			return found
		}
		stop := s.starts()
		time.Sleep(s.grace)
		s.next()
		want := map[string]float64{
			"kafka_consumer_healthy g": 1, "kafka_consumer_total_lag g": 2601, "sluice_lag_checked_timestamp_seconds": float64(time.Now().UnixMilli()) / 1000,
			"kafka_consumer_lag g 0 orders": 600, "sluice_adjusted_lag_records g 0 orders": 600, "sluice_partition_verdict 0 orders OK": 1,
			"kafka_consumer_lag g 3 users": 2001, "sluice_adjusted_lag_records g 3 users": 2001, "sluice_partition_verdict 3 users HELD": 1,
		}
		if d := cmp.Diff(want, series()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if p := s.report().Partitions; p[0].Level != health.LevelWarning || p[1].Level != health.LevelCritical {
			t.Errorf("levels: %+v", p)
		}
		s.set(func() { s.claims = s.claims[:1] })
		for name := range want {
			if strings.Contains(name, "users") {
				delete(want, name)
			}
		}
		want["kafka_consumer_total_lag g"] = 600
		if d := cmp.Diff(want, series()); d != "" {
			t.Errorf("revoked (-want +got):\n%s", d)
		}
		stop()
	})
}

// TestLagWatch_PartitionWithoutLeader: one failing leader must not open the breaker, which stops all requests to Kafka.
func TestLagWatch_PartitionWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLagScene(t, "")
		guard := reliability.NewGuard("kafka", reliability.Config{Failures: 2, OpenFor: time.Minute, Successes: 1}, slog.New(slog.DiscardHandler), nil)
		s.ask = guard.Try
		stop := s.starts()
		s.lag("orders", 0, 7)
		s.lag("users", 1, 5)
		s.set(func() {
			delete(s.ends, connector.Partition{Topic: "orders"})
			s.err = classify.Mark(errors.New("bounds of orders:0: no leader"), classify.Transient)
		})
		for range 5 {
			s.next()
		}
		if l := s.report().Lag; guard.Status().Open || l.PartitionLags["users:1"] != 5 || l.Error != s.err.Error() {
			t.Errorf("one leader is missing: %+v, %+v", guard.Status(), l)
		}
		s.set(func() { clear(s.ends) })
		for range 5 {
			s.next()
		}
		if !guard.Status().Open {
			t.Errorf("no leader responds: %+v", guard.Status())
		}
		stop()
	})
}

// TestFreshnessOfAPartition: the age of the oldest record comes from the claim or, if the claim has no record in
// memory, from the loss watch. It is 0 if nothing is unread, and unknown if the loss watch has no timestamp at the
// position.
func TestFreshnessOfAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connector.Partition{Topic: "orders"}
		s := &Member{config: &config.Config{Topics: map[string]config.Topic{"orders": {Lag: health.LagThresholds{Warning: 1}}}}, losses: &lossWatch{
			until: map[connector.Partition]deadline{p: {newest: time.Now().Add(-time.Hour), position: 5}},
		}}
		for _, c := range []struct {
			name   string
			claim  connector.ClaimStatus
			wanted string
		}{
			{"nothing unread", connector.ClaimStatus{Partition: p, Position: 5, End: 5, Oldest: time.Now().Add(-time.Minute)}, "0"},
			{"read and on its way", connector.ClaimStatus{Partition: p, Position: 5, End: 9, Oldest: time.Now().Add(-time.Minute)}, "60"},
			{"unread, and looked at", connector.ClaimStatus{Partition: p, Position: 5, End: 9, Consumed: 5}, "3600"},
			{"a part was read, and is no row", connector.ClaimStatus{Partition: p, Position: 5, End: 9, Consumed: 8}, "3600"},
			{"all was read, and nothing of it will be a row", connector.ClaimStatus{Partition: p, Position: 5, End: 9, Consumed: 9}, "0"},
			{"so it was, before it was held", connector.ClaimStatus{Partition: p, Position: 5, End: 9, Consumed: 9, Hold: &hold.Hold{}}, "3600"},
			{"looked at elsewhere", connector.ClaimStatus{Partition: p, Position: 6, End: 9}, "nil"},
			{"never looked at", connector.ClaimStatus{Partition: connector.Partition{Topic: "other"}, Position: 5, End: 9}, "nil"},
		} {
			got := "nil"
			part := s.partition(c.claim, nil)
			if part.Freshness != nil {
				got = fmt.Sprint(*part.Freshness)
			}
			if got != c.wanted {
				t.Errorf("%s: %s, want %s", c.name, got, c.wanted)
			}
			if part.Thresholds.Warning != map[string]int64{"orders": 1}[part.Topic] {
				t.Errorf("%s: thresholds %+v", c.name, part.Thresholds)
			}
		}
	})
}

func TestLagRules(t *testing.T) {
	for text, want := range map[string]string{
		"topics: {orders: {}}":                         "orders",
		"topics: {orders: {}, users: {}}":              "",
		"topics: {all: {pattern: a.*, deny: []}}":      "",
		"topics: {o: {}, p: {pattern: a.*, deny: []}}": "",
	} {
		c := laketest.Load(t, write(t, text+"\npipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///x}\ndefaults: {schema: a int, table: \"t/{topic}\"}\n"))
		if got := c.LagRules(); got != (health.LagRules{Max: 10_000, Every: 10 * time.Second, Window: 5, Rises: 3, Topic: want}) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestExampleOfThresholds: the example in docs/lag.md is a valid configuration.
func TestExampleOfThresholds(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "../../docs/lag.md"), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/lag.md has no example")
	}
	c := laketest.Load(t, write(t, example+"\npipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///x}\ndefaults: {schema: a int}\n"))
	if got := c.Topics["reconciliation.triggers"].Lag; len(c.Topics) != 6 || got != (health.LagThresholds{Warning: 10, Critical: 50}) {
		t.Errorf("%d topics, %+v", len(c.Topics), got)
	}
}

// TestLagOfAClaimThatCameBack: between two polls a partition goes to another member and comes back, or its topic is
// created again. In both cases the lag history of the old claim does not count for the new one.
func TestLagOfAClaimThatCameBack(t *testing.T) {
	for name, change := range map[string]func(c *connector.ClaimStatus){
		"the same claim": func(*connector.ClaimStatus) {},
		"reassigned":     func(c *connector.ClaimStatus) { c.Since = c.Since.Add(time.Second) },
		"created again":  func(c *connector.ClaimStatus) { c.Partition.TopicID[0]++ },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newLagScene(t, "orders")
			stop := s.starts()
			for _, lag := range []int64{1, 2, 3} {
				s.lag("orders", 0, lag)
				s.next()
			}
			s.set(func() {
				c := &s.claims[0]
				change(c)
				s.ends[c.Partition] = 104
			})
			time.Sleep(s.rules.Every + s.grace)
			synctest.Wait()
			if l := s.report().Lag; l.PartitionLags["orders:0"] != 4 || l.Healthy != (name != "the same claim") {
				t.Errorf("%s: %+v", name, l)
			}
			stop()
		})
	}
}
