package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// lake is a broker in this process, a directory for tables, and a config.yaml for both.
type lake struct {
	t      *testing.T
	broker *kfake.Cluster
	client *kgo.Client
	admin  *kadm.Client
	dir    string
	config string
	store  objstore.Store
	logger *slog.Logger // of what start runs
}

// newLake returns a lake without topics and tables. sections are what config.yaml says besides, topics at least.
func newLake(t *testing.T, sections string) *lake {
	t.Helper()
	return newLakeOn(t, sections, "", nil)
}

// newLakeOn is newLake with more said about the broker, to our clients and in the section kafka.
func newLakeOn(t *testing.T, sections, section string, producer []kgo.Opt, broker ...kfake.Opt) *lake {
	t.Helper()
	cluster, err := kfake.NewCluster(append(broker, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	l := &lake{t: t, broker: cluster, dir: t.TempDir(), logger: slog.New(slog.DiscardHandler)}
	l.client, err = kgo.NewClient(append(producer, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite())...) // so that it may forget a topic
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.client.Close)
	l.admin = kadm.NewClient(l.client)
	l.config = filepath.Join(l.dir, "config.yaml")
	text := fmt.Sprintf("pipeline: p\nkafka: {brokers: [%s], session: 10s%s}\nstorage: {url: \"file://%s/lake\"}\nhealth: {enabled: false}\n%s",
		strings.Join(cluster.ListenAddrs(), ", "), section, filepath.ToSlash(l.dir), sections)
	if !strings.Contains(sections, "defaults:") {
		text += "\ndefaults: {schema: \"n int\", commit: {every: 100ms}, bad_records: hold}"
	}
	if err := os.WriteFile(l.config, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	local, err := objstore.NewLocal(t.Context(), filepath.Join(l.dir, "lake"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close() })
	l.store = local
	return l
}

// create creates a topic.
func (l *lake) create(topic string, partitions int32) {
	l.t.Helper()
	if _, err := l.admin.CreateTopic(l.t.Context(), partitions, 1, nil, topic); err != nil {
		l.t.Fatal(err)
	}
}

// produce produces n records to each of the partitions.
func (l *lake) produce(topic string, n int, partitions ...int32) {
	l.t.Helper()
	l.client.PurgeTopicsFromProducing(topic) // it may have been created anew, and the client would keep to the old one
	var records []*kgo.Record
	for _, id := range partitions {
		for range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: id, Value: []byte(`{"n":1}`)})
		}
	}
	if err := l.client.ProduceSync(l.t.Context(), records...).FirstErr(); err != nil {
		l.t.Fatal(err)
	}
}

// rows returns the offsets of the rows of a table by topic and partition, ascending. Nothing if there is no table.
func (l *lake) rows(table string) map[string][]int64 {
	l.t.Helper()
	rows := map[string][]int64{}
	store := objstore.Sub(l.store, table)
	state, err := deltalog.Load(l.t.Context(), store)
	if err != nil {
		return rows
	}
	for f, err := range deltalog.Files(l.t.Context(), store, state) {
		if err != nil {
			l.t.Fatal(err)
		}
		for row, err := range delta.Offsets(l.t.Context(), store, f) {
			if err != nil {
				l.t.Fatal(err)
			}
			at := fmt.Sprintf("%s:%d", row.Topic, row.Partition)
			rows[at] = append(rows[at], row.Offset)
		}
	}
	for _, offsets := range rows {
		slices.Sort(offsets)
	}
	return rows
}

// upTo returns the offsets [0, n) for each of these partitions.
func upTo(n int64, partitions ...string) map[string][]int64 {
	rows := map[string][]int64{}
	for _, p := range partitions {
		for o := range n {
			rows[p] = append(rows[p], o)
		}
	}
	return rows
}

// has compares a table with the rows that it should have.
func (l *lake) has(table string, want map[string][]int64) {
	l.t.Helper()
	if d := cmp.Diff(want, l.rows(table)); d != "" {
		l.t.Errorf("table %s (-want +got):\n%s", table, d)
	}
}

