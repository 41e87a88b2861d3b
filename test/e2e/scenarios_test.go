//go:build lab && linux

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
)

// The tests below play four scenarios of failures, step by step. In them, to acknowledge a record means that the
// table's position passes it. The group's committed offset follows later.

// TestTransientS3Outage lets the store fail for a while. Meanwhile no offset may be committed and no record lost, and
// the member must recover by itself.
func TestTransientS3Outage(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	p := s.proxy()
	m := s.start(through(p), func(c *settings) {
		c.patient = "retry: {initial: 200ms, max: 2s}\nbreaker: {failures: 5, open_for: 2s, successes: 3}"
		c.log = "debug" // logs each retry; other levels log only some
	})
	s.produce(2000)
	s.awaitRows(2000)
	s.awaitGroup()
	before := s.positions()

	// 1. A write fails with a server error.
	p.Break(lab.Any, 1<<16, lab.Answer(500, false))
	s.produce(2000)
	// 2. The error is transient: the guard retries and logs each retry.
	m.awaitMetric("sluice_retries_total", 5)
	if n := m.metric("sluice_unknown_errors_total"); n != 0 {
		t.Errorf("%v errors have no class, want none", n)
	}
	// 3. Nothing is acknowledged: neither position nor committed offset moves, no letter is written.
	m.await("it says that the store is down", func(r report) bool { return len(r.Holds) == 4 && r.Holds[0].Reason == "store_down" })
	if now := s.positions(); !maps.Equal(before, now) {
		t.Errorf("positions moved from %v to %v", before, now)
	}
	s.wantGroup(before)
	// 4. The pauses between retries grow: doubled from 200 ms up to 2 s, with a jitter of a quarter.
	pauses := 0
	for _, l := range m.lines("retry") {
		pause, err := time.ParseDuration(l.Pause)
		if l.Dependency != "store" || err != nil {
			continue
		}
		pauses++
		full := min(200*time.Millisecond<<(l.Failures-1), 2*time.Second)
		if pause < full*3/4 || pause > full*5/4 {
			t.Errorf("a pause of %v after %d failures, want %v ± 25 %%", pause, l.Failures, full)
		}
	}
	if pauses < 4 {
		t.Errorf("%d pauses in the log, want at least 4", pauses)
	}
	// 5. The write succeeds once the store is back. 6. All records are acknowledged.
	p.Heal()
	s.awaitRows(4000)
	s.awaitGroup()
	m.await("it reports status ok", func(r report) bool { return r.Status == "ok" })
	m.drain()
	if n := s.letters(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	s.check("--readers", "deltalake")
}

// TestInvalidMessageSchema expects records that do not fit the schema to become dead letters at once, and the other
// records to become rows.
func TestInvalidMessageSchema(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	m := s.start(withLetters)
	s.produce(2000)
	s.awaitRows(2000)

	// 1. The schema does not accept these records.
	bad := map[string]string{
		`{"order_id":`:                     "truncated",
		`{"store_id":1}`:                   "required_missing",
		`{"order_id":"x","quantity":"no"}`: "type_mismatch",
	}
	client := s.client()
	at := map[int64]string{} // by offset, all in partition 0
	for value := range bad {
		rec := &kgo.Record{Topic: s.name, Partition: 0, Key: []byte("k"), Value: []byte(value)}
		if err := client.ProduceSync(s.ctx, rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
		at[rec.Offset] = value
	}
	s.produce(2000)
	// 5. The records after them become rows. 3. The position passes the bad records.
	s.awaitRows(4000)
	s.awaitPosition(0, s.ledger.Ends()[0])
	// 2. The error is not retriable: no breaker changed its state. The dead letters below show that no record was
	// retried.
	if n := m.metric("sluice_breaker_changes_total"); n != 0 {
		t.Errorf("breakers changed %v times, want none", n)
	}
	m.drain()
	// 4. Each bad record is in the dead-letter topic once, unchanged, with its origin and reason.
	letters := s.readLetters(len(bad))
	for _, l := range letters {
		value := string(l.Value)
		why, where := header(l, "sluice.reason"), header(l, "sluice.offset")
		var offset int64
		for o, v := range at {
			if v == value {
				offset = o
				delete(at, o)
			}
		}
		if why != bad[value] || string(l.Key) != "k" || where == "" || header(l, "sluice.topic") != s.name || header(l, "sluice.retries") != "0" {
			t.Errorf("dead letter %q of offset %d has reason %q and origin %q", value, offset, why, where)
		}
	}
	if len(at) > 0 || len(letters) != len(bad) {
		t.Errorf("%d dead letters; records without one: %v", len(letters), at)
	}
	s.checkSets("--readers", "deltalake")
}

// TestConsumerRebalance lets a member join while a commit of another member is in flight. The new owner reads the
// records of that commit again, and no record may become two rows.
func TestConsumerRebalance(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	end := s.stream(500)
	p := s.proxy()
	first := s.start(through(p))
	s.awaitRows(1)
	// 2. Records in flight are not acknowledged: the proxy holds the commit.
	fault := p.Break(lab.CommitPut, 1, lab.Hold)
	s.met(fault)
	before := s.positions()
	// 1. Kafka rebalances. 3. The second member gets partitions and reads from the positions in the table.
	second := s.start()
	second.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) == 2 })
	s.await("the second member commits", func() (bool, error) { return second.metric("sluice_commits_total") > 0, nil })
	moved := 0
	for id, next := range s.positions() {
		if next > before[id] {
			moved++
		}
	}
	if moved == 0 || moved > 2 {
		t.Errorf("%d partitions advanced while the first member's commit was held, want 1 or 2", moved)
	}
	// 4. The held commit reaches the store. It must fail, because it would repeat rows of the second member.
	fault.Release(true)
	// 5. Both members continue.
	commits := second.metric("sluice_commits_total")
	mine := first.metric("sluice_commits_total")
	s.await("both commit", func() (bool, error) {
		return first.metric("sluice_commits_total") > mine && second.metric("sluice_commits_total") > commits, nil
	})
	end()
	s.awaitRows(s.ledger.Len())
	first.drain()
	second.drain()
	s.check("--readers", "deltalake")
}

