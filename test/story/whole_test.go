package story_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/test/story"
)

var wholes = flag.Int("story.wholes", 20, "how many seeded schedules to run over the shipped table")

// TestMain makes the Parquet library create its shared Zstd encoder and decoder outside of every synctest bubble: their
// channels could not be used in other bubbles.
func TestMain(m *testing.M) {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		panic(err)
	}
	text := []byte("made outside of every bubble")
	codec.Decode(make([]byte, len(text)), codec.Encode(nil, text))
	m.Run()
}

// mortal is a process's client of the store. Once dead is set, every request fails without being sent.
type mortal struct {
	objstore.Store
	dead atomic.Bool
}

var errProcessGone = classify.Mark(fmt.Errorf("the process is gone: %w", objstore.ErrNotSent), classify.Canceled)

func (m *mortal) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if m.dead.Load() {
		return nil, errProcessGone
	}
	return m.Store.Get(ctx, key, off, n)
}

func (m *mortal) Head(ctx context.Context, key string) (objstore.Info, error) {
	if m.dead.Load() {
		return objstore.Info{}, errProcessGone
	}
	return m.Store.Head(ctx, key)
}

func (m *mortal) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if m.dead.Load() {
		return errProcessGone
	}
	return m.Store.Put(ctx, key, body, mode)
}

func (m *mortal) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if m.dead.Load() {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, errProcessGone) }
	}
	return m.Store.List(ctx, prefix, after)
}

func (m *mortal) Delete(ctx context.Context, key string) error {
	if m.dead.Load() {
		return errProcessGone
	}
	return m.Store.Delete(ctx, key)
}

// bucket is a store in memory whose operations may be late, fail before or after they took effect, or take effect long
// after the sender has given up.
type bucket struct {
	mem     *objstore.Mem
	calm    atomic.Bool // while set, operations take time but do not fail
	harness *story.Harness
}

func (b *bucket) fault(op objstore.Op) objstoretest.Fault {
	c := b.harness.Chance
	f := objstoretest.Fault{Delay: time.Duration(c.N(int(100 * time.Millisecond)))}
	if b.calm.Load() || !c.Is(8) {
		return f
	}
	f.Err = []error{objstoretest.ErrUnavailable, objstoretest.ErrTimeout, objstoretest.ErrConflict}[c.N(3)]
	f.Effect = []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late}[c.N(3)]
	f.Land = time.Duration(1 + c.N(int(5*time.Second)))
	if f.Effect != objstoretest.Late {
		f.Land = 0
	}
	return f
}

// TestSchedules_ShippedTable is TestSchedules with the shipped JSON decoder and Delta table, over a store whose every
// operation may fail.
func TestSchedules_ShippedTable(t *testing.T) {
	first, last := uint64(1), uint64(*wholes)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	versions, added := 0, 0
	for s := first; s <= last && !t.Failed(); s++ {
		// The Parquet library keeps encoders in a sync.Pool. Their channels cannot be used in another bubble, and two
		// garbage collections empty the pool.
		runtime.GC()
		runtime.GC()
		synctest.Test(t, func(t *testing.T) {
			v, a := whole(t, s)
			versions, added = versions+v, added+a
		})
	}
	t.Logf("%d schedules, %d versions, %d columns added", last-first+1, versions, added)
	if *seed == 0 && added == 0 && !t.Failed() {
		t.Error("no commit added a column")
	}
}

// whole runs one schedule. It returns the number of versions of the table, and how many columns commits added.
func whole(t *testing.T, s uint64) (versions, added int) {
	t.Helper()
	h := story.NewHarness(s, 3)
	h.Logger = logger()
	b := &bucket{mem: objstore.NewMem(), harness: h}
	columns, err := schema.ParseDDL("v bigint not null, o struct<id:string>")
	if err != nil {
		t.Fatal(err)
	}
	h.Broker.Value = func(k story.Kind, offset int64) []byte {
		if k == story.Poison {
			return fmt.Appendf(nil, `{"v":"%d"}`, offset*3)
		}
		return fmt.Appendf(nil, `{"v":%d}`, offset*3)
	}
	if s%2 == 0 {
		h.Letters = &story.LetterLog{}
	}
	var identity idempotency.Identity
	if s%3 > 0 {
		h.Twins = story.NewTwins(h.Chance, 24*time.Hour)
		h.Twins.Random(h.Broker)
		if s%3 == 1 { // in these schedules the identity is a field of the value, in the others a header
			h.Twins.Identity = idempotency.Identity{By: idempotency.ByField, Name: "o.id"}
			h.Broker.Carries = func(value []byte, id string) []byte {
				return fmt.Appendf(nil, `%s,"o":{"id":%q}}`, value[:len(value)-1], id)
			}
		}
		if identity = h.Twins.Identity; identity.Stored() {
			columns = columns.WithFingerprint()
		}
	}
	h.Open = func(process string) (connector.Target, func(), func()) {
		columns := columns
		if s%2 == 1 { // in these schedules every process adds columns that others may not know
			columns = declaring(h.Chance, columns)
		}
		faulty := objstoretest.NewFaulty(b.mem, b.fault)
		m := &mortal{Store: faulty}
		log := h.Logger.With("member", process)
		table, err := delta.Open(m, delta.Options{
			Pipeline: story.Pipeline, Engine: "sluice/" + process, Schema: columns, Logger: log,
			Guard: reliability.NewGuard("store", reliability.Config{
				Backoff:  reliability.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.25},
				Failures: 5, OpenFor: 2 * time.Second, Successes: 1,
			}, slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists),
		})
		if err != nil {
			panic(err)
		}
		return connector.Target{Table: table, Decoder: decode.JSON{Identity: identity}}, func() { m.dead.Store(true) }, table.Close
	}
	h.Next = func() int {
		info, err := delta.Inspect(t.Context(), b.mem)
		if err != nil {
			panic(err)
		}
		return int(info.Version) + 1
	}
	h.Positions = func() map[string]int64 {
		at := map[string]int64{}
		info, err := delta.Inspect(t.Context(), b.mem)
		if err != nil {
			return at
		}
		for _, x := range info.Txns {
			at[x.AppID] = x.Version
		}
		return at
	}
	disturb(t, h, func() {})
	b.calm.Store(true)
	calm(t, h, s)
	h.Close()
	for _, v := range h.Broker.Violations() {
		t.Errorf("seed %d: %s", s, v)
	}
	if broken := judge(h, versionsIn(t, h, b.mem)); broken != "" {
		t.Errorf("seed %d: %s", s, broken)
	}
	judgeTable(t, h, b.mem, s)
	added = judgeColumns(t, b.mem, s)
	for _, v := range b.mem.Violations() {
		t.Errorf("seed %d: %s", s, v)
	}
	info, err := delta.Inspect(t.Context(), b.mem)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Version) + 1, added
}