// runs runs the program with this configuration and expects an exit code.
func (l *lake) runs(code int, args ...string) (stdout, stderr string) {
	l.t.Helper()
	got, out, errs := connectorRun(l.t, append(patient(code, args), "--config", l.config)...)
	if got != code {
		l.t.Errorf("%v: exit code %d, want %d\n%s\n%s", args, got, code, out, errs)
	}
	return out, errs
}

// patient gives a command time that is expected to get its answers: how long they take on a busy machine says nothing.
func patient(code int, args []string) []string {
	asks := args[0] == "check" || args[0] == "holds" && !slices.Contains(args, "recheck") || slices.Equal(args[:min(2, len(args))], []string{"offsets", "show"})
	if code != exitOK && code != exitFound || !asks || slices.Contains(args, "--timeout") {
		return args
	}
	return append(slices.Clone(args), "--timeout", "5m")
}

// partitionsOf asks for a topic as the product does.
func (l *lake) partitionsOf(name string) (connector.Topic, error) {
	client, err := kafka.NewClient(kafka.Config{Brokers: mustLoad(l.t, l.config, nil).Kafka.Brokers})
	if err != nil {
		return connector.Topic{}, err
	}
	defer client.Close()
	return client.Topic(l.t.Context(), name)
}

// append appends a version to a table's log, as another program would.
func (l *lake) append(table string, actions ...string) {
	l.t.Helper()
	store := objstore.Sub(l.store, table)
	state, err := deltalog.Load(l.t.Context(), store)
	if err != nil {
		l.t.Fatal(err)
	}
	body := strings.NewReader(strings.Join(actions, "\n") + "\n")
	if err := store.Put(l.t.Context(), deltalog.CommitKey(state.Version+1), body, objstore.IfAbsent); err != nil {
		l.t.Fatal(err)
	}
}

// replaceTable gives a table another id, as CREATE OR REPLACE TABLE does: its txns stay.
func (l *lake) replaceTable(table string) {
	l.t.Helper()
	store := objstore.Sub(l.store, table)
	state, err := deltalog.Load(l.t.Context(), store)
	if err != nil {
		l.t.Fatal(err)
	}
	m := state.Metadata
	m.ID = uuid.NewString()
	body, err := deltalog.Encode([]deltalog.Action{deltalog.CommitInfo{Operation: "REPLACE TABLE"}, m})
	if err != nil {
		l.t.Fatal(err)
	}
	l.append(table, strings.TrimSpace(string(body)))
}

// forge sets a position of topic orders without a word of explanation.
func (l *lake) forge(table string, id int32, next int64) {
	l.t.Helper()
	topic, err := l.partitionsOf("orders")
	if err != nil {
		l.t.Fatal(err)
	}
	p := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: id}
	l.append(table, fmt.Sprintf(`{"txn":{"appId":%q,"version":%d}}`, p.AppID("p"), next))
}

// start runs the connector until the test ends. It looks at topics all the time.
func (l *lake) start() *system {
	l.t.Helper()
	s, err := wire(l.t.Context(), mustLoad(l.t, l.config, nil), wireOptions{watchEvery: 200 * time.Millisecond}, l.logger)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.t.Context())
	ended := make(chan error)
	go func() { ended <- s.run(ctx, false) }()
	l.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		s.close()
	})
	return s
}

// hangGuard ends a test that hangs. Nothing that a test asserts depends on it, so that load cannot make a test red.
const hangGuard = 5 * time.Minute

// await waits until check passes.
func (l *lake) await(what string, check func() bool) {
	l.t.Helper()
	hung := time.NewTimer(hangGuard)
	defer hung.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !check() {
		select {
		case <-look.C:
		case <-hung.C:
			l.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// awaits waits until a table has these rows.
func (l *lake) awaits(table string, want map[string][]int64) {
	l.t.Helper()
	l.await("table "+table+" has its rows", func() bool { return cmp.Equal(want, l.rows(table)) })
}

// heldIn returns what a running system holds: the partitions of each topic and reason; -1 stands for all of a topic.
func heldIn(s *system) map[string][]int32 {
	held := map[string][]int32{}
	for _, h := range s.report().Holds {
		at := h.Topic + " " + h.Reason
		held[at] = append(held[at], h.Partition)
	}
	return held
}
