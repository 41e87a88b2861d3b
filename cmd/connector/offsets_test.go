package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/idempotency"
	"sluice/internal/admin"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
)

// broker is a Kafka broker in this process with a topic orders of two partitions, and five records in each.
type broker struct {
	t         *testing.T
	addresses []string
	client    *kgo.Client
	topic     connector.Topic
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"), kfake.SeedTopics(1, "other"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b := &broker{t: t, addresses: cluster.ListenAddrs()}
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(b.addresses...), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.client.Close)
	for i := range 10 {
		r := &kgo.Record{Topic: "orders", Partition: int32(i % 2), Value: []byte(`{"n":1}`)}
		if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	client, err := kafka.NewClient(kafka.Config{Brokers: b.addresses})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if b.topic, err = client.Topic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	b.commit("other", 0, 0) // unlike Kafka, this broker denies requests about a group that does not exist
	return b
}

// commit sets the group's offset of a partition.
func (b *broker) commit(topic string, id int32, next int64) {
	b.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, id, next, -1)
	if err := kadm.NewClient(b.client).CommitAllOffsets(b.t.Context(), "p", offsets); err != nil {
		b.t.Fatal(err)
	}
}

// shown runs offsets show and returns its exit code and JSON.
func shown(t *testing.T, w *written) (code int, lines []admin.Position) {
	t.Helper()
	code, out, errs := connectorRun(t, "offsets", "show", "--config", w.config, "-o", "json")
	if err := json.Unmarshal([]byte(out), &lines); err != nil || errs != "" {
		t.Fatalf("exit code %d: %v\n%s%s", code, err, out, errs)
	}
	return code, lines
}

func TestOffsetsShow(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...)

	t.Run("before the first start", func(t *testing.T) {
		code, got := shown(t, w)
		want := []admin.Position{
			{Topic: "orders", Partition: 0, LogStart: new(int64(0)), End: new(int64(5))},
			{Topic: "orders", Partition: 1, LogStart: new(int64(0)), End: new(int64(5))},
		}
		if d := cmp.Diff(want, got); d != "" || code != 0 {
			t.Errorf("exit code %d (-want +got):\n%s", code, d)
		}
	})

	w.create().append(0, 0, 3, 3, 0, 1, 2)
	b.commit("orders", 0, 2) // a committed offset that is smaller than the position is not a problem
	t.Run("at work", func(t *testing.T) {
		code, got := shown(t, w)
		want := []admin.Position{
			{Topic: "orders", Partition: 0, Position: new(int64(3)), Group: new(int64(2)), LogStart: new(int64(0)), End: new(int64(5)), Lag: new(int64(2))},
			{Topic: "orders", Partition: 1, Position: new(int64(0)), LogStart: new(int64(0)), End: new(int64(5)), Lag: new(int64(5))},
		}
		if d := cmp.Diff(want, got); d != "" || code != 0 {
			t.Errorf("exit code %d (-want +got):\n%s", code, d)
		}
		expect(t, 0, "PARTITION  POSITION  COMMITTED  LOG START  LAST STABLE  LAG  HOLD\n"+
			"orders:0   3         2          0          5            2    -\n"+
			"orders:1   0         -          0          5            5    -\n", "", "offsets", "show", "--config", w.config)
	})

	t.Run("a schema that does not fit the table", func(t *testing.T) {
		other := *w
		other.config = write(t, strings.ReplaceAll(read(t, w.config), "n int", "n string"))
		code, got := shown(t, &other)
		if code != 1 || got[0].Hold == nil || got[0].Hold.Reason != hold.SchemaConflict {
			t.Errorf("exit code %d %+v", code, got)
		}
	})
}

// TestOffsetsShowHolds expects offsets show to find the holds that the table and Kafka show without a member.
func TestOffsetsShowHolds(t *testing.T) {
	b := newBroker(t)
	b.commit("orders", 1, 4)

	t.Run("a group offset and no table", func(t *testing.T) {
		w := newTable(t, b.topic, b.addresses...)
		code, got := shown(t, w)
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
		for _, l := range got {
			if l.Hold == nil || l.Hold.Reason != hold.UnknownHistory || l.Hold.EndsBy != hold.UnknownHistory.EndsBy() {
				t.Errorf("%+v", l)
			}
		}
		expect(t, 1, "unknown_history: the table has no position for topic \"orders\", but the group has offsets for 1 of its partitions: "+
			"the table does not exist or is empty, so its folder was deleted, or another program has used the group\n"+
			"  ends by: an operator: ", "", "offsets", "show", "--config", w.config)
	})
	t.Run("another cluster", func(t *testing.T) {
		elsewhere := b.topic
		elsewhere.Cluster = "another"
		w := newTable(t, elsewhere, b.addresses...).create()
		if code, got := shown(t, w); code != 1 || got[1].Hold == nil || got[1].Hold.Reason != hold.ClusterChanged {
			t.Errorf("exit code %d %+v", code, got)
		}
	})
	t.Run("no topic", func(t *testing.T) {
		w := newTable(t, b.topic, b.addresses...).create()
		w.append(0, 0, 3, 3, 0, 1, 2)
		if _, err := kadm.NewClient(b.client).DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		code, got := shown(t, w)
		if code != 1 || len(got) != 2 || *got[0].Position != 3 || got[0].Hold == nil || got[0].Hold.Reason != hold.TopicMissing {
			t.Errorf("exit code %d %+v", code, got)
		}
	})
}