// TestApplicationRestart stops a member and starts it again, twice. The first time the member drains its records into
// the table; the second time the store refuses them. No record may be lost or become two rows.
func TestApplicationRestart(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	end := s.stream(500)
	first := s.start()
	s.awaitRows(1000)
	// 1. It shuts down gracefully.
	first.drain()
	if len(first.lines("Shutting down gracefully")) != 1 {
		t.Errorf("the member does not log its shutdown once: %s", first.Tail())
	}
	s.wantGroup(s.positions())
	// 3. It starts again. 4. It continues at the table's positions.
	p := s.proxy()
	second := s.start(through(p))
	rows := s.rows()
	s.awaitRows(rows + 1000)
	// 2. Records in flight are not acknowledged: the store accepts no more commits.
	fault := p.Break(lab.CommitPut, 1<<16, lab.Answer(503, false))
	s.met(fault)
	before := s.positions()
	if err := second.Stop(30 * time.Second); err != nil {
		t.Errorf("%v: %s", err, second.Tail())
	}
	if now := s.positions(); !maps.Equal(before, now) {
		t.Errorf("positions moved from %v to %v", before, now)
	}
	third := s.start()
	end()
	// 5. No record has two rows.
	s.awaitRows(s.ledger.Len())
	third.drain()
	s.check("--readers", "deltalake")
}

// awaitGroup waits until the group's committed offsets equal the table's positions.
func (s *scene) awaitGroup() {
	s.t.Helper()
	s.await("the group's offsets follow the table", func() (bool, error) {
		return maps.Equal(s.groupOffsets(), s.positions()), nil
	})
}

// wantGroup expects the group's committed offsets to be want now.
func (s *scene) wantGroup(want map[int32]int64) {
	s.t.Helper()
	if got := s.groupOffsets(); !maps.Equal(got, want) {
		s.t.Errorf("the group's offsets are %v, want %v", got, want)
	}
}

func (s *scene) groupOffsets() map[int32]int64 {
	s.t.Helper()
	all, err := s.admin().FetchOffsetsForTopics(s.ctx, s.name, s.name)
	if err != nil {
		s.t.Fatal(err)
	}
	offsets := map[int32]int64{}
	for id, o := range all[s.name] {
		if o.Err == nil && o.At >= 0 {
			offsets[id] = o.At
		}
	}
	return offsets
}

// readLetters reads the dead-letter topic until it has n dead letters, and returns all that it has read by then.
func (s *scene) readLetters(n int) (all []*kgo.Record) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.ConsumeTopics(s.name+"-dlq"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for len(all) < n || int64(len(all)) < s.letters() {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			s.t.Fatalf("%d of %d dead letters: %v", len(all), n, err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

func header(r *kgo.Record, key string) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == key })
	if i < 0 {
		return ""
	}
	return strings.TrimSpace(string(r.Headers[i].Value))
}

// awaitMetric waits until a metric is at least n.
func (m *member) awaitMetric(name string, n float64) {
	m.s.t.Helper()
	m.s.await(name, func() (bool, error) { return m.metric(name) >= n, nil })
}
