package health_test

import (
	"errors"
	"testing"

	"sluice/health"
)

func TestStatusAndReady(t *testing.T) {
	hold := []health.Hold{{Topic: "orders", Reason: "poison"}}
	lag := &health.LagStatus{Reason: "Partition 0 lag consistently increasing"}
	for _, c := range []struct {
		name   string
		report health.Report
		status health.Status
		ready  error
	}{
		{"new", health.Report{}, health.Starting, health.ErrNotJoined},
		{"joined", health.Report{Joined: true}, health.Starting, health.ErrNotResumed},
		{"resumed, generation ended", health.Report{Resumed: true}, health.Starting, health.ErrNotJoined},
		{"at work", health.Report{Joined: true, Resumed: true}, health.OK, nil},
		{"one partition held", health.Report{Joined: true, Resumed: true, Holds: hold}, health.Degraded, nil},
		{"held while starting", health.Report{Joined: true, Holds: hold}, health.Starting, health.ErrNotResumed},
		{"draining", health.Report{Joined: true, Resumed: true, Draining: true, Holds: hold}, health.Draining, health.ErrDraining},
		{"its lag is well", health.Report{Joined: true, Resumed: true, Lag: &health.LagStatus{Healthy: true}}, health.OK, nil},
		{"draining with a lag", health.Report{Joined: true, Resumed: true, Draining: true, Lag: lag}, health.Draining, health.ErrDraining},
		{"not joined, with a lag", health.Report{Resumed: true, Lag: lag}, health.Starting, health.ErrNotJoined},
		{"not resumed, with a lag", health.Report{Joined: true, Lag: lag}, health.Starting, health.ErrNotResumed},
		{"draining before it joined", health.Report{Draining: true}, health.Draining, health.ErrDraining},
	} {
		if got := c.report.Status(); got != c.status {
			t.Errorf("%s: status %s, want %s", c.name, got, c.status)
		}
		if got := c.report.Ready(); !errors.Is(got, c.ready) {
			t.Errorf("%s: ready %v, want %v", c.name, got, c.ready)
		}
	}
}

func TestReadinessFollowsLag(t *testing.T) {
	r := health.Report{Joined: true, Resumed: true, Holds: make([]health.Hold, 1), Lag: &health.LagStatus{Reason: "Partition 0 lag consistently increasing"}}
	var unhealthy *health.UnhealthyError
	if err := r.Ready(); !errors.As(err, &unhealthy) || err.Error() != r.Lag.Reason || r.Status() != health.Down {
		t.Error(err, r.Status())
	}
}

func TestLag(t *testing.T) {
	r := health.Report{Partitions: []health.Partition{
		{Position: 100, End: 105},
		{Position: 7, End: 5}, // the end was read before the position, so it is smaller
		{Position: -1, End: 9},
		{Position: 3, End: -1},
		{Position: 0, End: 2},
	}}
	want := []struct {
		lag   int64
		known bool
	}{{5, true}, {0, true}, {0, false}, {0, false}, {2, true}}
	for i, p := range r.Partitions {
		if lag, known := p.Lag(); lag != want[i].lag || known != want[i].known {
			t.Errorf("%+v: lag %d %v, want %+v", p, lag, known, want[i])
		}
	}
	if got := r.TotalLag(); got != 7 {
		t.Errorf("total %d", got)
	}
}
