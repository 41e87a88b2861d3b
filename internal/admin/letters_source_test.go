package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/laketest"
	"sluice/internal/lookup"
	"sluice/reliability"
	"sluice/reliability/deadletter"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// memoryLetters is a letterSource with the dead letters of one partition, by offset. A nil value is no dead letter.
type memoryLetters struct {
	p   connector.Partition
	all []*deadletter.Letter
}

func (s *memoryLetters) letters(_ context.Context, p connector.Partition, from, next int64, each eachLetter) error {
	for offset, l := range s.all {
		if p != s.p || int64(offset) < from || int64(offset) >= next {
			continue
		}
		var notOne error
		if l == nil {
			notOne = errors.New("none")
		}
		if err := each(int64(offset), l, notOne); err != nil {
			return err
		}
	}
	return nil
}

// letterAt returns dead letter number i of a test. Among the keys, values and headers are absent, empty and binary
// ones, which a source could confuse.
func letterAt(i int) *deadletter.Letter {
	at := time.Date(2026, 3, 1, 12, 0, i, 123_456_000, time.UTC)
	l := &deadletter.Letter{
		Source: idempotency.Coordinates{
			Partition: connector.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{7}, ID: int32(i % 3)}, Offset: int64(100 + i),
		},
		Timestamp: int64(1000 + i), Key: fmt.Appendf(nil, "key \xff %d", i), Value: fmt.Appendf(nil, `{"n":%d}`, i),
		Headers: []deadletter.Header{{Key: "h", Value: nil}, {Key: "h", Value: []byte{0, 0xff, byte(i)}}},
		Class:   classify.Poison, Reason: "type_mismatch", Detail: fmt.Sprintf("detail %d", i), Trace: "trace", Retries: i,
		FirstFailure: at.Add(-time.Second), LastFailure: at, Written: at.Truncate(time.Millisecond), Member: "m", Correlation: fmt.Sprint(i), Batch: "b",
	}
	switch i % 5 {
	case 1:
		l.Key, l.Value = nil, nil
	case 2:
		l.Key, l.Value, l.Headers = []byte{}, []byte{}, nil
	}
	return l
}

// archivedLake returns a lake in which one partition and the letter table have the same dead letters, n in all.
func archivedLake(t *testing.T, n int) (l *laketest.Lake, p connector.Partition, all []*deadletter.Letter) {
	t.Helper()
	l = laketest.New(t, "topics: {orders: {bad_records: dead_letter}}")
	l.Create("orders-dlq", 1)
	topic, err := l.PartitionsOf("orders-dlq")
	if err != nil {
		t.Fatal(err)
	}
	p = connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID}
	var letters []deadletter.Letter
	for i := range n {
		all = append(all, letterAt(i))
		letters = append(letters, *letterAt(i))
	}
	l.WriteLetters(deadletter.Form{}, "orders-dlq", letters...)
	archiveLetters(t, objstore.Sub(l.Store, "orders_letters"), p, all)
	return l, p, all
}

