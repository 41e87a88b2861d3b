package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
)

const ddl = "id bigint, name string"

func parse(t *testing.T, text string) *schema.Schema {
	t.Helper()
	s, err := schema.ParseDDL(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// guard returns a guard with the retries and the breaker of the default configuration.
func guard() *reliability.Guard {
	return reliability.NewGuard("store", reliability.Config{
		Backoff:  reliability.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .25},
		Failures: 5, OpenFor: time.Minute, Successes: 3,
	}, slog.New(slog.DiscardHandler), nil)
}

// open returns a table that is closed at the end of the test.
func open(t *testing.T, store objstore.Store, change ...func(*delta.Options)) *delta.Table {
	t.Helper()
	tab := process(t, store, change...)
	t.Cleanup(tab.Close)
	return tab
}

// process returns a new Table that shares no state with others, as if it were in another process.
func process(t *testing.T, store objstore.Store, change ...func(*delta.Options)) *delta.Table {
	t.Helper()
	o := delta.Options{Pipeline: "p", Engine: "sluice/test", Schema: parse(t, ddl), Guard: guard()}
	for _, c := range change {
		c(&o)
	}
	tab, err := delta.Open(store, o)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// measured makes a table register its metrics in reg.
func measured(reg *prometheus.Registry) func(*delta.Options) {
	return func(o *delta.Options) { o.Registerer = reg }
}

func load(t *testing.T, tab *delta.Table) *connector.Snapshot {
	t.Helper()
	s, err := tab.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// app is the appId of a partition.
func app(partition int32) string {
	return idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: partition}.AppID("p")
}

// rows are the rows of the records [from, next) of a partition.
func rows(s connector.Schema, partition int32, from, next int64) connector.Piece {
	return rowsOf(s, "orders", partition, from, next)
}

func rowsOf(s connector.Schema, topic string, partition int32, from, next int64) connector.Piece {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.(*schema.Schema).Arrow())
	defer b.Release()
	for o := from; o < next; o++ {
		for i, f := range b.Schema().Fields() {
			switch f.Name {
			case schema.KafkaTopic:
				b.Field(i).(*array.StringBuilder).Append(topic)
			case schema.KafkaPartition:
				b.Field(i).(*array.Int32Builder).Append(partition)
			case schema.KafkaOffset, "id":
				b.Field(i).(*array.Int64Builder).Append(o)
			case schema.KafkaTimestamp:
				b.Field(i).(*array.TimestampBuilder).Append(arrow.Timestamp(o))
			case "name":
				b.Field(i).(*array.StringBuilder).Append(fmt.Sprint("n", o))
			case "extra":
				b.Field(i).(*array.StringBuilder).Append(fmt.Sprint("x", o))
			default:
				b.Field(i).AppendNull()
			}
		}
	}
	return connector.Piece{Rows: b.NewRecordBatch(), From: 0, To: next - from}
}

// rowRange describes a commit of the records [from, next) of one partition.
type rowRange struct {
	partition  int32
	from, next int64
}

func (c rowRange) commit(files *connector.Staged) *connector.Commit {
	return &connector.Commit{
		Operation: "STREAMING UPDATE", Staged: files, Txns: []connector.Txn{{AppID: app(c.partition), Version: c.next}},
		Ranges: []connector.Range{{Topic: "orders", Partition: c.partition, From: c.from, Next: c.next, Rows: c.next - c.from, Epoch: 4}},
	}
}

// pre is the precondition of the commit: the position in the table is where the range starts.
func (c rowRange) pre(s *connector.Snapshot) error {
	if s.Positions[app(c.partition)] != c.from {
		return classify.Mark(errors.New("moved"), classify.Fenced)
	}
	return nil
}

// write stages and commits a range as the pipeline does.
func (c rowRange) write(ctx context.Context, tab *delta.Table, s *connector.Snapshot) (*connector.Snapshot, error) {
	files, err := tab.Stage(ctx, s, "b-1", []connector.Piece{rows(s.Schema, c.partition, c.from, c.next)}, nil)
	if err != nil {
		return nil, err
	}
	committed, err := tab.Commit(ctx, c.commit(files), c.pre)
	if err != nil {
		tab.Discard(ctx, files) // deletes the files, unless the log may name them
	}
	return committed, err
}

// appendCommits writes n commits of 3 rows each to partition 0.
func appendCommits(t *testing.T, tab *delta.Table, n int) *connector.Snapshot {
	t.Helper()
	s := load(t, tab)
	for range n {
		at := s.Positions[app(0)]
		var err error
		if s, err = (rowRange{0, at, at + 3}).write(t.Context(), tab, s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// put writes an object as another program would.
func put(t *testing.T, store objstore.Store, key, text string) {
	t.Helper()
	if err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), key, strings.NewReader(text), objstore.Replace); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, store objstore.Store, key string) string {
	t.Helper()
	r, err := store.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// foreign commits actions as another program that follows the protocol does.
func foreign(t *testing.T, store objstore.Store, actions ...deltalog.Action) {
	t.Helper()
	foreignInfo(t, store, "", actions...)
}

// foreignInfo is [foreign] with a JSON text as the field sluice of commitInfo; "" leaves the field out.
func foreignInfo(t *testing.T, store objstore.Store, sluice string, actions ...deltalog.Action) {
	t.Helper()
	s, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	body, err := deltalog.Encode(append(actions, deltalog.CommitInfo{Operation: "FOREIGN", TxnID: "foreign", Sluice: []byte(sluice)}))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), deltalog.CommitKey(s.Version+1), bytes.NewReader(body), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
}

// alter returns the newest metaData with the schema that text declares.
func alter(t *testing.T, store objstore.Store, text string) deltalog.Metadata {
	t.Helper()
	s, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	m := s.Metadata
	m.SchemaString = parse(t, text).WithKafkaColumns().DeltaJSON()
	return m
}

// check reads the whole table with a separate reader. It fails the test unless versions are contiguous, each record
// before the position in its txn is there exactly once and in order, ids are unique, and every data file exists.
func check(t *testing.T, store objstore.Store, positions ...int64) {
	t.Helper()
	checkRows(t, store, stateOf(t, store), positions...)
	checkHistory(t, store, positions...)
}

func stateOf(t *testing.T, store objstore.Store) *deltalog.State {
	t.Helper()
	s, err := deltalog.Load(context.WithoutCancel(t.Context()), store)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkRows is the part of check that needs only the newest state.
func checkRows(t *testing.T, store objstore.Store, s *deltalog.State, positions ...int64) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	next := make([]int64, len(positions))
	for f, err := range deltatest.Adds(ctx, store) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range delta.Offsets(ctx, store, f) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Topic != "orders" || !r.FromKafka || int(r.Partition) >= len(next) {
				t.Fatalf("row %+v", r)
			}
			if r.Offset != next[r.Partition] {
				t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition]++
		}
	}
	if !slices.Equal(next, positions) {
		t.Fatalf("rows up to %v, want %v", next, positions)
	}
	for p, n := range positions {
		if got := s.Txns[app(int32(p))]; got.Version != n || n > 0 && got.LastUpdated == nil {
			t.Fatalf("partition %d: txn %+v, want %d", p, got, n)
		}
	}
}

