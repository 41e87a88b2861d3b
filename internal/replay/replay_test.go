package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/replay"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

const (
	pipeline = "p"
	path     = "orders"
	ddl      = "id bigint not null"
	passed   = 100 // the positions of both partitions
)

func partition(id int32) idempotency.Partition {
	return idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: id}
}

// lake is a store with one table. Its positions in both partitions are at offset passed.
type lake struct {
	t     *testing.T
	store objstore.Store
}

func newLake(t *testing.T) *lake {
	t.Helper()
	l := &lake{t, objstore.NewMem()}
	l.commit(&connector.Commit{Txns: []connector.Txn{
		{AppID: partition(0).AppID(pipeline), Version: passed}, {AppID: partition(1).AppID(pipeline), Version: passed},
	}})
	return l
}

// commit commits to the table as a member does, with the txn that marks the table as started by the pipeline.
func (l *lake) commit(c *connector.Commit) {
	l.t.Helper()
	tab := table(l.t, l.store)
	defer tab.Close()
	s, err := tab.Load(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	mark := idempotency.TableAppID(pipeline, s.TableID)
	c.Txns = append(c.Txns, connector.Txn{AppID: mark, Version: 0})
	if _, err := tab.Commit(l.t.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
		l.t.Fatal(err)
	}
}

func guard() *reliability.Guard {
	return reliability.NewGuard("store", reliability.Config{
		Backoff:  reliability.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .25},
		Failures: 5, OpenFor: time.Minute, Successes: 3,
	}, slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
}

func table(t *testing.T, store objstore.Store) *delta.Table {
	t.Helper()
	columns, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := delta.Open(objstore.Sub(store, path), delta.Options{Pipeline: pipeline, Engine: "sluice/test", Schema: columns, Guard: guard()})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// replayer returns a Table as a process that replays has one.
func (l *lake) replayer(store objstore.Store) *replay.Table {
	tab := table(l.t, store)
	l.t.Cleanup(tab.Close)
	return &replay.Table{
		Pipeline: pipeline, Path: path, Table: tab, Log: opslog.Open(store, pipeline, opslog.Options{Guard: guard()}),
		Topic:    func(string) replay.Topic { return replay.Topic{Decoder: decode.Formats()[0].New(decode.Options{})} },
		Operator: "ada", Reason: "fixed",
	}
}

// decided appends a decision to the operations log.
func (l *lake) decided(body opslog.Body) {
	l.t.Helper()
	log := opslog.Open(l.store, pipeline, opslog.Options{Guard: guard()})
	if _, err := log.Append(l.t.Context(), opslog.Operation{Operator: "eva", Reason: "r", Body: body}, nil); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lake) state() *opslog.State {
	l.t.Helper()
	s, err := opslog.Open(l.store, pipeline, opslog.Options{Guard: guard()}).State(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// rows returns how many rows the table has of each record.
func (l *lake) rows() map[string]int {
	l.t.Helper()
	store := objstore.Sub(l.store, path)
	state, err := deltalog.Load(l.t.Context(), store)
	if err != nil {
		l.t.Fatal(err)
	}
	rows := map[string]int{}
	for f, err := range deltalog.Files(l.t.Context(), store, state) {
		if err != nil {
			l.t.Fatal(err)
		}
		for row, err := range delta.Offsets(l.t.Context(), store, f) {
			if err != nil {
				l.t.Fatal(err)
			}
			rows[fmt.Sprintf("%s:%d@%d", row.Topic, row.Partition, row.Offset)]++
		}
	}
	return rows
}

// has fails the test unless the table has exactly one row of each of the records.
func (l *lake) has(want ...string) {
	l.t.Helper()
	rows := map[string]int{}
	for _, record := range want {
		rows[record] = 1
	}
	if d := cmp.Diff(rows, l.rows()); d != "" {
		l.t.Errorf("rows (-want +got):\n%s", d)
	}
}

// record is a record of partition id whose value makes a row, or none if it is bad.
func record(id int32, offset int64, value string) replay.Record {
	return replay.Record{At: partition(id), Record: connector.Record{Offset: offset, Timestamp: 1000 + offset, Value: []byte(value)}}
}

func good(id int32, all ...int64) (records []replay.Record) {
	for _, offset := range all {
		records = append(records, record(id, offset, fmt.Sprintf(`{"id":%d}`, offset)))
	}
	return records
}

func names(id int32, all ...int64) (names []string) {
	for _, offset := range all {
		names = append(names, fmt.Sprintf("orders:%d@%d", id, offset))
	}
	return names
}

func add(t *testing.T, r *replay.Table, records ...replay.Record) replay.Result {
	t.Helper()
	result, err := r.Add(t.Context(), records)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAdd(t *testing.T) {
	l := newLake(t)
	r := l.replayer(l.store)
	result := add(t, r, slices.Concat(good(1, 7), good(0, 9, 3))...)
	if result.Rows != 3 || len(result.Failed)+len(result.Left) > 0 || result.Version < 1 {
		t.Errorf("%+v", result)
	}
	l.has(names(0, 3, 9)[0], names(0, 9)[0], names(1, 7)[0])
	s := l.state()
	if got := s.Letters(partition(0)).Replayed.String(); got != "3,9" || s.Letters(partition(1)).Replayed.String() != "7" || len(s.OpenReplays(path)) > 0 {
		t.Errorf("replayed %s, open %v", got, s.OpenReplays(path))
	}
	for e, err := range delta.History(t.Context(), objstore.Sub(l.store, path)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Version == result.Version && (e.Operation != "SLUICE REPLAY" || e.Ranges == nil) {
			t.Errorf("%+v", e)
		}
	}

	// The same again, by this process and by another one: no second row.
	for _, again := range []*replay.Table{r, l.replayer(l.store)} {
		result := add(t, again, slices.Concat(good(0, 3, 9), good(1, 7, 8))...)
		if result.Rows > 1 || len(result.Left) < 3 {
			t.Errorf("%+v", result)
		}
	}
	l.has(slices.Concat(names(0, 3, 9), names(1, 7, 8))...)
}

// TestAdd_LeavesOut: records whose dead letters are resolved, that members will read, or that are tombstones do not
// become rows. The result says why.
func TestAdd_LeavesOut(t *testing.T) {
	l := newLake(t)
	r := l.replayer(l.store)
	add(t, r, good(0, 1)...)
	foreign := good(0, 5)[0]
	foreign.At.TopicID = idempotency.TopicID{2} // of an earlier topic of this name
	l.decided(opslog.Discard{Letters: []opslog.Letters{opslog.LettersOf(partition(0), offsets.Of(2))}})
	l.decided(opslog.Acknowledge{Letters: []opslog.Letters{opslog.LettersOf(partition(0), offsets.Of(4))}})
	tombstone := record(0, 6, "")
	tombstone.Record.Value = nil
	result := add(t, r, slices.Concat(good(0, 1, 2, 3, 4, passed), []replay.Record{foreign, tombstone})...)
	got := map[string]string{}
	for _, left := range result.Left {
		got[left.At.String()] = string(left.Why)
	}
	want := map[string]string{
		"orders:0@1": "resolved", "orders:0@2": "resolved", "orders:0@100": "pending", "orders:0@5": "pending", "orders:0@6": "tombstone",
	}
	if d := cmp.Diff(want, got); d != "" || result.Rows != 2 {
		t.Errorf("%d rows, left out (-want +got):\n%s", result.Rows, d)
	}
	l.has(names(0, 1, 3, 4)...)
	if s := l.state().Letters(partition(0)); s.Acknowledged.Len() > 0 || s.Replayed.String() != "1,3-4" {
		t.Errorf("%+v", s)
	}

	// The operations log is lost: the rows of the table still show which records have become rows.
	l.loseOperations()
	result = add(t, l.replayer(l.store), good(0, 1, 3)...)
	if result.Rows != 0 || len(result.Left) != 2 || result.Left[0].Why != replay.HasRow {
		t.Errorf("%+v", result)
	}

	// A topic that was created again: its rows cannot be told from those of the earlier one.
	other := partition(0)
	other.TopicID = idempotency.TopicID{2}
	l.commit(&connector.Commit{Txns: []connector.Txn{{AppID: other.AppID(pipeline), Version: passed}}})
	result = add(t, l.replayer(l.store), slices.Concat(good(0, 8), []replay.Record{foreign})...)
	if result.Rows != 0 || len(result.Left) != 2 || result.Left[0].Why != replay.Unproven || result.Left[1].Why != replay.Unproven {
		t.Errorf("%+v", result)
	}
}

// TestAdd_CreatedAgain: rows with a topic id show which records of an earlier topic have rows, beside rows of the new
// one at the same offsets. A row without one, from before the table had the column, may be of either.
func TestAdd_CreatedAgain(t *testing.T) {
	l := newLake(t)
	add(t, l.replayer(l.store), good(0, 3, 4)...) // without topic ids
	l.addTopicIDs()
	other := partition(0)
	other.TopicID = idempotency.TopicID{2}
	of := func(p idempotency.Partition, offsets ...int64) []replay.Record {
		all := good(p.ID, offsets...)
		for i := range all {
			all[i].At = p
		}
		return all
	}
	add(t, l.replayer(l.store), good(0, 5)...)
	l.commit(&connector.Commit{Txns: []connector.Txn{{AppID: other.AppID(pipeline), Version: passed}}})
	if result := add(t, l.replayer(l.store), slices.Concat(of(other, 5, 6, 50), good(0, 7))...); result.Rows != 4 {
		t.Errorf("%+v", result)
	}
	l.loseOperations()
	result := add(t, l.replayer(l.store), slices.Concat(good(0, 3, 4, 5, 6, 7), of(other, 4, 5, 6, 7, 50))...)
	got := map[string]string{}
	for _, left := range result.Left {
		got[left.At.TopicID.String()[:2]+"@"+fmt.Sprint(left.At.Offset)] = string(left.Why)
	}
	first, second := partition(0).TopicID.String()[:2], other.TopicID.String()[:2]
	want := map[string]string{
		first + "@3": "unproven", first + "@4": "unproven", first + "@5": "has_row", first + "@7": "has_row",
		second + "@4": "unproven", second + "@5": "has_row", second + "@6": "has_row", second + "@50": "has_row",
	}
	if d := cmp.Diff(want, got); d != "" || result.Rows != 2 {
		t.Errorf("%d rows, left out (-want +got):\n%s", result.Rows, d)
	}
	if d := cmp.Diff(map[string]int{
		"orders:0@3": 1, "orders:0@4": 1, "orders:0@5": 2, "orders:0@6": 2, "orders:0@7": 2, "orders:0@50": 1,
	}, l.rows()); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}

	// Rows are also found if the offsets of the second topic are below those of the first.
	l.loseOperations()
	result = add(t, l.replayer(l.store), slices.Concat(good(0, 60), of(other, 5))...)
	if result.Rows != 1 || len(result.Left) != 1 || result.Left[0].Why != replay.HasRow {
		t.Errorf("%+v", result)
	}

	// A dead letter that does not name its topic id stays out.
	nameless := partition(0)
	nameless.TopicID = idempotency.TopicID{}
	l.commit(&connector.Commit{Txns: []connector.Txn{{AppID: nameless.AppID(pipeline), Version: passed}}})
	if result := add(t, l.replayer(l.store), of(nameless, 9)...); result.Rows != 0 || len(result.Left) != 1 || result.Left[0].Why != replay.Unproven {
		t.Errorf("%+v", result)
	}
}

// addTopicIDs adds the column for topic ids to the table, as another program does.
func (l *lake) addTopicIDs() {
	l.t.Helper()
	store := objstore.Sub(l.store, path)
	state, err := deltalog.Load(l.t.Context(), store)
	if err != nil {
		l.t.Fatal(err)
	}
	m := state.Metadata
	m.SchemaString = strings.TrimSuffix(m.SchemaString, "]}") + `,{"name":"_kafka_topic_id","type":"string","nullable":true,"metadata":{}}]}`
	entry, err := deltalog.Encode([]deltalog.Action{m})
	if err != nil {
		l.t.Fatal(err)
	}
	if err := store.Put(l.t.Context(), deltalog.CommitKey(state.Version+1), bytes.NewReader(entry), objstore.IfAbsent); err != nil {
		l.t.Fatal(err)
	}
}

// TestAdd_TopicsOfOneTable: the rows of each topic are found, also if its offsets are lower than those of the topic before.
func TestAdd_TopicsOfOneTable(t *testing.T) {
	l := newLake(t)
	zebras := partition(0)
	zebras.Topic = "zebras"
	l.commit(&connector.Commit{Txns: []connector.Txn{{AppID: zebras.AppID(pipeline), Version: passed}}})
	records := func() []replay.Record {
		of := good(0, 50, 5)
		of[1].At = zebras
		return of
	}
	add(t, l.replayer(l.store), records()...)
	l.loseOperations()
	if result := add(t, l.replayer(l.store), records()...); result.Rows != 0 || len(result.Left) != 2 {
		t.Errorf("%+v", result)
	}
	l.has("orders:0@50", "zebras:0@5")
}

// loseOperations deletes the operations log.
func (l *lake) loseOperations() {
	l.t.Helper()
	for o, err := range l.store.List(l.t.Context(), "_sluice/", "") {
		if err != nil {
			l.t.Fatal(err)
		}
		if err := l.store.Delete(l.t.Context(), o.Key); err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestAdd_StillBad: records that cannot become rows count as failed replays in the operations log, and the other
// records become rows.
func TestAdd_StillBad(t *testing.T) {
	l := newLake(t)
	r := l.replayer(l.store)
	for attempt := range opslog.MaxReplays {
		if n := l.state().Letters(partition(0)).Parked().Len(); n > 0 {
			t.Errorf("%d are parked after %d failures", n, attempt)
		}
		result := add(t, r, record(0, 5, `{"id":"x"}`), record(0, int64(10+attempt), `{"id":1}`), record(1, 5, `{`))
		if last := attempt == opslog.MaxReplays-1; last != (result.Parked == 2) || !last && result.Parked != 0 {
			t.Errorf("attempt %d: %d parked", attempt, result.Parked)
		}
		if len(result.Failed) != 2 || result.Rows != 1 || result.Failed[0].Code != "type_mismatch" || result.Failed[1].Code != "truncated" {
			t.Errorf("%+v", result)
		}
	}
	s := l.state()
	if got := s.Letters(partition(0)).Parked().String(); got != "5" || s.Letters(partition(1)).Parked().String() != "5" {
		t.Errorf("parked %s", got)
	}
	l.has(names(0, 10, 11, 12)...)
	result := add(t, r, record(0, 5, `{"id":5}`)) // the schema was corrected
	if result.Rows != 1 || l.state().Letters(partition(0)).Parked().Len() > 0 {
		t.Errorf("%+v", result)
	}
}

// TestAdd_ParkedMeanwhile: a dead letter whose last allowed replay fails does not count as parked if another process has
// made a row of it meanwhile.
func TestAdd_ParkedMeanwhile(t *testing.T) {
	l := newLake(t)
	r := l.replayer(l.store)
	bad := []replay.Record{record(0, 5, `{`), record(0, 6, `{`)}
	for range opslog.MaxReplays - 1 {
		add(t, r, slices.Clone(bad)...)
	}
	topic := r.Topic
	r.Topic = func(name string) replay.Topic { // the records are chosen and not decoded
		if result := add(t, l.replayer(l.store), good(0, 5)...); result.Rows != 1 {
			t.Errorf("%+v", result)
		}
		return topic(name)
	}
	if result := add(t, r, bad...); len(result.Failed) != 2 || result.Parked != 1 {
		t.Errorf("%+v", result)
	}
	if got := l.state().Letters(partition(0)).Parked().String(); got != "6" {
		t.Errorf("parked %s", got)
	}
}

// TestAdd_Run: the first entry of a replay has its key; later entries, and those that settle what
// others began, have none. A second replay with the key is refused before it has an effect.
func TestAdd_Run(t *testing.T) {
	l := newLake(t)
	key := opslog.Once{Key: strings.Repeat("a", 64), Request: strings.Repeat("b", 64)}
	run := &replay.Run{Once: key}
	r := l.replayer(l.store)
	r.Run = run
	add(t, r, good(0, 200)...) // left out: the position has not passed it
	if run.First != 0 {
		t.Errorf("%d", run.First)
	}
	add(t, r, record(0, 5, `{`), record(0, 6, `{"id":6}`))
	add(t, r, good(0, 7)...)
	if run.First != 1 {
		t.Errorf("%d", run.First)
	}
	log := opslog.Open(l.store, pipeline, opslog.Options{Guard: guard()})
	for e, err := range log.Entries(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if (e.Once != nil) != (e.Seq == 1) || e.Seq == 1 && (e.Kind != opslog.KindReplayFailed || *e.Once != key) {
			t.Errorf("%+v", e)
		}
	}
	second := l.replayer(l.store)
	second.Run = &replay.Run{Once: key}
	_, err := second.Add(t.Context(), good(0, 8))
	if repeated, ok := errors.AsType[*opslog.RepeatedError](err); !ok || !repeated.Same {
		t.Error(err)
	}
	l.has(names(0, 6, 7)...)
}

// TestAdd_MovedPositions: while a move of positions has no outcome, a replay is refused. After the move it leaves out
// the records that members will read again.
func TestAdd_MovedPositions(t *testing.T) {
	l := newLake(t)
	moves := []opslog.Move{{Topic: "orders", Partition: 0, From: passed, To: 2}}
	l.decided(opslog.OffsetsIntent{Command: "offsets set", Table: path, Moves: moves})
	r := l.replayer(l.store)
	if _, err := r.Add(t.Context(), good(0, 3)); err == nil || !strings.Contains(err.Error(), "eva moves positions of topic orders") {
		t.Errorf("%v", err)
	}
	l.decided(opslog.OffsetsDone{Intent: 1, Command: "offsets set", Table: path, Moves: moves, Outcome: opslog.Committed, Version: 3})
	l.commit(&connector.Commit{Txns: []connector.Txn{{AppID: partition(0).AppID(pipeline), Version: 2}}})
	if result := add(t, r, good(0, 1, 3)...); result.Rows != 1 || result.Left[0].Why != replay.NotPassed {
		t.Errorf("%+v", result)
	}
	l.has(names(0, 1)...)
}

// onFirstFile returns the store, and calls do before the first data file is put.
func (l *lake) onFirstFile(do func()) objstore.Store {
	var once sync.Once
	return objstoretest.NewFaulty(l.store, func(op objstore.Op) objstoretest.Fault {
		if op.Kind == objstore.OpPut && strings.HasSuffix(op.Key, ".parquet") {
			once.Do(do)
		}
		return objstoretest.Fault{}
	})
}

// TestAdd_ReadAgain: after the replay has compared its records with the table, an operator moves the position back and
// a member makes a row of one of them. The replay must not add a second row of it.
func TestAdd_ReadAgain(t *testing.T) {
	l := newLake(t)
	store := l.onFirstFile(func() {
		moves := []opslog.Move{{Topic: "orders", Partition: 0, From: passed, To: 2}}
		l.decided(opslog.OffsetsIntent{Command: "offsets set", Table: path, Moves: moves})
		l.commit(&connector.Commit{Txns: []connector.Txn{{AppID: partition(0).AppID(pipeline), Version: 2}}})
		l.decided(opslog.OffsetsDone{Intent: 1, Command: "offsets set", Table: path, Moves: moves, Outcome: opslog.Committed, Version: 2})
		l.reads(passed, 3)
	})
	result := add(t, l.replayer(store), good(0, 1, 3)...)
	if result.Rows != 1 || len(result.Left) != 1 || result.Left[0].Why != replay.HasRow {
		t.Errorf("%+v", result)
	}
	l.has(names(0, 1, 3)...)
}

// reads commits rows of partition 0 and its position, as a member does.
func (l *lake) reads(next int64, offsets ...int64) {
	l.t.Helper()
	tab := table(l.t, l.store)
	defer tab.Close()
	s, err := tab.Load(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	b, err := decode.Formats()[0].New(decode.Options{}).Builder(s.Schema)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range good(0, offsets...) {
		if err := b.Add(r.At, &r.Record); err != nil {
			l.t.Fatal(err)
		}
	}
	rows := b.Seal()
	defer rows.Release()
	staged, err := tab.Stage(l.t.Context(), s, "b", []connector.Piece{{Rows: rows, To: rows.NumRows()}}, func(int, int64) {})
	if err != nil {
		l.t.Fatal(err)
	}
	c := &connector.Commit{Staged: staged, Txns: []connector.Txn{{AppID: partition(0).AppID(pipeline), Version: next}}}
	if _, err := tab.Commit(l.t.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
		l.t.Fatal(err)
	}
}

// TestAdd_Conflict: another replay commits first. The replay tries again, leaves out the rows of the other one, and
// counts a record that cannot become a row only once.
func TestAdd_Conflict(t *testing.T) {
	l := newLake(t)
	store := l.onFirstFile(func() { add(t, l.replayer(l.store), good(0, 1, 8)...) })
	result := add(t, l.replayer(store), append(good(0, 1, 3), record(0, 5, `{`))...)
	if result.Rows != 1 || len(result.Failed) != 1 || len(result.Left) != 1 {
		t.Errorf("%+v", result)
	}
	l.has(names(0, 1, 3, 8)...)
	if s := l.state().Letters(partition(0)); s.Failed[0].String() != "5" || s.Failed[1].Len() > 0 {
		t.Errorf("failed %v, then %v", s.Failed[0], s.Failed[1])
	}
}

// TestAdd_EveryStep stops a replay at each operation of the store: before the operation takes effect, after it, or with
// an effect that comes only after another process has replayed. In the end each record has one row and each intent its
// outcome.
func TestAdd_EveryStep(t *testing.T) {
	for _, effect := range []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late} {
		for n := 1; ; n++ {
			ended := false
			t.Run(fmt.Sprintf("%d/%d", effect, n), func(t *testing.T) {
				deltatest.Bubble(t, func(t *testing.T) { ended = diesAt(t, n, effect) })
			})
			if ended || t.Failed() {
				break
			}
		}
	}
}

// diesAt stops a replay at its n-th operation of the store. It returns true if the replay ended before, with fewer
// operations.
func diesAt(t *testing.T, n int, effect objstoretest.Effect) (ended bool) {
	l := newLake(t)
	dying, die := context.WithCancel(t.Context())
	defer die()
	count := 0
	var mu sync.Mutex
	faulty := objstoretest.NewFaulty(l.store, func(op objstore.Op) objstoretest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if count++; count != n {
			return objstoretest.Fault{}
		}
		time.AfterFunc(500*time.Millisecond, die) // before a retry
		switch {
		case effect == objstoretest.Done:
			return objstoretest.Fault{Linger: time.Hour}
		case effect == objstoretest.Late && op.Kind == objstore.OpPutIfAbsent:
			return objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: effect}
		}
		return objstoretest.Fault{Delay: time.Hour}
	})
	defer func() { _ = faulty.Close() }()
	records := append(good(0, 3, 9), record(1, 4, `{`))
	_, err := l.replayer(faulty).Add(dying, slices.Clone(records))
	if dying.Err() == nil {
		if err != nil {
			t.Error(err)
		}
		ended = true
	}
	land := func() {
		if len(faulty.Flying()) > 0 {
			_ = faulty.Land(faulty.Flying()[0].N) // it may find its name taken
		}
	}
	next := l.replayer(l.store)
	for range 2 { // the second one finds what landed
		add(t, next, slices.Clone(records)...)
		land()
	}
	l.settled()
	l.has(names(0, 3, 9)...)
	if got := l.state().Letters(partition(0)).Replayed.String(); got != "3,9" {
		t.Errorf("replayed: %q", got)
	}
	return ended
}

// settled settles all intents of the table, and fails the test if one stays open or the operations log is not intact.
func (l *lake) settled() {
	l.t.Helper()
	open, err := l.replayer(l.store).Withdraw(l.t.Context(), 0)
	if err != nil || len(open) > 0 {
		l.t.Errorf("open intents %+v: %v", open, err)
	}
	if _, err := opslog.Open(l.store, pipeline, opslog.Options{Guard: guard()}).Verify(l.t.Context(), opslog.Head{}); err != nil {
		l.t.Error(err)
	}
}

// TestWithdraw: after a replay has been withdrawn, its commit never takes effect, even if the put of the commit lands
// later.
func TestWithdraw(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l := newLake(t)
		dying, die := context.WithCancel(t.Context())
		defer die()
		faulty := objstoretest.NewFaulty(l.store, func(op objstore.Op) objstoretest.Fault {
			if op.Kind == objstore.OpPutIfAbsent && strings.HasPrefix(op.Key, path+"/_delta_log/") {
				time.AfterFunc(500*time.Millisecond, die) // before a retry
				return objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late}
			}
			return objstoretest.Fault{}
		})
		defer func() { _ = faulty.Close() }()
		_, err := l.replayer(faulty).Add(dying, good(0, 3))
		if !errors.Is(err, connector.ErrUndecided) {
			t.Fatal(err)
		}
		r := l.replayer(l.store)
		open, err := r.Withdraw(t.Context(), time.Minute)
		if err != nil || len(open) != 1 || !l.state().Letters(partition(0)).Replaying.Has(3) {
			t.Fatalf("a young intent stays: %+v %v", open, err)
		}
		time.Sleep(2 * time.Minute)
		if open, err = r.Withdraw(t.Context(), time.Minute); err != nil || len(open) != 0 {
			t.Fatalf("%+v %v", open, err)
		}
		l.decided(opslog.Discard{Letters: []opslog.Letters{opslog.LettersOf(partition(0), offsets.Of(3))}})
		if err := faulty.Land(faulty.Flying()[0].N); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("the put of a withdrawn replay: %v", err)
		}
		l.has()
		if l.state().Letters(partition(0)).Replaying.Len() > 0 {
			t.Error("it is still replaying")
		}
	})
}

