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

// oftenLooks lets a member look at its lag each second.
func oftenLooks(c *settings) { c.health = ", lag: {every: 1s}" }

// answers asks a probe and returns its status and body.
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

// awaitUnready waits until the readiness probe fails for a reason, and asks what else depends on it.
func (m *member) awaitUnready(reason string) {
	m.s.t.Helper()
	var last string
	defer func() {
		if m.s.t.Failed() {
			m.s.t.Logf("the last answer: %s", last)
		}
	}()
	m.s.await("it is not ready: "+reason, func() (bool, error) {
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

// awaitHealthy waits until the readiness probe passes again.
func (m *member) awaitHealthy() {
	m.s.t.Helper()
	m.s.await("it is ready again", func() (bool, error) {
		code, _ := m.answers("/health/ready")
		return code == 200, nil
	})
	if healthy := m.metric("kafka_consumer_healthy"); healthy != 1 {
		m.s.t.Errorf("kafka_consumer_healthy is %v", healthy)
	}
}

// lagLine is a line of the log about lag or backpressure.
type lagLine struct {
	Level    string
	Msg      string
	Reason   string
	Cause    string // of backpressure
	Queued   int64
	PauseAt  int64 `json:"pause_at"`
	ResumeAt int64 `json:"resume_at"`
}

// said returns the lines of the log with a message.
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

// TestLagMakesUnready: a pod that meets a burst with a slow sink is not ready, says why, and lives; it is ready again once it
// has caught up. So it is with one whose sink stalls while records come. No record is lost or doubled.
func TestLagMakesUnready(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	p := s.proxy()
	m := s.start(oftenLooks, through(p))
	s.produce(500)
	s.awaitRows(500)
	m.awaitHealthy()

	// A burst: all of it is read at once, and its first commit takes long.
	p.Slow(lab.CommitPut, 6*time.Second)
	s.produce(10_500)
	m.awaitUnready("Partition 0 lag (10500) exceeds maximum (10000)")
	p.Heal()
	m.awaitHealthy()
	s.awaitRows(s.ledger.Len())

	// Stuck: the commit's PUT gets no answer.
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
		t.Errorf("%+v, and over: %+v", said, over)
	}
	m.drain()
	s.check("--readers", "deltalake")
}

// TestBackpressure: a member that has hardly any processor stops taking records at 10 000 queued and continues at 5 000, and
// says so. A hot key stops its own partition only.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	m := s.start(oftenLooks)
	m.awaitReady()
	// It gets the processor for some milliseconds of each second, as behind a quota, with a backlog before it.
	s.await("it says that it paused", func() (bool, error) {
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
	s.await("it says that it goes on", func() (bool, error) { return len(m.saidOfQueue("BACKPRESSURE: RESUMED")) > 0, nil })
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

	// One key has all records of partition 0, and one record of a key may be queued. The others have some each.
	before := tablelog.Positions(s.commits())
	hot := s.toPartition(0, 300_000, "customer-123")
	m = s.start(oftenLooks, func(c *settings) { c.patient += "\nqueue: {per_key: 1}" })
	m.awaitHolding(hot)
	for id := range int32(3) {
		s.toPartition(id+1, 1000, "")
	}
	began := time.Now()
	s.await("the other partitions have everything", func() (bool, error) {
		now := tablelog.Positions(s.commits())
		return now[1] >= before[1]+1000 && now[2] >= before[2]+1000 && now[3] >= before[3]+1000, nil
	})
	if at := tablelog.Positions(s.commits())[0]; at >= hot {
		t.Errorf("the hot partition was as fast: it has everything up to %d", at)
	}
	t.Logf("the others had everything after %v", time.Since(began).Round(time.Millisecond))
	for range 20 { // the hot partition is alone now
		if queued := m.metric("sluice_queued_records"); queued > 1 {
			t.Errorf("%v records of one key are queued", queued)
		}
	}
	s.awaitRows(s.produced)
	t.Logf("the hot partition after %v", time.Since(began).Round(time.Millisecond))
	m.drain()
	s.wants(0, "verify", "--kafka")
}

// saidOfQueue returns the lines of pauses since too many records were queued. A machine that is busy makes some for a commit
// that takes long, too.
func (m *member) saidOfQueue(msg string) []lagLine {
	m.s.t.Helper()
	return slices.DeleteFunc(m.said(msg), func(l lagLine) bool { return l.Cause != "queue" })
}

// awaitHolding waits until a member has read some of partition 0, whose records end at end, and not all.
func (m *member) awaitHolding(end int64) {
	m.s.t.Helper()
	m.await("it is a member", func(r report) bool { return r.Joined })
	m.s.await("it reads the hot partition", func() (bool, error) {
		read, _ := m.sum("sluice_records_read_total")
		return read > 0, nil
	})
	if read := m.metric("sluice_records_read_total"); int64(read) >= end {
		m.s.t.Errorf("it has read %v records at once", read)
	}
}

// toPartition produces n records to a partition, all with one key, or with their own if it is "". It returns the end.
func (s *scene) toPartition(id int32, n int64, key string) (end int64) {
	s.t.Helper()
	client := s.client()
	for n > 0 {
		var recs []*kgo.Record
		for ; n > 0 && len(recs) < 10_000; n-- {
			r := s.orders.Record(s.produced)
			s.produced++
			if key != "" { // short ones, as fast as they can be
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
