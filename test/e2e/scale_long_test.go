//go:build lab && long && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// In this test a member reads scaleTopics topics, nearly all by a pattern, with scalePartitions partitions each.
const (
	scaleTopics     = 1000
	scalePartitions = 4
	scaleRound      = 2 // records of each partition in a round
	scaleLasts      = 30 * time.Minute
	// scaleLimit is the memory.limit, large enough for all tables. scaleResident is the most resident memory that a
	// member may take: 15 % above the limit.
	scaleLimit    = "512MiB"
	scaleResident = 589 << 20
	// scaleVerified is the number of topics for which each record is compared with its row.
	scaleVerified = 50
)

// scale is a pipeline of many topics and tables with its own broker.
type scale struct {
	*scene
	topics []string
	client *kgo.Client
	rounds int64 // how many rounds of records were produced
}

// TestScale moves 1 000 topics with 4 000 partitions into 1 000 tables: first with `run --until-current`, then with a
// member that stays. Each record must be one row, and the processes must keep within scaleResident. E2E_SCALE names a
// file that receives the figures.
func TestScale(t *testing.T) {
	broker, err := lab.StartKafka(t.Context(), lab.KafkaOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Stop() })
	s := &scale{scene: newSceneAt(t, broker.Addr)}
	s.createTopics()
	var figures strings.Builder
	figures.WriteString("| 1 000 topics, 4 000 partitions, 1 000 tables | seconds | CPU, s | peak RSS, MiB |\n|---|---|---|---|\n")
	s.produceRound()
	s.untilCurrent(&figures)
	s.check()
	s.stays(&figures)
	s.check()
	s.verify()
	t.Logf("memory.limit %s\n%s", scaleLimit, &figures)
	if path := os.Getenv("E2E_SCALE"); path != "" {
		if err := os.WriteFile(path, []byte(figures.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func (s *scale) createTopics() {
	s.t.Helper()
	s.topics = append(s.topics, s.name)
	for i := range scaleTopics - 1 {
		s.topics = append(s.topics, fmt.Sprintf("%s.%03d", s.name, i))
	}
	var err error
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1)); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.client.Close)
	admin := kadm.NewClient(s.client)
	for from := 0; from < len(s.topics); from += 50 {
		made, err := admin.CreateTopics(s.ctx, scalePartitions, 1, nil, s.topics[from:from+50]...)
		if err == nil {
			err = made.Error()
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// produceRound produces scaleRound records to each partition.
func (s *scale) produceRound() {
	s.t.Helper()
	var records []*kgo.Record
	for _, topic := range s.topics {
		for p := range int32(scalePartitions) {
			for range scaleRound {
				r := gen.Orders{Seed: s.orders.Seed, Span: s.orders.Span}.Record(s.produced)
				s.produced++
				records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Time)})
			}
		}
	}
	if err := s.client.ProduceSync(s.ctx, records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	s.rounds++
}

// wide is a setting that makes a member read all topics of the test, with scaleLimit as memory.limit.
func (s *scale) wide(c *settings) {
	c.memory, c.commit = scaleLimit, "{every: 10s}"
	c.more = fmt.Sprintf(`, many: {pattern: '%s\..+', deny: []}`, s.name)
}

// untilCurrent runs a member until all partitions are current.
func (s *scale) untilCurrent(figures *strings.Builder) {
	s.t.Helper()
	path, _ := s.config(s.wide)
	began := time.Now()
	p, err := lab.StartProcess("until-current", filepath.Join(s.dir, "until-current.log"), environment(), shared.binary, "run", "--until-current", "--config", path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Kill() })
	peak, _ := s.watch(s.ctx, p, scaleLasts)
	if code := p.ExitCode(); code != 0 {
		s.t.Fatalf("exit code %d: %s", code, p.Tail())
	}
	s.bounded(peak)
	user, system := p.Usage()
	_, _ = fmt.Fprintf(figures, "| run --until-current | %.1f | %.1f | %d |\n", time.Since(began).Seconds(), (user + system).Seconds(), peak>>20)
}

func (s *scale) bounded(peak int64) {
	s.t.Helper()
	if peak > scaleResident && bounded() {
		s.t.Errorf("%d MiB resident, the limit and 15 %% are %d", peak>>20, scaleResident>>20)
	}
}

