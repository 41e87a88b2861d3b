//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/reliability/deadletter"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// lettered is a setting that makes the bad records of the scene's topic dead letters. keys are the keys below
// dead_letters.
func lettered(keys string) setting {
	return func(c *settings) { c.own = "bad_records: dead_letter, dead_letters: {" + keys + "}" }
}

// place is the partition and offset of a record.
type place struct {
	partition int32
	offset    int64
}

// franz returns a client of franz-go, which is independent of the connector's own client.
func (s *scene) franz(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

// ruin produces n records that cannot become rows under any configuration, spread over the partitions, and returns
// them.
func (s *scene) ruin(n, partitions int) map[place]deadletter.Record {
	s.t.Helper()
	client := s.franz()
	defer client.Close()
	all := map[place]deadletter.Record{}
	for i := range n {
		r, err := client.ProduceSync(s.ctx, &kgo.Record{
			Topic: s.name, Partition: int32(i % partitions), Key: []byte{0xff, byte(i)}, Value: fmt.Appendf(nil, "no JSON at all: %d\x00\xff%s", i, strings.Repeat("x", i%4*1000)),
			Headers: []kgo.RecordHeader{{Key: "sluice.version", Value: []byte("1.0")}, {Key: "n", Value: fmt.Append(nil, i)}, {Key: "null"}},
		}).First()
		if err != nil {
			s.t.Fatal(err)
		}
		all[place{r.Partition, r.Offset}] = asRecord(r)
	}
	return all
}

func asRecord(k *kgo.Record) deadletter.Record {
	r := deadletter.Record{Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, deadletter.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// lettersIn reads the dead-letter topic. It returns the original records by partition and offset, and the number of
// dead letters, in which a repeated one counts each time.
func (s *scene) lettersIn(topic string) (records map[place]deadletter.Record, n int) {
	s.t.Helper()
	admin := kadm.NewClient(s.franz())
	ends, err := admin.ListEndOffsets(s.ctx, topic)
	if err != nil {
		s.t.Fatal(err)
	}
	left := 0
	ends.Each(func(o kadm.ListedOffset) { left += int(o.Offset) })
	client := s.franz(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	records = map[place]deadletter.Record{}
	for n < left {
		fetches := client.PollFetches(s.ctx)
		if err := fetches.Err(); err != nil {
			s.t.Fatal(err)
		}
		fetches.EachRecord(func(k *kgo.Record) {
			n++
			l, err := deadletter.Parse(asRecord(k))
			if err != nil {
				s.t.Errorf("%s:%d@%d: %v", topic, k.Partition, k.Offset, err)
				return
			}
			if l.Link.Key != "" {
				l = s.whole(l)
			}
			at := place{l.Source.ID, l.Source.Offset}
			r := deadletter.Record{Timestamp: l.Timestamp, Key: l.Key, Value: l.Value, Headers: l.Headers}
			if before, twice := records[at]; twice && !cmp.Equal(before, r) {
				s.t.Errorf("two dead letters of %v differ", at)
			}
			records[at] = r
		})
	}
	return records, n
}

// whole returns a copy of the dead letter l. If l links an object, the copy has the value and the headers from that
// object.
func (s *scene) whole(l deadletter.Letter) deadletter.Letter {
	s.t.Helper()
	object, err := s.bucket.Get(s.ctx, s.name+"/"+l.Link.Key)
	if err == nil {
		l, err = deadletter.Whole(l, object)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// lettersAre expects the dead-letter topic to have exactly the original records in want, byte for byte. It returns the
// number of dead letters, in which a repeated one counts each time.
func (s *scene) lettersAre(topic string, want map[place]deadletter.Record) int {
	s.t.Helper()
	got, n := s.lettersIn(topic)
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		s.t.Errorf("dead letters (-want +got):\n%s", d)
	}
	return n
}

// nothingPasses fails the test if a position has passed a bad record.
func (s *scene) nothingPasses(bad map[place]deadletter.Record) {
	s.t.Helper()
	positions := tablelog.Positions(s.commits())
	for at := range bad {
		if positions[at.partition] > at.offset {
			s.t.Errorf("position %d of partition %d has passed the bad record at %d", positions[at.partition], at.partition, at.offset)
		}
	}
}

// awaitLetterHold waits until a claim is held because dead letters cannot be written, with a detail that contains
// words.
func (m *member) awaitLetterHold(words string) {
	m.s.t.Helper()
	m.await("dead_letters_unavailable: "+words, func(r report) bool {
		for _, h := range r.Holds {
			if h.Reason == "dead_letters_unavailable" && strings.Contains(h.Detail, words) {
				return true
			}
		}
		return false
	})
}

// TestLettersWaitForTheirTopic has a dead-letter topic that is missing, accepts only tiny records, or refuses writes.
// The table must be held without a skipped record, and continue by itself once the topic is fixed. The three cases wait
// together, since a hold is checked each minute.
func TestLettersWaitForTheirTopic(t *testing.T) {
	t.Parallel()
	all := []*stalled{missingLetters(t), tinyLetters(t), deniedLetters(t)}
	for _, w := range all {
		w.produce(2000)
		w.m = w.start(w.change...)
		w.awaitRows(2000)
		w.bad = w.ruin(30, 3)
		w.produce(2000)
		w.m.awaitLetterHold(w.detail)
		w.nothingPasses(w.bad)
	}
	for _, w := range all {
		w.fix()
	}
	for _, w := range all {
		w.awaitRows(4000)
		for at := range w.bad {
			w.awaitPosition(at.partition, at.offset+1)
		}
		w.m.drain()
		w.lettersAre(w.name+"-dlq", w.bad)
		w.check()
	}
}

// stalled is a scene whose dead letters cannot be written until its function fix is called.
type stalled struct {
	*scene
	detail string // part of the detail of the hold
	change []setting
	fix    func()

	m   *member
	bad map[place]deadletter.Record
}

// named adds a part to a scene's name, because newSceneAt gives all scenes of a test the same name.
func named(s *scene, name string) *scene {
	s.t.Helper()
	s.name += "-" + name
	var err error
	if s.dir, err = folder(s.name); err != nil {
		s.t.Fatal(err)
	}
	s.log = &tablelog.Log{Store: s.bucket, Table: s.name + "/" + s.name}
	s.ledger = s.newLedger("ledger.csv")
	return s
}

func missingLetters(t *testing.T) *stalled {
	t.Helper()
	s := named(newSceneAt(t, shared.kafka.Addr), "missing")
	s.make(shared.kafka, s.name, 3, nil)
	return &stalled{scene: s, detail: "does not exist", change: []setting{lettered("create: false")}, fix: func() {
		s.make(shared.kafka, s.name+"-dlq", 2, nil)
	}}
}

func tinyLetters(t *testing.T) *stalled {
	t.Helper()
	s := named(newSceneAt(t, shared.kafka.Addr), "tiny")
	s.make(shared.kafka, s.name, 3, nil)
	s.make(shared.kafka, s.name+"-dlq", 2, map[string]string{"max.message.bytes": "500"})
	return &stalled{scene: s, detail: "raise its max.message.bytes", change: []setting{lettered("create: false")}, fix: func() {
		limit := "2200" // room for a dead letter that links its record, but not for one that contains a large record
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}
		if _, err := kadm.NewClient(s.franz()).AlterTopicConfigs(s.ctx, change, s.name+"-dlq"); err != nil {
			t.Fatal(err)
		}
	}}
}

func deniedLetters(t *testing.T) *stalled {
	t.Helper()
	dir, err := folder("denied")
	if err != nil {
		t.Fatal(err)
	}
	k, err := lab.StartKafka(t.Context(), lab.KafkaOptions{
		Dir: dir, Scram: []string{"SCRAM-SHA-256=[name=sluice,password=secret]"},
		Listeners: []lab.Listener{{Name: "SASL", Protocol: "SASL_PLAINTEXT", Settings: map[string]string{
			"sasl.enabled.mechanisms":        "SCRAM-SHA-256",
			"scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		}}},
		Settings: []string{
			"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users=User:ANONYMOUS", "allow.everyone.if.no.acl.found=true",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := named(newSceneAt(t, k.Addr), "denied")
	s.make(k, s.name, 3, nil)
	s.make(k, s.name+"-dlq", 3, nil)
	admin := kadm.NewClient(s.franz())
	refused := kadm.NewACLs().Topics(s.name + "-dlq").Deny("User:sluice").DenyHosts("*").Operations(kadm.OpWrite).
		ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := admin.CreateACLs(s.ctx, refused); err != nil {
		t.Fatal(err)
	}
	as := func(c *settings) {
		c.brokers, c.sasl = k.Addrs["SASL"], "mechanism: scram-sha-256, username: sluice, password: secret"
	}
	return &stalled{scene: s, detail: "grant Write", change: []setting{lettered(""), as}, fix: func() {
		if _, err := admin.DeleteACLs(s.ctx, refused); err != nil {
			t.Fatal(err)
		}
	}}
}

// make creates a topic.
func (s *scene) make(k *lab.Kafka, topic string, partitions int32, configs map[string]string) {
	s.t.Helper()
	if err := k.CreateTopic(s.ctx, topic, partitions, configs); err != nil {
		s.t.Fatal(err)
	}
}

// testLettersWaitForABroker kills the broker that leads the dead-letter topic. No bad record may be skipped, and the
// member must continue by itself once the broker is back.
func testLettersWaitForABroker(t *testing.T, c *lab.KafkaCluster) {
	t.Helper()
	s := newSceneOn(t, c, 3)
	if err := c.CreateTopic(s.ctx, s.name+"-dlq", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Place(s.ctx, s.name+"-dlq", 0, 3); err != nil {
		t.Fatal(err)
	}
	s.produce(2000)
	m := s.start(lettered(""))
	s.awaitRows(2000)
	bad := s.ruin(3, 3)
	for at := range bad {
		s.awaitPosition(at.partition, at.offset+1)
	}
	if err := c.Broker(3).Kill(); err != nil {
		t.Fatal(err)
	}
	more := s.ruin(30, 3)
	s.produce(2000)
	m.awaitLetterHold("")
	s.nothingPasses(more)
	if err := c.Broker(3).Start(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.awaitRows(4000)
	for at := range more {
		s.awaitPosition(at.partition, at.offset+1)
	}
	m.drain()
	maps.Copy(bad, more)
	s.lettersAre(s.name+"-dlq", bad)
	s.check()
}
