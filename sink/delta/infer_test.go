package delta_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/decode/decodetest"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// inferred makes rows of the records of partitions, with columns for their fields, as the pipeline does.
type inferred struct {
	decoder decode.JSON
	values  [][]string // the records of each partition by offset
	before  connector.Schema
}

func newInferred(values [][]string) *inferred {
	return &inferred{decoder: decode.JSON{NewColumns: &schema.NewColumns{PerCommit: 30, PerHour: 300}}, values: values}
}

// undeclared makes a table whose columns all come from records.
func undeclared(o *delta.Options) { o.Schema = &schema.Schema{} }

// randomValues returns n random records for each of the partitions.
func randomValues(seed uint64, partitions, n int) (values [][]string) {
	r := rand.New(rand.NewPCG(seed, 2))
	for range partitions {
		var of []string
		for range n {
			of = append(of, string(decodetest.RandomRecord(r)))
		}
		values = append(values, of)
	}
	return values
}

// write commits a range. The first of its rows are built for the schema of the commit before, as by a lane that does not
// know the newest one yet.
func (w *inferred) write(ctx context.Context, c rowRange, tab *delta.Table, s *connector.Snapshot) (*connector.Snapshot, error) {
	var pieces []connector.Piece
	middle := (c.from + c.next) / 2
	for _, part := range []struct {
		of       connector.Schema
		from, to int64
	}{{w.before, c.from, middle}, {s.Schema, middle, c.next}} {
		if part.of == nil {
			part.of = s.Schema
		}
		b, err := w.decoder.Builder(part.of)
		if err != nil {
			return nil, err
		}
		for o := part.from; o < part.to; o++ {
			p := idempotency.Partition{Topic: "orders", ID: c.partition}
			if err := b.Add(p, &connector.Record{Offset: o, Value: []byte(w.values[c.partition][o])}); err != nil {
				return nil, err
			}
		}
		if rows := b.Seal(); rows != nil {
			pieces = append(pieces, connector.Piece{Rows: rows, To: rows.NumRows()})
		}
	}
	w.before = s.Schema
	grown, _, err := connector.Grow(w.decoder, s, pieces)
	if err != nil {
		return nil, err
	}
	if err := tab.Rehearse(ctx, grown, pieces); err != nil {
		return nil, err
	}
	files, err := tab.Stage(ctx, grown, "b-1", pieces, nil)
	if err != nil {
		return nil, err
	}
	committed, err := tab.Commit(ctx, c.commit(files), c.pre)
	if err != nil {
		tab.Discard(ctx, files)
	}
	return committed, err
}