// stays starts a member and records its figures until it is current, for a round of records, for a minute without
// records, and for its drain.
func (s *scale) stays(figures *strings.Builder) {
	s.t.Helper()
	m := s.start(s.wide)
	row := func(what string, began time.Time, cpu float64) {
		_, peak, err := m.Resident()
		if err != nil {
			s.t.Fatalf("%v: %s", err, m.Tail())
		}
		s.bounded(peak)
		_, _ = fmt.Fprintf(figures, "| %s | %.1f | %.1f | %d |\n", what, time.Since(began).Seconds(), m.metric("process_cpu_seconds_total")-cpu, peak>>20)
	}
	began := time.Now()
	s.awaitCurrent(m)
	row("start, until all positions are known", began, 0)

	began, cpu := time.Now(), m.metric("process_cpu_seconds_total")
	s.produceRound()
	s.awaitCurrent(m)
	row("8 000 records, until all are rows", began, cpu)

	began, cpu = time.Now(), m.metric("process_cpu_seconds_total")
	time.Sleep(time.Minute) // no records arrive in this time, so the figures are those of an idle member
	row("a minute without records", began, cpu)

	s.produceRound() // these records are in flight at the signal
	began = time.Now()
	if err := m.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	peak, _ := s.watch(s.ctx, m.Process, scaleLasts)
	if code := m.ExitCode(); code != 0 {
		s.t.Errorf("exit code %d: %s", code, m.Tail())
	}
	_, _ = fmt.Fprintf(figures, "| drain, with 8 000 records on their way | %.1f | | %d |\n", time.Since(began).Seconds(), peak>>20)
	s.untilCurrent(figures) // moves the records that the drain left
}

// awaitCurrent waits until the member has all partitions and the position of each is the end of its log.
func (s *scale) awaitCurrent(m *member) {
	s.t.Helper()
	end := time.Now().Add(scaleLasts)
	for {
		var r struct {
			Ready      bool
			Partitions []struct{ Position *int64 }
		}
		behind := 0
		if resp, err := m.get("/health"); err == nil {
			err = json.NewDecoder(resp.Body).Decode(&r)
			_ = resp.Body.Close()
			if err != nil {
				s.t.Fatal(err)
			}
		} else if !m.Running() {
			s.t.Fatal(err)
		}
		for _, p := range r.Partitions {
			if p.Position == nil || *p.Position < s.rounds*scaleRound {
				behind++
			}
		}
		if r.Ready && len(r.Partitions) == scaleTopics*scalePartitions && behind == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d partitions are behind after %v: %s", behind, len(r.Partitions), scaleLasts, m.Tail())
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// verify compares the rows of some tables with the records in Kafka, offset by offset.
func (s *scale) verify() {
	s.t.Helper()
	path, _ := s.config(s.wide)
	for _, topic := range s.topics[len(s.topics)-scaleVerified:] {
		p, err := lab.StartProcess("verify", filepath.Join(s.dir, "verify.log"), environment(), shared.binary, "verify", "--kafka", "--topic", topic, "--config", path)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = p.Kill() })
		if code := p.ExitCode(); code != 0 {
			s.t.Fatalf("verify: exit code %d: %s", code, p.Tail())
		}
	}
}

// check compares each table with the produced records, without code of the connector: one row for each record, and
// positions at the ends of the topic.
func (s *scale) check() {
	s.t.Helper()
	for _, topic := range s.topics {
		log := tablelog.Log{Store: s.bucket, Table: s.name + "/" + topic}
		commits, err := log.Read(s.ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		if rows := tablelog.Rows(commits); rows != s.rounds*scaleRound*scalePartitions {
			s.t.Errorf("%s has %d rows, want %d", topic, rows, s.rounds*scaleRound*scalePartitions)
		}
		positions := tablelog.Positions(commits)
		if len(positions) != scalePartitions {
			s.t.Errorf("%s has the positions %v, want %d", topic, positions, scalePartitions)
		}
		for p, next := range positions {
			if next != s.rounds*scaleRound {
				s.t.Errorf("%s:%d has position %d, want %d", topic, p, next, s.rounds*scaleRound)
			}
		}
	}
}
