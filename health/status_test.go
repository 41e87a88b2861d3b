package health_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/health"
	"sluice/reliability/hold"
)

// anyReport generates reports, which need not make sense.
func anyReport() *rapid.Generator[health.Report] {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	topics := rapid.SampledFrom([]string{"", "orders", "users"})
	return rapid.Custom(func(t *rapid.T) health.Report {
		boolean := func(name string) bool { return rapid.Bool().Draw(t, name) }
		r := health.Report{
			Joined: boolean("joined"), Resumed: boolean("resumed"), Draining: boolean("draining"), Started: boolean("started"), Tested: boolean("tested"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "holds") {
			r.Holds = append(r.Holds, health.Hold{
				Topic: topics.Draw(t, "topic"), Partition: rapid.Int32Range(-1, 2).Draw(t, "partition"),
				Reason: string(rapid.SampledFrom(hold.Reasons()).Draw(t, "reason")), Offset: rapid.Int64Range(-1, 5).Draw(t, "offset"), Since: since,
			})
		}
		for id := range rapid.Int32Range(0, 3).Draw(t, "partitions") {
			r.Partitions = append(r.Partitions, health.Partition{
				Topic: "orders", ID: id, Position: rapid.Int64Range(-1, 3).Draw(t, "position"), End: rapid.Int64Range(-1, 3).Draw(t, "end"),
				Verdict: rapid.SampledFrom([]health.Verdict{"", health.VerdictOK, health.VerdictStop, health.VerdictHeld}).Draw(t, "verdict"),
				Level:   rapid.SampledFrom([]health.Level{"", health.LevelOK, health.LevelWarning, health.LevelCritical}).Draw(t, "level"),
			})
		}
		for range rapid.IntRange(0, 4).Draw(t, "dependencies") {
			d := health.Dependency{
				Name: rapid.SampledFrom([]string{"kafka", "kafka group", "store", "dead_letters", "postgres", "operations_log"}).Draw(t, "name"),
				Open: boolean("open"), Error: rapid.SampledFrom([]string{"", "timeout"}).Draw(t, "error"),
			}
			if boolean("failing") {
				d.Failing = &since
			}
			r.Dependencies = append(r.Dependencies, d)
		}
		if boolean("lag") {
			r.Lag = &health.LagStatus{Healthy: boolean("healthy")}
			if !r.Lag.Healthy {
				r.Lag.Reason = "Partition 0 lag consistently increasing"
			}
			if boolean("looked") {
				r.Lag.LastCheckTime = since
			}
		}
		if boolean("letters") {
			r.Letters = &health.Letters{PerMinute: rapid.Float64Range(0, 1).Draw(t, "rate"), Error: rapid.SampledFrom([]string{"", "timeout"}).Draw(t, "letters error")}
			if boolean("counted") {
				r.Letters.Unresolved = []health.UnresolvedLetters{{Count: rapid.Int64Range(0, 2).Draw(t, "letters")}}
			}
		}
		if boolean("members") {
			status := rapid.SampledFrom([]health.MembersStatus{"", health.MembersOK, health.MembersDegraded, health.MembersUnknown}).Draw(t, "status")
			r.Members = &health.Members{Status: status, Reason: "so it is"}
		}
		if boolean("canary") {
			r.Canary = &health.Canary{}
			if boolean("seen") {
				r.Canary.Seen = &since
			}
			if boolean("failing") {
				r.Canary.Failing = &since
			}
		}
		if boolean("operations") {
			r.Operations = &health.Operations{Known: boolean("known")}
		}
		r.Memory = []health.Pool{{Name: "batch", Size: 2, Used: rapid.Int64Range(0, 2).Draw(t, "used")}}
		return r
	})
}

// TestStatusesAgree: for any report, the readiness and the statuses of the member and of its components do not
// contradict each other. Each status except the best one has a reason.
func TestStatusesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyReport().Draw(t, "report")
		s := r.Sum()
		if s.Ready != (r.Ready() == nil) || s.Ready == (s.Reason != "") || s.Status != r.Status() {
			t.Fatalf("%+v, and Ready says %v", s, r.Ready())
		}
		worst := health.OK
		names := map[string]bool{}
		for _, c := range s.Components {
			if names[c.Name] || c.Details == nil {
				t.Fatalf("%s is there twice, or without details", c.Name)
			}
			names[c.Name] = true
			switch c.Status {
			case health.OK:
				continue // a component that is OK may have a reason or not
			case health.Unknown:
				if worst == health.OK {
					worst = health.Unknown
				}
			case health.Degraded, health.Down:
				worst = health.Degraded
			case health.Starting:
			case health.Draining:
				t.Fatalf("%s drains", c.Name)
			default:
				t.Fatalf("%s is %q", c.Name, c.Status)
			}
			if c.Reason == "" {
				t.Fatalf("%s is %s and does not say why", c.Name, c.Status)
			}
		}
		want := worst
		switch err := r.Ready(); {
		case errors.Is(err, health.ErrDraining):
			want = health.Draining
		case (errors.Is(err, health.ErrNotJoined) || errors.Is(err, health.ErrNotResumed)) && !r.Started:
			want = health.Starting
		case err != nil:
			want = health.Down
		}
		if s.Status != want {
			t.Fatalf("it is %s, want %s", s.Status, want)
		}
		if len(r.Holds) > 0 && s.Ready && s.Status != health.Degraded {
			t.Fatalf("something is held, and it is %s", s.Status)
		}
		for _, h := range r.Holds {
			if held := h.Held(); held.EndsBy == "" {
				t.Fatalf("nobody knows what ends %s", h.Reason)
			}
		}
	})
}