// checkValues fails the test unless each record of the partitions is in its row.
func (w *inferred) checkValues(t *testing.T, store objstore.Store) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	table, err := schema.FromDelta([]byte(stateOf(t, store).Metadata.SchemaString))
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range deltatest.Adds(ctx, store) {
		if err != nil {
			t.Fatal(err)
		}
		err := deltatest.Batches(ctx, store, deltalog.Key(f.Path), func(rows arrow.RecordBatch) error {
			records, err := decodetest.ReadBack(table, rows)
			if err != nil {
				return err
			}
			partitions := rows.Column(rows.Schema().FieldIndices(schema.KafkaPartition)[0]).(*array.Int32)
			offsets := rows.Column(rows.Schema().FieldIndices(schema.KafkaOffset)[0]).(*array.Int64)
			for i, got := range records {
				record := w.values[partitions.Value(i)][offsets.Value(i)]
				want, err := decodetest.Canonical([]byte(record))
				if err != nil {
					return err
				}
				if got != want {
					return fmt.Errorf("partition %d, offset %d: %s\nwant %s\ngot  %s", partitions.Value(i), offsets.Value(i), record, want, got)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// drive is one life of a member that writes a partition, until it is killed or done: see the function drive.
func (w *inferred) drive(ctx context.Context, t *testing.T, store objstore.Store, partition int32, roll func(int64) int64) bool {
	tab := process(t, store, undeclared)
	defer tab.Close()
	w.before = nil
	for ctx.Err() == nil {
		s, err := tab.Load(ctx)
		for err == nil {
			at, target := s.Positions[app(partition)], int64(len(w.values[partition]))
			if at == target {
				return true
			}
			s, err = w.write(ctx, rowRange{partition, at, min(at+1+roll(6), target)}, tab, s)
		}
		if class := classify.Of(err); class != classify.Fenced && class != classify.Canceled {
			t.Errorf("partition %d: %v", partition, err)
			return false
		}
	}
	return false
}

// TestInfer_RacingMembers: members that find columns in their records at the same time, often the same column with
// another type, under faults and crashes: each record is in the table once, with all its values.
func TestInfer_RacingMembers(t *testing.T) {
	first, runs := rand.Uint64(), 8
	if testing.Short() {
		runs = 2
	}
	for i := range runs {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { racingMembers(t, seed) })
		})
	}
}

func racingMembers(t *testing.T, seed uint64) {
	const partitions, target = 4, 24
	values := randomValues(seed, partitions, target)
	roll := diceOf(seed)
	kinds := []objstoretest.Fault{
		{Err: objstoretest.ErrUnavailable},
		{Err: objstoretest.ErrUnavailable, Effect: objstoretest.Done},
		{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: 3 * time.Second},
		{Err: objstoretest.ErrConflict},
		{Linger: time.Minute},
	}
	w := newRecordedStore(t, false, randomFaults(roll, 10, kinds))
	defer w.faulty.Close()
	var all sync.WaitGroup
	for i := range 5 { // partition 0 has two
		all.Go(func() {
			for {
				ctx, kill := context.WithTimeout(t.Context(), time.Duration(1+roll(600))*time.Second)
				done := newInferred(values).drive(ctx, t, w.faulty, int32(i%partitions), roll)
				kill()
				if done || t.Failed() {
					return
				}
			}
		})
	}
	all.Wait()
	w.settle()
	check(t, w.mem, target, target, target, target)
	newInferred(values).checkValues(t, w.mem)
	if v := w.mem.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// TestInfer_EveryStepMayFail: a member that finds columns in its records dies before, during and after each operation of
// the store. The next one continues: each record is in the table once, with all its values.
func TestInfer_EveryStepMayFail(t *testing.T) {
	const target = 5
	bubble(t, func(t *testing.T) {
		for _, exists := range []bool{false, true} {
			values := [][]string{{`{"a":1}`, `{"a":2,"b":{"c":true}}`, `{"a":"x","b":{"d":[{"e":1}]}}`, `{"b":{"d":[{"f":"y"},{"e":"z"}]}}`, `{"g h":null,"g,h":1}`}}
			quiet := newRecordedStore(t, exists, func(int, objstore.Op) objstoretest.Fault { return objstoretest.Fault{} })
			if err := newInferred(values).life(t.Context(), t, quiet.faulty, 2); err != nil {
				t.Fatal(err)
			}
			newInferred(values).checkValues(t, quiet.mem)
			for name, fault := range faults {
				for n := range quiet.ops {
					if fault.onlyPuts || fault.cleanup {
						continue
					}
					ctx, kill := context.WithCancel(t.Context())
					w := newRecordedStore(t, exists, func(i int, _ objstore.Op) objstoretest.Fault {
						if i != n {
							return objstoretest.Fault{}
						}
						kill()
						return fault.Fault
					})
					if err := newInferred(values).life(ctx, t, w.faulty, 2); err != nil && classify.Of(err) != classify.Canceled {
						t.Fatalf("operation %d, %s: %v", n, name, err)
					}
					kill()
					if err := newInferred(values).life(t.Context(), t, w.faulty, 1); err != nil {
						t.Fatalf("operation %d, %s, the next life: %v", n, name, err)
					}
					w.settle()
					check(t, w.mem, target)
					newInferred(values).checkValues(t, w.mem)
					w.faulty.Close()
					if v := w.mem.Violations(); len(v) > 0 || t.Failed() {
						t.Fatalf("operation %d, %s: %v", n, name, v)
					}
				}
			}
		}
	})
}

// life writes partition 0 in ranges of size records: see the function life.
func (w *inferred) life(ctx context.Context, t *testing.T, store objstore.Store, size int64) error {
	tab := process(t, store, undeclared)
	defer tab.Close()
	for {
		s, err := tab.Load(ctx)
		for target := int64(len(w.values[0])); err == nil && s.Positions[app(0)] < target; {
			at := s.Positions[app(0)]
			s, err = w.write(ctx, rowRange{0, at, min(at+size, target)}, tab, s)
		}
		var held *hold.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &held), classify.Of(err) == classify.Fenced:
			err = reliability.Wait(ctx, time.Minute)
		}
		if err != nil {
			return err
		}
	}
}

// TestInfer_Partitioned: with table partitions, rows get the columns for their fields, too, in chunks of several batches.
func TestInfer_Partitioned(t *testing.T) {
	values := randomValues(rand.Uint64(), 1, 40)
	for i, v := range values[0] {
		if v = fmt.Sprintf(`{"n":%d,"bucket":"x"`, i%3) + strings.Replace(","+v[1:], ",}", "}", 1); i%7 == 0 {
			v = `{"bucket":"no n"}`
		}
		values[0][i] = v
	}
	columns, err := parse(t, "n int").WithPartitionBy([]string{"bucket(4, n) AS bucket"})
	if err != nil {
		t.Fatal(err)
	}
	mem := objstore.NewMem()
	w := newInferred(values)
	w.decoder.Declared = columns
	tab := open(t, mem, func(o *delta.Options) { o.Schema = columns })
	s := load(t, tab)
	for at := int64(0); at < 40; at += 10 {
		if s, err = w.write(t.Context(), rowRange{0, at, at + 10}, tab, s); err != nil {
			t.Fatal(err)
		}
	}
	w.checkValues(t, mem)
	state := stateOf(t, mem)
	if p := state.Metadata.PartitionColumns; len(p) != 1 {
		t.Errorf("partitioned by %v", p)
	}
	rows := int64(0)
	for f, err := range deltatest.Adds(t.Context(), mem) {
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range delta.Offsets(t.Context(), mem, f) {
			if err != nil {
				t.Fatal(err)
			}
			rows++
		}
	}
	if rows != 40 {
		t.Errorf("%d rows", rows)
	}
}

// TestInfer_SameColumn: two members make a column of the same name. With the same type both succeed. With another type,
// or of another field, or one as text of any value, the second one is fenced; its records are read again, and their
// values are in the table.
func TestInfer_SameColumn(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string
		fenced        bool
	}{
		"the same type":          {`{"x":1}`, `{"x":2,"y":3}`, false},
		"another type":           {`{"x":1}`, `{"x":"text"}`, true},
		"another field":          {`{"a b":1}`, `{"a,b":2}`, true},
		"another field, in case": {`{"x":1}`, `{"X":2}`, true},
		"text of any value":      {`{"x":"text"}`, `{"x":[1,"mixed"]}`, true},
		"in a struct":            {`{"s":[{"x":1}]}`, `{"s":[{"x":true}]}`, true},
		"text within a struct":   {`{"s":[{"x":"1"}]}`, `{"s":[{"x":[1,true]}]}`, true},
	} {
		mem := objstore.NewMem()
		values := [][]string{{c.first}, {c.second}}
		a, b := open(t, mem, undeclared), open(t, mem, undeclared)
		sa, sb := load(t, a), load(t, b)
		if _, err := newInferred(values).write(t.Context(), rowRange{0, 0, 1}, a, sa); err != nil {
			t.Fatal(err)
		}
		w := newInferred(values)
		_, err := w.write(t.Context(), rowRange{1, 0, 1}, b, sb)
		if fenced := classify.Of(err) == classify.Fenced; fenced != c.fenced || !fenced && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			w.before = nil // the batch is dropped, and its records are read again
			if _, err := w.write(t.Context(), rowRange{1, 0, 1}, b, load(t, b)); err != nil {
				t.Errorf("%s: again: %v", name, err)
			}
		}
		check(t, mem, 1, 1)
		w.checkValues(t, mem)
	}
}
