//go:build lab && linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// oftenLooks is a setting that makes a member check its lag each second.
func oftenLooks(c *settings) { c.health = ", lag: {every: 1s}" }

// answers requests a path of the member's health server and returns the response's status and body.
func (m *member) answers(path string) (code int, body string) {
	m.s.t.Helper()
	resp, err := m.get(path)
	if err != nil {
		m.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		m.s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// awaitUnready waits until the readiness probe fails with a text that contains reason. The liveness probe must still
// pass, and the metric kafka_consumer_healthy must be 0.
func (m *member) awaitUnready(reason string) {
	m.s.t.Helper()
	var last string
	defer func() {
		if m.s.t.Failed() {
			m.s.t.Logf("last answer: %s", last)
		}
	}()
	m.s.await("the member is not ready: "+reason, func() (bool, error) {
		code, body := m.answers("/health/ready")
		last = fmt.Sprintf("%d %s", code, body)
		return code == 503 && strings.Contains(body, reason), nil
	})
	if code, body := m.answers("/health/live"); code != 200 {
		m.s.t.Errorf("/health/live: %d %s", code, body)
	}
	if healthy := m.metric("kafka_consumer_healthy"); healthy != 0 {
		m.s.t.Errorf("kafka_consumer_healthy is %v", healthy)
	}
}

// awaitHealthy waits until the readiness probe passes, and expects the metric kafka_consumer_healthy to be 1.
func (m *member) awaitHealthy() {
	m.s.t.Helper()
	m.s.await("the member is ready again", func() (bool, error) {
		code, _ := m.answers("/health/ready")
		return code == 200, nil
	})
	if healthy := m.metric("kafka_consumer_healthy"); healthy != 1 {
		m.s.t.Errorf("kafka_consumer_healthy is %v", healthy)
	}
}

// lagLine is a line of a member's log about lag or backpressure, parsed.
type lagLine struct {
	Level    string
	Msg      string
	Reason   string
	Cause    string // the cause of backpressure, queue or commit
	Queued   int64
	PauseAt  int64 `json:"pause_at"`
	ResumeAt int64 `json:"resume_at"`
}

// said returns the parsed lines of the member's log whose message is msg.
func (m *member) said(msg string) (all []lagLine) {
	m.s.t.Helper()
	text, err := os.ReadFile(m.Log)
	if err != nil {
		m.s.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l lagLine
		if json.Unmarshal(line, &l) == nil && l.Msg == msg {
			all = append(all, l)
		}
	}
	return all
}

// TestLag_MakesUnready gives a member a burst of records while the store is slow, and later stalls a commit while
// records arrive. Both times the member must be unready, name the reason, and stay alive, until it has caught up. No
// record may be lost or doubled.
func TestLag_MakesUnready(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	p := s.proxy()
	m := s.start(oftenLooks, through(p))
	s.produce(500)
	s.awaitRows(500)
	m.awaitHealthy()

	// A burst: the member reads all of its records at once, and the first commit takes long.
	p.Slow(lab.CommitPut, 6*time.Second)
	s.produce(10_500)
	m.awaitUnready("Partition 0 lag (10500) exceeds maximum (10000)")
	p.Heal()
	m.awaitHealthy()
	s.awaitRows(s.ledger.Len())

	// The proxy holds the PUT of a commit, so the member gets no response.
	stalled := p.Break(lab.CommitPut, 1, lab.Hold)
	end := s.stream(200)
	const stuck = "Partition 0 lag consistently increasing"
	m.awaitUnready(stuck)
	m.awaitUnready("commit overdue: table " + s.name)
	for _, msg := range []string{"Consumer UNHEALTHY", "Readiness check FAILED"} {
		said := m.said(msg)
		if last := said[len(said)-1]; last.Level != "WARN" || !strings.HasPrefix(last.Reason, stuck) {
			t.Errorf("%s: %+v", msg, said)
		}
	}
	stalled.Release(true)
	m.awaitHealthy()
	end()
	s.awaitRows(s.ledger.Len())
	if said, over := m.said("Consumer UNHEALTHY"), m.said("Consumer healthy again"); len(over) != len(said) || over[0].Level != "INFO" {
		t.Errorf("UNHEALTHY lines %+v, lines of recovery %+v", said, over)
	}
	m.drain()
	s.check("--readers", "deltalake")
}

// TestBackpressure gives a member hardly any CPU time. The member must stop enqueueing before more than 10 000 records
// are queued, continue at 5 000 or fewer, and log both. Then one key has too many records, which must slow only the
// partition of that key.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	m := s.start(oftenLooks)
	m.awaitReady()
	// A member with a backlog runs for 20 ms of each second, as under a CPU quota.
	s.await("the member logs the pause", func() (bool, error) {
		m.freeze()
		s.backlogOf(4, 50_000)
		for range 8 {
			m.thaw()
			time.Sleep(20 * time.Millisecond)
			m.freeze()
			time.Sleep(1100 * time.Millisecond)
		}
		m.thaw()
		return len(m.saidOfQueue("BACKPRESSURE: PAUSED")) > 0, nil
	})
	s.await("the member logs the end of the pause", func() (bool, error) { return len(m.saidOfQueue("BACKPRESSURE: RESUMED")) > 0, nil })
	for _, l := range m.saidOfQueue("BACKPRESSURE: PAUSED") {
		if l.Level != "WARN" || l.PauseAt != 10_000 || l.ResumeAt != 5_000 || l.Queued <= 5_000 || l.Queued > 10_000 {
			t.Errorf("%+v", l)
		}
	}
	for _, l := range m.saidOfQueue("BACKPRESSURE: RESUMED") {
		if l.Level != "INFO" || l.Queued > 5_000 {
			t.Errorf("%+v", l)
		}
	}
	s.awaitRows(s.produced)
	if m.metric("sluice_backpressure_started_total") != m.metric("sluice_backpressure_ended_total") {
		t.Errorf("paused %v times, resumed %v times", m.metric("sluice_backpressure_started_total"), m.metric("sluice_backpressure_ended_total"))
	}
	m.drain()

	// One key has all records of partition 0, and only one record of a key may be queued. The other partitions have a
	// few records.
	before := tablelog.Positions(s.commits())
	hot := s.toPartition(0, 300_000, "customer-123")
	m = s.start(oftenLooks, func(c *settings) { c.patient += "\nqueue: {per_key: 1}" })
	m.awaitHolding(hot)
	for id := range int32(3) {
		s.toPartition(id+1, 1000, "")
	}
	began := time.Now()
	s.await("the other partitions are current", func() (bool, error) {
		now := tablelog.Positions(s.commits())
		return now[1] >= before[1]+1000 && now[2] >= before[2]+1000 && now[3] >= before[3]+1000, nil
	})
	if at := tablelog.Positions(s.commits())[0]; at >= hot {
		t.Errorf("the hot partition was as fast as the others: position %d", at)
	}
	t.Logf("the other partitions were current after %v", time.Since(began).Round(time.Millisecond))
	for range 20 { // only the partition with the frequent key has records left
		if queued := m.metric("sluice_queued_records"); queued > 1 {
			t.Errorf("%v records of one key are queued", queued)
		}
	}
	s.awaitRows(s.produced)
	t.Logf("the hot partition after %v", time.Since(began).Round(time.Millisecond))
	m.drain()
	s.wants(0, "verify", "--kafka")
}

// saidOfQueue returns the lines with the message msg about backpressure whose cause is the queue. It leaves out lines
// about slow commits, which cause backpressure on a busy machine.
func (m *member) saidOfQueue(msg string) []lagLine {
	m.s.t.Helper()
	return slices.DeleteFunc(m.said(msg), func(l lagLine) bool { return l.Cause != "queue" })
}

// awaitHolding waits until a member has read at least one record of the hot partition. It fails the test if the member
// has then read end records or more, because backpressure must stop it before.
func (m *member) awaitHolding(end int64) {
	m.s.t.Helper()
	m.await("it has joined", func(r report) bool { return r.Joined })
	m.s.await("the member reads the hot partition", func() (bool, error) {
		read, _ := m.sum("sluice_records_read_total")
		return read > 0, nil
	})
	if read := m.metric("sluice_records_read_total"); int64(read) >= end {
		m.s.t.Errorf("the member has read all %v records at once", read)
	}
}

// toPartition produces n records to a partition, all with the same key, or each with a different one if key is "". It
// returns the end offset of the partition.
func (s *scene) toPartition(id int32, n int64, key string) (end int64) {
	s.t.Helper()
	client := s.client()
	for n > 0 {
		var recs []*kgo.Record
		for ; n > 0 && len(recs) < 10_000; n-- {
			r := s.orders.Record(s.produced)
			s.produced++
			if key != "" { // records with the same key are short, which is faster to produce
				r.Key, r.Value = []byte(key), fmt.Appendf(nil, `{"order_id":"hot-%d"}`, n)
			}
			recs = append(recs, &kgo.Record{Topic: s.name, Partition: id, Key: r.Key, Value: r.Value})
		}
		results := client.ProduceSync(s.ctx, recs...)
		if err := results.FirstErr(); err != nil {
			s.t.Fatal(err)
		}
		end = results[len(results)-1].Record.Offset + 1
	}
	return end
}