// letters is how many dead letters the tests with several processes have.
const letters = 12

// failing returns the store of the lake with random delays. One of rate operations fails, and its put may land late.
func (l *lake) failing(draw func(n int) int, rate int) *objstoretest.Faulty {
	return objstoretest.NewFaulty(l.store, func(op objstore.Op) objstoretest.Fault {
		f := objstoretest.Fault{Delay: time.Duration(draw(200)) * time.Millisecond}
		if draw(rate) > 0 {
			return f
		}
		f.Err = objstoretest.ErrTimeout
		if op.Kind == objstore.OpPutIfAbsent {
			f.Effect = []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late}[draw(3)]
			f.Land = time.Duration(1+draw(60)) * time.Second
		}
		return f
	})
}

// discards discards five random dead letters of partition 0 that are not replayed or being replayed, as an operator does.
// Before each it waits less than pause seconds, and withdraws replays that began longer ago than old. It returns the
// offsets of those that it has discarded.
func (l *lake) discards(draw func(n int) int, pause int, old time.Duration) map[int64]bool {
	discarded := map[int64]bool{}
	log, r := opslog.Open(l.store, pipeline, opslog.Options{Guard: guard()}), l.replayer(l.store)
	for range 5 {
		time.Sleep(time.Duration(draw(pause)) * time.Second)
		offset := int64(draw(letters))
		if _, err := r.Withdraw(l.t.Context(), old); err != nil {
			l.t.Error(err)
		}
		refused := errors.New("it is replayed or being replayed")
		_, err := log.Append(l.t.Context(), opslog.Operation{
			Operator: "eva", Reason: "r", Body: opslog.Discard{Letters: []opslog.Letters{opslog.LettersOf(partition(0), offsets.Of(offset))}},
		}, func(s *opslog.State) error {
			if l := s.Letters(partition(0)); l.Replaying.Has(offset) || l.Replayed.Has(offset) {
				return refused
			}
			return nil
		})
		switch {
		case err == nil:
			discarded[offset] = true
		case !errors.Is(err, refused):
			l.t.Error(err)
		}
	}
	return discarded
}