// checkHistory is the part of check that reads each version.
func checkHistory(t *testing.T, store objstore.Store, positions ...int64) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	seen := map[string]bool{}
	ranges := make([]int64, len(positions))
	for e, err := range delta.History(ctx, store) {
		if err != nil {
			t.Fatal(err)
		}
		if e.TxnID != "foreign" && (e.TxnID == "" || seen[e.TxnID]) {
			t.Fatalf("version %d has txnId %q", e.Version, e.TxnID)
		}
		seen[e.TxnID] = true
		for _, r := range e.Ranges {
			if r.From != ranges[r.Partition] {
				t.Fatalf("version %d covers %+v after %d", e.Version, r, ranges[r.Partition])
			}
			ranges[r.Partition] = r.Next
		}
	}
	if !slices.Equal(ranges, positions) {
		t.Fatalf("ranges up to %v, want %v", ranges, positions)
	}
}

// files returns the keys of the data files in the store, whether a version names them or not.
func files(t *testing.T, store objstore.Store) (keys []string) {
	t.Helper()
	for o, err := range store.List(context.WithoutCancel(t.Context()), "part-", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// holds fails the test unless err is a hold.Error of class Fatal with this reason and with text in its message.
func holds(t *testing.T, err error, reason hold.Reason, text string) {
	t.Helper()
	var held *hold.Error
	if !errors.As(err, &held) || held.Reason != reason || !strings.Contains(err.Error(), text) || classify.Of(err) != classify.Fatal {
		t.Errorf("got %v, want a hold %s with %q", err, reason, text)
	}
}

func TestMain(m *testing.M) { os.Exit(deltatest.Main(m)) }

func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	deltatest.Bubble(t, f)
}

// metric returns the sum of the series of a counter. If values are given, only series with one of them as a label value
// count.
func metric(t *testing.T, reg *prometheus.Registry, name string, values ...string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				if len(values) > 0 && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return slices.Contains(values, l.GetValue()) }) {
					continue
				}
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
