// Package laketest provides tests with a Kafka broker in the process, a directory for tables, and a config.yaml for both.
package laketest

import (
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

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/reliability/deadletter"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// Lake is a broker in this process, a directory for tables, and a config.yaml for both.
type Lake struct {
	T      *testing.T
	Broker *kfake.Cluster
	Client *kgo.Client
	Admin  *kadm.Client
	Dir    string
	Config string
	Store  objstore.Store
	Logger *slog.Logger // for the members that a test runs
}

// New returns a lake without topics and tables. sections has the other sections of config.yaml, at least topics.
func New(t *testing.T, sections string) *Lake {
	t.Helper()
	return NewOn(t, sections, "", nil)
}

// NewOn is [New] with more keys for the section kafka (section, which begins with a comma), options of the test's
// client (producer), and options of the broker.
func NewOn(t *testing.T, sections, section string, producer []kgo.Opt, broker ...kfake.Opt) *Lake {
	t.Helper()
	cluster, err := kfake.NewCluster(append(broker, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	l := &Lake{T: t, Broker: cluster, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	l.Client, err = kgo.NewClient(append(producer, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite())...) // so that PurgeTopicsFromProducing works at any time
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Client.Close)
	l.Admin = kadm.NewClient(l.Client)
	l.Config = filepath.Join(l.Dir, "config.yaml")
	text := fmt.Sprintf("pipeline: p\nkafka: {brokers: [%s], session: 10s%s}\nstorage: {url: \"file://%s/lake\"}\nhealth: {enabled: false}\nops: {listen: \"\"}\n%s",
		strings.Join(cluster.ListenAddrs(), ", "), section, filepath.ToSlash(l.Dir), sections)
	if !strings.Contains(sections, "defaults:") {
		text += "\ndefaults: {schema: \"n int\", commit: {every: 100ms}, bad_records: hold}"
	}
	if err := os.WriteFile(l.Config, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	local, err := objstore.NewLocal(t.Context(), filepath.Join(l.Dir, "lake"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close() })
	l.Store = local
	return l
}

// Create creates a topic.
func (l *Lake) Create(topic string, partitions int32) {
	l.T.Helper()
	if _, err := l.Admin.CreateTopic(l.T.Context(), partitions, 1, nil, topic); err != nil {
		l.T.Fatal(err)
	}
}

// Produce produces n records to each of the partitions.
func (l *Lake) Produce(topic string, n int, partitions ...int32) {
	l.T.Helper()
	l.Client.PurgeTopicsFromProducing(topic) // the topic may have been created again; the client would keep the old id
	var records []*kgo.Record
	for _, id := range partitions {
		for range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: id, Value: []byte(`{"n":1}`)})
		}
	}
	if err := l.Client.ProduceSync(l.T.Context(), records...).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

// EachRow calls do for every row of a table. It returns an error if there is no table.
func (l *Lake) EachRow(table string, do func(delta.Row)) error {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		return err
	}
	for f, err := range deltalog.Files(l.T.Context(), store, state) {
		if err != nil {
			l.T.Fatal(err)
		}
		for row, err := range delta.Offsets(l.T.Context(), store, f) {
			if err != nil {
				l.T.Fatal(err)
			}
			do(row)
		}
	}
	return nil
}

// Rows returns the sorted offsets of a table's rows by topic and partition, an empty map if there is no table.
func (l *Lake) Rows(table string) map[string][]int64 {
	l.T.Helper()
	rows := map[string][]int64{}
	_ = l.EachRow(table, func(row delta.Row) { // without a table there are no rows
		at := fmt.Sprintf("%s:%d", row.Topic, row.Partition)
		rows[at] = append(rows[at], row.Offset)
	})
	for _, offsets := range rows {
		slices.Sort(offsets)
	}
	return rows
}

// UpTo returns the offsets [0, n) for each of the partitions, in the form of [Lake.Rows].
func UpTo(n int64, partitions ...string) map[string][]int64 {
	rows := map[string][]int64{}
	for _, p := range partitions {
		for o := range n {
			rows[p] = append(rows[p], o)
		}
	}
	return rows
}

// Has fails the test unless a table has exactly the wanted rows.
func (l *Lake) Has(table string, want map[string][]int64) {
	l.T.Helper()
	if d := cmp.Diff(want, l.Rows(table)); d != "" {
		l.T.Errorf("table %s (-want +got):\n%s", table, d)
	}
}

// PartitionsOf returns the id and the partitions of a topic, as a member sees them.
func (l *Lake) PartitionsOf(name string) (connector.Topic, error) {
	client, err := kafka.NewClient(kafka.Config{Brokers: Load(l.T, l.Config).Kafka.Brokers})
	if err != nil {
		return connector.Topic{}, err
	}
	defer client.Close()
	return client.Topic(l.T.Context(), name)
}

// Append commits a version with these actions to a table, as another program would.
func (l *Lake) Append(table string, actions ...string) {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	body := strings.NewReader(strings.Join(actions, "\n") + "\n")
	if err := store.Put(l.T.Context(), deltalog.CommitKey(state.Version+1), body, objstore.IfAbsent); err != nil {
		l.T.Fatal(err)
	}
}

// ReplaceTable gives a table another id, as CREATE OR REPLACE TABLE does: its txns stay.
func (l *Lake) ReplaceTable(table string) {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	m := state.Metadata
	m.ID = uuid.NewString()
	body, err := deltalog.Encode([]deltalog.Action{deltalog.CommitInfo{Operation: "REPLACE TABLE"}, m})
	if err != nil {
		l.T.Fatal(err)
	}
	l.Append(table, strings.TrimSpace(string(body)))
}

// SetPosition commits a position of topic orders without commitInfo, as another program might.
func (l *Lake) SetPosition(table string, id int32, next int64) {
	l.T.Helper()
	topic, err := l.PartitionsOf("orders")
	if err != nil {
		l.T.Fatal(err)
	}
	p := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: id}
	l.Append(table, fmt.Sprintf(`{"txn":{"appId":%q,"version":%d}}`, p.AppID("p"), next))
}