// letterReaderOf returns a reader of the dead letters of a lake.
func letterReaderOf(t *testing.T, l *laketest.Lake) *letterReader {
	t.Helper()
	cfg := laketest.Load(t, l.Config)
	r, end, err := lookup.NewReader(t.Context(), cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s := newLetterReader(&Access{Config: cfg}, r)
	t.Cleanup(s.close)
	return s
}

// letterSources returns a partition and sources with the same dead letters, n in all.
func letterSources(t *testing.T, n int) (connector.Partition, map[string]letterSource) {
	t.Helper()
	l, p, all := archivedLake(t, n)
	store := objstore.Sub(l.Store, "orders_letters")
	state, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return p, map[string]letterSource{
		"memory": &memoryLetters{p, all}, "topic": letterReaderOf(t, l).topic, "letter table": &archivedLetters{pipeline: "p", store: store, state: state},
	}
}

// archiveLetters writes a letter table as members do, in several versions. It also has rows of other partitions, and of
// a dead-letter topic that was created again since.
func archiveLetters(t *testing.T, store objstore.Store, p connector.Partition, letters []*deadletter.Letter) {
	t.Helper()
	columns, err := schema.ParseDDL(decode.DeadLetterDDL)
	if err != nil {
		t.Fatal(err)
	}
	guard := reliability.NewGuard("store", reliability.Config{
		Backoff:  reliability.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .25},
		Failures: 5, OpenFor: time.Minute, Successes: 3,
	}, slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	table, err := delta.Open(store, delta.Options{Pipeline: "p", Engine: "test", Schema: columns.WithTopicID(), Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	s, err := table.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, earlier := p, p
	next.ID++
	earlier.TopicID[0]++
	for _, part := range []struct {
		of        connector.Partition
		from, end int
	}{{earlier, 0, len(letters)}, {p, 0, len(letters) / 3}, {next, 0, len(letters)}, {p, len(letters) / 3, len(letters)}} {
		b, err := decode.DeadLetters{}.Builder(s.Schema)
		if err != nil {
			t.Fatal(err)
		}
		for i := part.from; i < part.end; i++ {
			encoded := deadletter.Form{}.Encode(*letters[i])
			r := &connector.Record{Offset: int64(i), Timestamp: encoded.Timestamp, Key: encoded.Key, Value: encoded.Value}
			for _, h := range encoded.Headers {
				r.Headers = append(r.Headers, connector.Header(h))
			}
			if err := b.Add(part.of, r); err != nil {
				t.Fatal(err)
			}
		}
		rows := b.Seal()
		staged, err := table.Stage(t.Context(), s, "batch", []connector.Piece{{Rows: rows, To: rows.NumRows()}}, func(int, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		c := &connector.Commit{Operation: "STREAMING UPDATE", Staged: staged, Txns: []connector.Txn{{AppID: part.of.AppID("p"), Version: int64(part.end)}}}
		if s, err = table.Commit(t.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLetterSources: Kafka and the letter table have the same dead letters as a source in memory, at each range.
func TestLetterSources(t *testing.T) {
	const n = 200
	p, sources := letterSources(t, n)
	other := p
	other.TopicID[3]++
	read := func(s letterSource, of connector.Partition, from, next int64) map[int64]deadletter.Letter {
		t.Helper()
		found := map[int64]deadletter.Letter{}
		err := s.letters(t.Context(), of, from, next, func(offset int64, l *deadletter.Letter, notOne error) error {
			if _, twice := found[offset]; twice || notOne != nil {
				t.Errorf("offset %d: %v, twice: %v", offset, notOne, twice)
			}
			found[offset] = *keep(l)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for name, s := range sources {
		t.Run(name, func(t *testing.T) {
			for _, span := range [][2]int64{{0, n}, {0, 1}, {n - 1, n}, {50, 120}, {66, 67}, {7, 7}} {
				want := read(sources["memory"], p, span[0], span[1])
				if len(want) != int(span[1]-span[0]) {
					t.Fatalf("%d dead letters", len(want))
				}
				if d := cmp.Diff(want, read(s, p, span[0], span[1])); d != "" {
					t.Errorf("%v (-want +got):\n%s", span, d)
				}
			}
			stop, calls := errors.New("stop"), 0
			err := s.letters(t.Context(), p, 0, n, func(int64, *deadletter.Letter, error) error { calls++; return stop })
			if err != stop || calls != 1 { //nolint:errorlint // it comes back unchanged
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

// TestLetterReader_At reads some dead letters by their offsets: each comes once, before and after retention has deleted some.
func TestLetterReader_At(t *testing.T) {
	const n = 60
	l, p, _ := archivedLake(t, n)
	s := letterReaderOf(t, l)
	want := []int64{0, 3, 9, 10, 11, 30, 58, 59}
	for _, start := range []int64{0, 10, 40, n} {
		var got []int64
		moved := false
		l.DeleteTo("orders-dlq", start)
		err := s.at(t.Context(), p, want, func(offset int64, _ *deadletter.Letter, notOne error) error {
			if got = append(got, offset); start == 10 && !moved { // retention deletes more during the read
				moved = true
				l.DeleteTo("orders-dlq", 31)
			}
			return notOne
		})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("log start %d: %v, %v", start, got, err)
		}
	}
}

// movingStart is a letterSource like topicLetters. Once the records before the offset moves were read, it calls move,
// and then continues at start: retention has deleted the records between the two.
type movingStart struct {
	letterSource
	moves, start int64
	move         func()
}

func (s *movingStart) letters(ctx context.Context, p connector.Partition, from, next int64, each eachLetter) error {
	if err := s.letterSource.letters(ctx, p, from, s.moves, each); err != nil {
		return err
	}
	s.move()
	return s.letterSource.letters(ctx, p, s.start, next, each)
}

// TestLetterReader_RetentionDuringARead: dead letters that retention deletes while their topic is read come from the
// letter table, each once.
func TestLetterReader_RetentionDuringARead(t *testing.T) {
	const n = 60
	for _, start := range []int64{40, n} {
		l, p, _ := archivedLake(t, n)
		l.DeleteTo("orders-dlq", 10)
		s := letterReaderOf(t, l)
		s.topic = &movingStart{s.topic, 20, start, func() { l.DeleteTo("orders-dlq", start) }}
		var offsets, want []int64
		err := s.each(t.Context(), p, 0, toEnd, func(offset int64, _ *deadletter.Letter, notOne error) error {
			offsets = append(offsets, offset)
			return notOne
		})
		for i := range int64(n) {
			want = append(want, i)
		}
		slices.Sort(offsets)
		if err != nil || !slices.Equal(offsets, want) || len(s.notes) > 0 {
			t.Errorf("log start %d: %v, %v, %q", start, offsets, err, s.notes)
		}
	}
}