// TestAdd_Concurrently lets several processes replay the same dead letters beside an operator who discards some, on a store
// that fails at random and lets puts land late. In the end no record has two rows, no discarded one has a row, and all
// others have one.
func TestAdd_Concurrently(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { deltatest.Bubble(t, func(t *testing.T) { concurrently(t, seed) }) })
	}
}

func concurrently(t *testing.T, seed uint64) {
	l := newLake(t)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	faulty := l.failing(draw, 12)
	defer func() { _ = faulty.Close() }()
	var running sync.WaitGroup
	for range 3 {
		r := l.replayer(faulty)
		running.Go(func() {
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+draw(60))*time.Second)
				from := int64(draw(letters))
				_, _ = r.Add(ctx, good(0, from, (from+1)%letters, (from+5)%letters)) // the rows decide
				cancel()
			}
		})
	}
	var discarded map[int64]bool
	running.Go(func() { discarded = l.discards(draw, 40, 10*time.Second) })
	running.Wait()
	time.Sleep(2 * time.Minute) // everything lands
	synctest.Wait()
	all := make([]int64, letters)
	for i := range all {
		all[i] = int64(i)
	}
	add(t, l.replayer(l.store), good(0, all...)...)
	l.settled()
	want := slices.DeleteFunc(all, func(offset int64) bool { return discarded[offset] })
	l.has(names(0, want...)...)
	if got := l.state().Letters(partition(0)).Replayed; !got.Equal(offsets.Of(want...)) {
		t.Errorf("replayed %v, want %v; discarded %v", got, want, slices.Sorted(maps.Keys(discarded)))
	}
}

func TestMain(m *testing.M) { os.Exit(deltatest.Main(m)) }
