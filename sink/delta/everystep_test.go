package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// life is one process that writes partition 0 in ranges of size records, until the position is target or ctx ends. All
// lives use different sizes, so a range that is written twice appears as duplicate rows. Each also declares a column of
// its own, so the first commit of a life to a table that exists adds a column.
func life(ctx context.Context, t *testing.T, store objstore.Store, size, target int64) error {
	tab := process(t, store, declares(columnOf(size)))
	defer tab.Close()
	for {
		s, err := tab.Load(ctx)
		for err == nil && s.Positions[app(0)] < target {
			at := s.Positions[app(0)]
			s, err = (rowRange{0, at, min(at+size, target)}).write(ctx, tab, s)
		}
		var held *hold.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &held), classify.Of(err) == classify.Fenced:
			err = reliability.Wait(ctx, time.Minute) // a minute later the next attempt resumes, or polls again
		}
		if err != nil {
			return err
		}
	}
}

// columnOf returns the name of the column that only a life with this size declares.
func columnOf(size int64) string { return fmt.Sprint("of_", size) }

// recordedStore is a store that injects faults and records its operations.
type recordedStore struct {
	mem    *objstore.Mem
	faulty *objstoretest.Faulty

	others sync.WaitGroup // operations of other processes that run concurrently

	mu  sync.Mutex
	ops []objstore.Op // all operations so far, in order
}

// newRecordedStore returns an empty store if exists is false. Otherwise the store has a table that gets a checkpoint
// every two commits.
func newRecordedStore(t *testing.T, exists bool, fault func(n int, op objstore.Op) objstoretest.Fault) *recordedStore {
	w := &recordedStore{mem: objstore.NewMem()}
	if exists {
		load(t, process(t, w.mem))
		s, err := deltalog.Load(t.Context(), w.mem)
		if err != nil {
			t.Fatal(err)
		}
		m := s.Metadata
		m.Configuration = map[string]string{"delta.checkpointInterval": "2"}
		foreign(t, w.mem, m)
	}
	w.faulty = objstoretest.NewFaulty(w.mem, func(op objstore.Op) objstoretest.Fault {
		w.mu.Lock()
		n := len(w.ops)
		w.ops = append(w.ops, op)
		w.mu.Unlock()
		return fault(n, op)
	})
	return w
}

// settle lets all Late operations that have not taken effect take effect now.
func (w *recordedStore) settle() {
	for _, op := range w.faulty.Flying() {
		_ = w.faulty.Land(op.N) // fails if another commit has the version meanwhile
	}
}

// stepFault is the way in which a step fails.
type stepFault struct {
	objstoretest.Fault
	onlyPuts bool
	// cleanup is true if, during the fault, other processes continue and the log is cleaned up to their checkpoint.
	cleanup bool
}

var faults = map[string]stepFault{
	"503, nothing happened":     {Fault: objstoretest.Fault{Err: objstoretest.ErrUnavailable}},
	"500, it happened":          {Fault: objstoretest.Fault{Err: objstoretest.ErrUnavailable, Effect: objstoretest.Done}},
	"403":                       {Fault: objstoretest.Fault{Err: objstoretest.ErrDenied}},
	"the answer takes an hour":  {Fault: objstoretest.Fault{Linger: time.Hour}},
	"sent after two hours":      {Fault: objstoretest.Fault{Delay: 2 * time.Hour}},
	"no answer, lands at once":  {Fault: objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: time.Millisecond}, onlyPuts: true},
	"no answer, lands too late": {Fault: objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: 5 * time.Second}, onlyPuts: true},
	"no answer, lands at last":  {Fault: objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late}, onlyPuts: true},
	"409":                       {Fault: objstoretest.Fault{Err: objstoretest.ErrConflict}, onlyPuts: true},
	"409, it happened":          {Fault: objstoretest.Fault{Err: objstoretest.ErrConflict, Effect: objstoretest.Done}, onlyPuts: true},
	"412 of nothing":            {Fault: objstoretest.Fault{Err: objstoretest.ErrExists}, onlyPuts: true},

	"the answer takes two hours, and the log is cleaned up": {Fault: objstoretest.Fault{Linger: 2 * time.Hour}, cleanup: true},
	"sent after two hours, to a log that was cleaned up":    {Fault: objstoretest.Fault{Delay: 2 * time.Hour}, cleanup: true},
}

// cleanupOf lets another process commit to partition 1 until there is a checkpoint. An hour and a half later, which is
// more than the shortest log retention, it deletes the log before that checkpoint.
func (w *recordedStore) cleanupOf(t *testing.T) {
	time.Sleep(10 * time.Minute)
	checkpoint := goOn(t, w.mem, -1)
	time.Sleep(90 * time.Minute)
	cleanUp(t, w.mem, checkpoint)
}

// TestEveryStepMayFail: every operation on the store fails in every way. Either the process continues, or it dies at
// that moment and another one takes over. In each case the rows are exact, the versions are contiguous, and a process
// that continued leaves no file that no version names.
func TestEveryStepMayFail(t *testing.T) {
	const target = 7
	every := 1
	if testing.Short() { // with the race detector a run takes ten times as long, and fewer suffice
		every = 5
	}
	bubble(t, func(t *testing.T) {
		runs := 0
		for _, exists := range []bool{false, true} {
			quiet := newRecordedStore(t, exists, func(int, objstore.Op) objstoretest.Fault { return objstoretest.Fault{} })
			if err := life(t.Context(), t, quiet.faulty, 3, target); err != nil {
				t.Fatal(err)
			}
			for name, fault := range faults {
				for _, crash := range []bool{false, true} {
					for n, op := range quiet.ops {
						if (op.Kind != objstore.OpPut && op.Kind != objstore.OpPutIfAbsent) && fault.onlyPuts {
							continue // for operations that are not puts, this fault is the same as a 503
						}
						if runs++; runs%every != 0 {
							continue
						}
						where := everyStep(t, exists, n, fault, crash, target)
						if t.Failed() {
							t.Fatalf("exists=%v crash=%v operation %d %s: %s", exists, crash, n, where, name)
						}
					}
				}
			}
		}
		t.Log(runs/every, "runs")
	})
}