// HangGuard is the time after which a hanging test fails. No assertion depends on it, so a loaded machine fails no test.
const HangGuard = 5 * time.Minute

// Await waits until check returns true; it fails the test after HangGuard. what completes the sentence "waited in vain
// until".
func (l *Lake) Await(what string, check func() bool) {
	l.T.Helper()
	hung := time.NewTimer(HangGuard)
	defer hung.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !check() {
		select {
		case <-poll.C:
		case <-hung.C:
			l.T.Fatalf("waited in vain until %s", what)
		}
	}
}

// Awaits waits until a table has exactly the wanted rows.
func (l *Lake) Awaits(table string, want map[string][]int64) {
	l.T.Helper()
	l.Await("table "+table+" has its rows", func() bool { return cmp.Equal(want, l.Rows(table)) })
}

// Load loads a valid configuration, without environment variables.
func Load(t *testing.T, path string) *config.Config {
	t.Helper()
	c, problems := config.Load(path, func(string) (string, bool) { return "", false })
	if c == nil {
		t.Fatalf("%s was refused: %v", path, problems)
	}
	return c
}

// As returns the same broker and tables with another config.yaml: a copy in which is replaces each occurrence of was.
func (l *Lake) As(was, is string) *Lake {
	l.T.Helper()
	other := *l
	body, err := os.ReadFile(l.Config)
	if err != nil {
		l.T.Fatal(err)
	}
	text := string(body)
	if !strings.Contains(text, was) {
		l.T.Fatalf("no %q in %s", was, text)
	}
	other.Config = filepath.Join(l.T.TempDir(), "config.yaml")
	if err := os.WriteFile(other.Config, []byte(strings.ReplaceAll(text, was, is)), 0o600); err != nil {
		l.T.Fatal(err)
	}
	return &other
}

// LetterAbout returns a dead letter of a record of topic orders.
func (l *Lake) LetterAbout(partition int32, offset int64, value []byte) deadletter.Letter {
	l.T.Helper()
	topic, err := l.PartitionsOf("orders")
	if err != nil {
		l.T.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, int(offset), 0, time.UTC)
	return deadletter.Letter{
		Source: idempotency.Coordinates{
			Partition: connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: partition}, Offset: offset,
		},
		Timestamp: 1000, Key: []byte("k"), Value: value, Headers: []deadletter.Header{{Key: "h", Value: []byte("v")}},
		Class: classify.Poison, Reason: "type_mismatch", Detail: "type_mismatch at byte 5 in column n", FirstFailure: at, LastFailure: at,
		Member: "m1", Correlation: "c1", Batch: "b1",
	}
}

// WriteLetters produces dead letters to a topic, and puts the objects to which they link.
func (l *Lake) WriteLetters(form deadletter.Form, topic string, letters ...deadletter.Letter) {
	l.T.Helper()
	var records []*kgo.Record
	for _, letter := range letters {
		r, object, err := form.Fit(letter, 1<<20)
		if err != nil {
			l.T.Fatal(err)
		}
		if object != nil {
			if err := l.Store.Put(l.T.Context(), object.Key, strings.NewReader(string(object.Bytes)), objstore.IfAbsent); err != nil {
				l.T.Fatal(err)
			}
		}
		record := &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader(h))
		}
		records = append(records, record)
	}
	if err := l.Client.ProduceSync(l.T.Context(), records...).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

// Alter renames a column in a table's schema, as another program might.
func (l *Lake) Alter(table, from, to string) {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	m := state.Metadata
	m.SchemaString = strings.ReplaceAll(m.SchemaString, `"`+from+`"`, `"`+to+`"`)
	body, err := deltalog.Encode([]deltalog.Action{deltalog.CommitInfo{Operation: "RENAME COLUMN"}, m})
	if err != nil {
		l.T.Fatal(err)
	}
	l.Append(table, strings.TrimSpace(string(body)))
}

// CreateAgain deletes a topic and creates it with one partition.
func (l *Lake) CreateAgain(topic string) {
	l.T.Helper()
	if _, err := l.Admin.DeleteTopics(l.T.Context(), topic); err != nil {
		l.T.Fatal(err)
	}
	l.Create(topic, 1)
}

// DeleteTo deletes the records of partition 0 of a topic below an offset.
func (l *Lake) DeleteTo(topic string, offset int64) {
	l.T.Helper()
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: topic, At: offset})
	if _, err := l.Admin.DeleteRecords(l.T.Context(), to); err != nil {
		l.T.Fatal(err)
	}
}

// RemoveTable deletes the folder of a table.
func (l *Lake) RemoveTable(table string) {
	l.T.Helper()
	if err := os.RemoveAll(filepath.Join(l.Dir, "lake", table)); err != nil {
		l.T.Fatal(err)
	}
}
