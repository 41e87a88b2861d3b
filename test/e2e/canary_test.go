//go:build lab

package e2e

import (
	"slices"
	"testing"
	"time"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// TestCanary expects two members to report their canary records as seen while other records arrive, also after one
// member was killed. The canary records must be in their own table and not in that of the topic.
func TestCanary(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2)
	topic := s.name + "-canary"
	if err := shared.kafka.CreateTopic(s.ctx, topic, 2, nil); err != nil {
		t.Fatal(err)
	}
	watched := func(c *settings) { c.health = ", canary: {topic: " + topic + ", every: 1s}" }
	end := s.stream(200)
	one, other := s.start(watched), s.start(watched)
	seen := func(m *member, after time.Time) {
		t.Helper()
		m.await("its canary is seen", func(r report) bool {
			c, there := r.canary()
			return there && c.Seen != nil && c.Seen.After(after) && c.Failing == nil
		})
	}
	seen(one, time.Time{})
	seen(other, time.Time{})
	other.kill()
	killed := time.Now()
	seen(one, killed)
	r, err := one.health()
	if c, there := r.canary(); err != nil || !there || c.Seconds <= 0 || c.Seconds > patience.Seconds() {
		t.Errorf("%+v, %v", c, err)
	}
	if n, at := one.metric("sluice_canary_seconds_count"), one.metric("sluice_canary_last_success_timestamp_seconds"); n < 2 || at < float64(killed.Unix()) {
		t.Errorf("%v canaries were timed, the last one was seen at %v", n, at)
	}
	end()
	s.awaitRows(s.ledger.Len())
	one.await("it owns all partitions and knows their lag", func(r report) bool {
		return r.Ready && len(r.Partitions) == 4 && !slices.ContainsFunc(r.Partitions, func(p partitionReport) bool { return p.Lag == nil })
	})
	one.lints()
	one.drain()
	log := tablelog.Log{Store: s.bucket, Table: s.name + "/_sluice/" + s.name + "/canary"}
	commits, err := log.Read(s.ctx)
	if err != nil || tablelog.Rows(commits) < 3 {
		t.Errorf("%d canaries in their table, %v", tablelog.Rows(commits), err)
	}
	s.checkWith(lab.Python, "--readers", "deltalake")
}
