package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/health"
)

// running returns a healthy member with these changes.
func running(id string, change ...func(*Member)) Member {
	m := Member{Beat: Beat{ID: id, Status: Running, Idle: time.Second, Lag: 3, TTL: 30 * time.Second}, Registered: true, Age: 2 * time.Second, InStatus: time.Hour}
	for _, c := range change {
		c(&m)
	}
	return m
}

func TestFindings(t *testing.T) {
	const warning, critical = health.LevelWarning, health.LevelCritical
	stopping := func(in time.Duration) func(*Member) {
		return func(m *Member) { m.Status, m.InStatus, m.TTL = ShuttingDown, in, time.Minute }
	}
	aged := func(age time.Duration) func(*Member) {
		return func(m *Member) { m.Age, m.Idle, m.Registered = age, m.Idle+age, age < m.TTL }
	}
	idle := func(idle time.Duration, lag int64) func(*Member) {
		return func(m *Member) { m.Idle, m.Lag = idle, lag }
	}
	type finding struct {
		severity health.Level
		text     string
	}
	for name, c := range map[string]struct {
		member Member
		want   []finding
	}{
		"well":                       {running("a"), nil},
		"silent, not missing":        {running("a", aged(60*time.Second)), nil},
		"missing":                    {running("a", aged(61*time.Second)), []finding{{critical, "no heartbeat for 1m1s"}}},
		"missing and idle is one":    {running("a", aged(time.Hour)), []finding{{critical, "no heartbeat for 1h0m0s"}}},
		"five minutes":               {running("a", idle(5*time.Minute, 9)), nil},
		"stuck":                      {running("a", idle(5*time.Minute+time.Second, 9)), []finding{{warning, "no record for 5m1s with a lag of 9: it may be stuck or held"}}},
		"idle":                       {running("a", idle(6*time.Minute, 0)), []finding{{warning, "no record for 6m0s without a lag: it is idle"}}},
		"unknown lag":                {running("a", idle(6*time.Minute, -1)), []finding{{warning, "no record for 6m0s with an unknown lag: it may be idle or stuck"}}},
		"never a record":             {running("a", idle(-1, 0)), []finding{{warning, "no record for 1h0m0s without a lag: it is idle"}}},
		"just started":               {running("a", idle(-1, 7), func(m *Member) { m.InStatus = time.Minute }), nil},
		"shutting down":              {running("a", stopping(2*time.Minute), idle(time.Hour, 9)), nil},
		"shutting down for long":     {running("a", stopping(121*time.Second)), []finding{{warning, "shutting down for 2m1s: it may have to be ended by force"}}},
		"gone while it shut down":    {running("a", stopping(70*time.Second), aged(70*time.Second)), []finding{{critical, "no heartbeat for 1m10s"}}},
		"gone while it shut down, 2": {running("a", stopping(3*time.Minute), aged(170*time.Second)), []finding{{critical, "no heartbeat for 2m50s"}, {warning, "shutting down for 3m0s: it may have to be ended by force"}}},
	} {
		var got []finding
		for _, f := range findings(c.member) {
			got = append(got, finding{f.Severity, f.Finding})
			if f.ID != "a" {
				t.Errorf("%s: id %q", name, f.ID)
			}
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(finding{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stale := func(m *Member) { m.Age, m.Registered = 2*time.Minute, false }
	expired := func(m *Member) { m.Age, m.Registered = 40*time.Second, false }
	for want, members := range map[string][]Member{
		"ok: 0 active consumers":              nil,
		"ok: 1 active consumer":               {running("a"), running("b", expired)},
		"ok: 3 active consumers":              {running("a"), running("b"), running("c")},
		"degraded: Stale consumers: a, c":     {running("a", stale), running("b"), running("c", stale)},
		"degraded: Stale consumers: line\n\"": {running("line\n\"", stale)},
	} {
		h := Judge(members, now)
		if got := fmt.Sprintf("%s: %s", h.Status, h.Reason); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	var many []Member
	for i := range 23 {
		many = append(many, running(fmt.Sprint("m", i), stale))
	}
	if h := Judge(many, now); !strings.HasSuffix(h.Reason, ", m19 and 3 more") || len(h.Members) != 23 || len(h.Findings) != 23 {
		t.Errorf("many: %q, %d members, %d findings", h.Reason, len(h.Members), len(h.Findings))
	}

	lag := int64(3)
	got := Judge([]Member{running("a"), running("b", func(m *Member) { m.Idle, m.Lag, m.InStatus = -1, -1, 0 })}, now).Members
	want := []health.Member{
		{ID: "a", Status: "RUNNING", Seconds: 2, Active: true, LastRecord: new(now.Add(-time.Second)), Lag: &lag},
		{ID: "b", Status: "RUNNING", Seconds: 2, Active: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}