func everyStep(t *testing.T, exists bool, n int, fault stepFault, crash bool, target int64) (where string) {
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	var w *recordedStore
	w = newRecordedStore(t, exists, func(i int, op objstore.Op) objstoretest.Fault {
		if i != n {
			return objstoretest.Fault{}
		}
		where = op.String()
		if crash {
			kill()
		}
		if fault.cleanup {
			w.others.Go(func() { w.cleanupOf(t) })
		}
		if op.Kind != objstore.OpPutIfAbsent && errors.Is(fault.Err, objstore.ErrExists) {
			return objstoretest.Fault{}
		}
		return fault.Fault
	})
	defer w.faulty.Close()
	err := life(ctx, t, w.faulty, 3, target)
	switch {
	case err == nil:
	case !crash:
		t.Errorf("the life ended: %v", err)
	default:
		if classify.Of(err) != classify.Canceled {
			t.Errorf("a killed life ended with %v", err)
		}
		if err := life(t.Context(), t, w.faulty, 2, target); err != nil {
			t.Errorf("the next life ended: %v", err)
		}
	}
	lives := []string{columnOf(3)}
	if err != nil {
		lives = append(lives, columnOf(2))
	}
	if fault.cleanup {
		w.others.Wait()
		checkCleaned(t, w.mem, target)
		checkColumns(t, w.mem, exists, lives...)
		return where
	}
	check(t, w.mem, target)
	w.settle()
	check(t, w.mem, target)
	checkColumns(t, w.mem, exists, lives...)
	if v := w.mem.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if !crash {
		noOrphans(t, w.mem)
	}
	return where
}

// checkCleaned checks a table whose log was cleaned up. It compares the rows as the function check does, and fails if
// the remaining versions have a gap or if a removed version was written again.
func checkCleaned(t *testing.T, mem *objstore.Mem, target int64) {
	t.Helper()
	s := stateOf(t, mem)
	checkRows(t, mem, s, target, s.Txns[app(1)].Version)
	last := int64(-1)
	for o, err := range mem.List(context.WithoutCancel(t.Context()), deltalog.Dir, "") {
		if err != nil {
			t.Fatal(err)
		}
		name, commit := strings.CutSuffix(strings.TrimPrefix(o.Key, deltalog.Dir), ".json")
		v, err := strconv.ParseInt(name, 10, 64)
		if !commit || err != nil {
			continue
		}
		if last >= 0 && v != last+1 {
			t.Errorf("version %d follows version %d", v, last)
		}
		last = v
	}
	if v := mem.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// checkColumns fails the test unless each file has only columns of the schema of its version, the newest schema has the
// columns of the lives once each, and the commits that added them kept the id and the properties of the table. A life
// that was killed before its commit leaves no column, if another one follows.
func checkColumns(t *testing.T, mem *objstore.Mem, exists bool, lives ...string) {
	t.Helper()
	s := stateOf(t, mem)
	columns := names(t, s.Metadata)
	for i, name := range lives {
		n := 0
		for _, c := range columns {
			if c == name {
				n++
			}
		}
		if n > 1 || n == 0 && i == len(lives)-1 {
			t.Errorf("%d columns %s in %q", n, name, columns)
		}
	}
	if exists && s.Metadata.Configuration["delta.checkpointInterval"] != "2" {
		t.Errorf("properties %v", s.Metadata.Configuration)
	}
	var schemas []deltalog.Metadata
	for c, err := range deltalog.Commits(context.WithoutCancel(t.Context()), mem, deltalog.All) {
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Actions {
			if m, ok := a.(deltalog.Metadata); ok {
				schemas = append(schemas, m)
			}
		}
		for _, a := range c.Actions {
			if add, ok := a.(deltalog.Add); ok && len(schemas) > 0 { // without a schema, a cleanup has removed it
				table := strings.Join(names(t, schemas[len(schemas)-1]), " ") + " "
				if file := strings.Join(fileColumns(t, mem, deltalog.Key(add.Path)), " ") + " "; !strings.HasPrefix(table, file) {
					t.Errorf("version %d: a file with the columns %q, the table has %q", c.Version, file, table)
				}
			}
		}
	}
	for _, m := range schemas {
		if m.ID != s.Metadata.ID {
			t.Errorf("the id changed from %s to %s", m.ID, s.Metadata.ID)
		}
	}
}

// noOrphans fails the test if a data file is not named by any version.
func noOrphans(t *testing.T, store objstore.Store) {
	t.Helper()
	var named []string
	for f, err := range deltatest.Adds(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, deltalog.Key(f.Path))
	}
	slices.Sort(named)
	if got := files(t, store); !slices.Equal(got, named) {
		t.Errorf("files %v, named are %v", got, named)
	}
}

// TestManyWritersUnderFaults: several processes write, some of them the same partition. Operations fail at random, take
// effect late or hang, and now and then a process dies. The table then has the expected rows.
func TestManyWritersUnderFaults(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { manyWriters(t, seed) })
		})
	}
}