// TestAComponentThatIsDown: if one component is down and no other is degraded, the connector is degraded.
func TestAComponentThatIsDown(t *testing.T) {
	r := health.Report{
		Joined: true, Resumed: true, Started: true, Tested: true,
		Partitions: []health.Partition{{Topic: "orders"}},
		Holds:      []health.Hold{{Topic: "orders", Reason: "paused"}},
	}
	for _, c := range r.Components() {
		if want := c.Name == "holds"; (c.Status == health.Down) != want || c.Status == health.Degraded {
			t.Errorf("%s is %s", c.Name, c.Status)
		}
	}
	if got := r.Status(); got != health.Degraded {
		t.Errorf("the whole is %s", got)
	}
}

// TestReady_NamesTheDependency: when Kafka fails, a member that has worked before is not ready because of Kafka, at
// once. It does not count as starting.
func TestReady_NamesTheDependency(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gone := health.Dependency{Name: "kafka group", Failing: &since, Error: "connection refused"}
	store := health.Dependency{Name: "store", Table: "orders", Failing: &since, Error: "503"}
	for _, c := range []struct {
		name   string
		report health.Report
		status health.Status
		reason string
	}{
		{
			"Kafka is away at the start",
			health.Report{Dependencies: []health.Dependency{gone}},
			health.Starting,
			"not joined: no generation of the consumer group: kafka group: connection refused",
		},
		{
			"Kafka went",
			health.Report{Started: true, Resumed: true, Dependencies: []health.Dependency{gone}},
			health.Down,
			"not joined: no generation of the consumer group: kafka group: connection refused",
		},
		{"a rebalance", health.Report{Started: true, Resumed: true}, health.Down, "not joined: no generation of the consumer group"},
		{
			"the store went",
			health.Report{Started: true, Joined: true, Dependencies: []health.Dependency{store}},
			health.Down,
			"not resumed: positions are not read from the table yet: store of table orders: 503",
		},
		{
			"both went",
			health.Report{Started: true, Joined: true, Dependencies: []health.Dependency{store, gone}},
			health.Down,
			"not resumed: positions are not read from the table yet: kafka group: connection refused",
		},
	} {
		if s := c.report.Sum(); s.Status != c.status || s.Reason != c.reason || s.Ready {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}
