package membership

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries is the largest number of members with series of their own. If there are more, this member and those with
// the oldest heartbeats have series. The metric sluice_members counts all members.
const maxSeries = 256

// maxLabel is the largest size in bytes of an id that becomes a label value: a host's name has 64 on Linux.
const maxLabel = 200

// Values of the state label: the status of an active member, or missing.
const (
	stateRunning      = "running"
	stateShuttingDown = "shutting_down"
	stateMissing      = "missing"
)

type metrics struct {
	beats                                    *prometheus.CounterVec
	timestamp, age, ending, members, storeUp *prometheus.Desc
}

func newMetrics() metrics {
	id := []string{"consumer_id"}
	return metrics{
		beats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_member_beats_total", Help: "Heartbeats of this member, by result.",
		}, []string{"result"}),
		timestamp: prometheus.NewDesc("worker_heartbeat_timestamp",
			"Unix time of the last heartbeat that the store of registrations took, of each member that is registered or remembered.", id, nil),
		age: prometheus.NewDesc("consumer_heartbeat_age", "Seconds since the last heartbeat of a member, by the store's clock.", id, nil),
		ending: prometheus.NewDesc("sluice_member_shutting_down_timestamp_seconds",
			"Unix time since when a member has been SHUTTING_DOWN, of each member that is.", id, nil),
		members: prometheus.NewDesc("sluice_members", "Members that are registered or remembered, by state.", []string{"state"}, nil),
		storeUp: prometheus.NewDesc("sluice_members_store_up", "1 while the store of registrations answers, else 0.", nil, nil),
	}
}

// series collects the gauges from the last response of the store about the members. A member that the response does not
// list has no series.
type series struct{ *Keeper }

// Describe implements prometheus.Collector.
func (s series) Describe(out chan<- *prometheus.Desc) {
	out <- s.metrics.timestamp
	out <- s.metrics.age
	out <- s.metrics.ending
	out <- s.metrics.members
	out <- s.metrics.storeUp
}

// Collect implements prometheus.Collector. While the state of the members is unknown, other members have no series,
// because a store that is down does not make them missing. This member then has the time of its last successful
// heartbeat.
func (s series) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	last, own := s.last, s.beatAt
	s.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	known := s.unknown(last) == ""
	if !known {
		gauge(s.metrics.storeUp, 0)
		if !own.IsZero() && labels(s.ID) {
			gauge(s.metrics.timestamp, seconds(own), s.ID)
			gauge(s.metrics.age, time.Since(own).Seconds(), s.ID)
		}
		return
	}
	gauge(s.metrics.storeUp, 1)
	states := map[string]int{stateRunning: 0, stateShuttingDown: 0, stateMissing: 0}
	for _, m := range last.members {
		switch {
		case !m.Active():
			states[stateMissing]++
		case m.Status == ShuttingDown:
			states[stateShuttingDown]++
		default:
			states[stateRunning]++
		}
	}
	for state, n := range states {
		gauge(s.metrics.members, float64(n), state)
	}
	since := time.Since(last.at)
	for _, m := range s.shown(last.members) {
		gauge(s.metrics.timestamp, seconds(last.at.Add(-m.Age)), m.ID)
		gauge(s.metrics.age, (m.Age + since).Seconds(), m.ID)
		if m.Active() && m.Status == ShuttingDown {
			gauge(s.metrics.ending, seconds(last.at.Add(-m.InStatus)), m.ID)
		}
	}
}

// shown returns the members that have series: those whose id can be a label value, at most maxSeries.
func (s series) shown(members []Member) []Member {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !labels(m.ID) })
	if len(members) <= maxSeries {
		return members
	}
	slices.SortFunc(members, func(a, b Member) int {
		if own := cmp.Compare(btoi(b.ID == s.ID), btoi(a.ID == s.ID)); own != 0 {
			return own
		}
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.ID, b.ID))
	})
	return members[:maxSeries]
}

// labels reports whether an id can be a label value. Ids of members always can; other programs may write any id.
func labels(id string) bool { return len(id) <= maxLabel && utf8.ValidString(id) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// seconds returns a time as Prometheus expects it: in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