// TestOffsetsShow_RowsWithoutPosition expects a table with rows but without positions not to count as new: offsets show
// must show a hold for each partition.
func TestOffsetsShow_RowsWithoutPosition(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...).create()
	w.append(0, 0, 3, 3, 0, 1, 2)
	s, err := deltalog.Load(t.Context(), w.store)
	if err != nil {
		t.Fatal(err)
	}
	left := *s
	left.Txns = nil
	if _, err := deltalog.WriteCheckpoint(t.Context(), w.store, &left, time.Now(), ""); err != nil {
		t.Fatal(err)
	}
	code, got := shown(t, w)
	if code != 1 || len(got) != 2 {
		t.Fatalf("exit code %d %+v", code, got)
	}
	for _, l := range got {
		if l.Hold == nil || l.Hold.Reason != hold.UnknownHistory || !strings.Contains(l.Hold.Detail, `the table has rows of topic "orders" and no position for it`) {
			t.Errorf("%+v", l.Hold)
		}
	}
	// The command in the detail of the hold sets the positions.
	code, _, errs := connectorRun(t, "offsets", "start", "orders", "--at", "latest", "--config", w.config, "--yes", "--operator", "ada", "--reason", "a test")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if code, got := shown(t, w); code != 0 || *got[0].Position != 5 {
		t.Errorf("exit code %d %+v", code, got)
	}
}

// TestOffsetsShow_RowsWithoutPosition_BesidePositions has two partitions with rows and drops the txn of one of them.
// offsets show must show that partition as held because of its rows, and offsets start --at position must leave it out.
func TestOffsetsShow_RowsWithoutPosition_BesidePositions(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...).create()
	w.append(0, 0, 3, 3, 0, 1, 2)
	w.append(1, 0, 2, 2, 0, 1)
	s, err := deltalog.Load(t.Context(), w.store)
	if err != nil {
		t.Fatal(err)
	}
	left := *s
	left.Txns = maps.Clone(s.Txns)
	delete(left.Txns, w.partition(1).AppID("p"))
	delete(left.Txns, idempotency.TableAppID("p", w.at.TableID)) // the pipeline's mark is as old as the txn of the partition, so it expires, too
	if _, err := deltalog.WriteCheckpoint(t.Context(), w.store, &left, time.Now(), ""); err != nil {
		t.Fatal(err)
	}
	if code, got := shown(t, w); code != 1 || len(got) != 2 || got[0].Hold == nil || got[0].Hold.Reason != hold.TableReplaced {
		t.Fatalf("exit code %d %+v", code, got)
	}
	flags := []string{"--config", w.config, "--yes", "--operator", "ada", "--reason", "a test"}
	code, out, errs := connectorRun(t, slices.Concat([]string{"offsets", "start", "orders", "--at", "position"}, flags)...)
	if code != 0 || !strings.Contains(out+errs, "orders:1 has no position that could stay, and the table has rows of it") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, got := shown(t, w)
	if code != 1 || got[0].Hold != nil || got[1].Hold == nil || got[1].Hold.Reason != hold.UnknownHistory ||
		!strings.Contains(got[1].Hold.Detail, `the table has rows of partition 1 of topic "orders" and no position for it`) {
		t.Fatalf("exit code %d %+v", code, got)
	}
	if code, _, errs := connectorRun(t, slices.Concat([]string{"offsets", "set", "orders:1", "2"}, flags)...); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, got := shown(t, w); code != 0 || *got[1].Position != 2 {
		t.Errorf("exit code %d %+v", code, got)
	}
}

func TestOffsetsShowWithoutKafka(t *testing.T) {
	w := newTable(t, noTopic).create()
	expect(t, 3, "", "connector: kafka: ", "offsets", "show", "--config", w.config, "--timeout", "300ms")
}

// TestOffsets_PartitionWithoutLeader expects offsets show and holds to show the other partitions, and to name the one
// that has no leader. Commands that move positions must be refused meanwhile.
func TestOffsets_PartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	l.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
	out, _ := l.runs(1, "offsets", "show")
	for _, want := range []string{`(?m)^orders:0 +5 +5 +0 +5 +0`, `(?m)^orders:1 +5 .*kafka_down`, "LEADER_NOT_AVAILABLE|Leader Not Available"} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if held := l.holds(1); len(held) != 1 || !strings.HasPrefix(held[0], "orders:1 kafka_down at 5") {
		t.Errorf("holds: %v", held)
	}
	before := l.versions("orders")
	l.runs(3, "offsets", "set", "orders:0", "0", "--reason", "again", "--yes")
	if after := l.versions("orders"); after != before {
		t.Errorf("a position was moved: %d versions, before %d", after, before)
	}
}