// declaring returns columns and some of five more, at two depths. Members with different ones add them at once.
func declaring(c *story.Chance, columns *schema.Schema) *schema.Schema {
	for _, text := range []string{"a string", "b double", "o struct<id:string, x:int>", "o struct<y:array<string>>", "l array<struct<z:boolean>>"} {
		if !c.Is(2) {
			continue
		}
		more, err := schema.ParseDDL("v bigint, " + text)
		if err == nil {
			more, err = columns.Extended(more)
		}
		if err != nil {
			panic(err)
		}
		columns = more
	}
	return columns
}

// judgeColumns checks the schemas of a table whose members add columns. Each version keeps the columns of the one before
// and the table's id, and the data files of a version have only columns of its schema.
func judgeColumns(t *testing.T, store objstore.Store, s uint64) (added int) {
	t.Helper()
	var table *schema.Schema
	var before deltalog.Metadata
	for c, err := range deltalog.Commits(t.Context(), store, deltalog.All) {
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Actions {
			m, ok := a.(deltalog.Metadata)
			if !ok {
				continue
			}
			next, err := schema.FromDelta([]byte(m.SchemaString))
			if err != nil {
				t.Fatal(err)
			}
			if table != nil {
				if err := next.Fits(table); err != nil || m.ID != before.ID || next.Equal(table) {
					t.Errorf("seed %d: version %d sets %s after %s: %v", s, c.Version, next.DDL(), table.DDL(), err)
				}
				added += len(table.ChangesTo(next).Added)
			}
			table, before = next, m
		}
		for _, a := range c.Actions {
			if add, ok := a.(deltalog.Add); ok {
				for _, leaf := range leavesOf(t, store, add) {
					if !table.Has(leaf) {
						t.Errorf("seed %d: version %d has a file with %q, the table has %s", s, c.Version, leaf, table.DDL())
					}
				}
			}
		}
	}
	return added
}

// leavesOf returns the paths of the columns in a data file that are in no list.
func leavesOf(t *testing.T, store objstore.Store, add deltalog.Add) (paths [][]string) {
	t.Helper()
	r, err := store.Get(t.Context(), deltalog.Key(add.Path), 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := file.NewParquetReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.MetaData().Schema.NumColumns() {
		if c := f.MetaData().Schema.Column(i); c.MaxRepetitionLevel() == 0 {
			paths = append(paths, c.ColumnPath())
		}
	}
	return paths
}

// judgeTable reads the Delta log and the data files, without the member's tables. Each record from the initial position
// on must be one row, in order. Each commit must start at the position that the commit before it has set. The log must
// have the txn that marks the table as one of the pipeline.
func judgeTable(t *testing.T, h *story.Harness, store objstore.Store, s uint64) {
	t.Helper()
	starts, next := map[int32]int64{}, map[int32]int64{}
	var log strings.Builder
	var ranges []connector.Range
	for e, err := range delta.History(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, e.Ranges...)
		fmt.Fprintf(&log, "%d %s %v\n", e.Version, e.Operation, e.Ranges)
		for _, r := range e.Ranges {
			if r.From == -1 {
				if _, twice := starts[r.Partition]; twice {
					t.Errorf("seed %d: partition %d started twice", s, r.Partition)
				}
				starts[r.Partition] = r.Next
			} else if next[r.Partition] != r.From {
				t.Errorf("seed %d: partition %d: a commit from %d after one to %d", s, r.Partition, r.From, next[r.Partition])
			}
			next[r.Partition] = r.Next
		}
	}
	judgeLetters(t, h, ranges, s)
	rows := map[int32][]int64{}
	for f, err := range deltatest.Adds(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range delta.Offsets(t.Context(), store, f) {
			if err != nil {
				t.Fatal(err)
			}
			rows[r.Partition] = append(rows[r.Partition], r.Offset)
		}
	}
	for _, p := range h.Broker.Partitions(story.Topic) {
		end := int64(len(h.Broker.Kinds(story.Topic, p.ID)))
		if got, want := rows[p.ID], h.Want(p.ID, starts[p.ID], end); !slices.Equal(got, want) {
			t.Errorf("seed %d: partition %d has rows %v, want %v\n%s", s, p.ID, got, want, log.String())
		}
	}
	info, err := delta.Inspect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	mark := idempotency.TableAppID(story.Pipeline, info.ID)
	if !slices.ContainsFunc(info.Txns, func(x deltalog.Txn) bool { return x.AppID == mark }) {
		t.Errorf("seed %d: %v", s, errors.New("no mark of the pipeline on the table"))
	}
}
