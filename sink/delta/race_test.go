package delta_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// diceOf returns a function for several goroutines that returns numbers of a seed, below n.
func diceOf(seed uint64) func(n int64) int64 {
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(seed, 1))
	return func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return dice.Int64N(n)
	}
}

// randomFaults lets a share of the requests, in percent, fail in one of the ways, and delays each.
func randomFaults(roll func(int64) int64, percent int64, kinds []objstoretest.Fault) func(int, objstore.Op) objstoretest.Fault {
	return func(int, objstore.Op) objstoretest.Fault {
		f := objstoretest.Fault{}
		if roll(100) < percent {
			f = kinds[roll(int64(len(kinds)))]
		}
		f.Delay += time.Duration(roll(100)) * time.Millisecond
		return f
	}
}

// manyWriters lets six writers work on four partitions until all positions are at target. Two of the partitions have
// two writers.
func manyWriters(t *testing.T, seed uint64) {
	const partitions, target = 4, 12
	roll := diceOf(seed)
	kinds := []objstoretest.Fault{
		{Err: objstoretest.ErrUnavailable},
		{Err: objstoretest.ErrUnavailable, Effect: objstoretest.Done},
		{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: 3 * time.Second},
		{Err: objstoretest.ErrConflict},
		{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late, Land: 5 * time.Minute},
		{Linger: time.Minute},
	}
	w := newRecordedStore(t, true, randomFaults(roll, 15, kinds))
	defer w.faulty.Close()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for { // begins a new life after each one that was killed
				ctx, kill := context.WithTimeout(t.Context(), time.Duration(1+roll(600))*time.Second)
				done := drive(ctx, t, w.faulty, int32(i%partitions), target, roll)
				kill()
				if done || t.Failed() {
					return
				}
			}
		})
	}
	all.Wait()
	check(t, w.mem, target, target, target, target)
	w.settle()
	check(t, w.mem, target, target, target, target)
	if v := w.mem.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// drive is one life of a writer of a partition, until it is killed or done. It reports whether the position reached
// target.
func drive(ctx context.Context, t *testing.T, store objstore.Store, partition int32, target int64, roll func(int64) int64) bool {
	tab := process(t, store)
	defer tab.Close()
	for ctx.Err() == nil {
		s, err := tab.Load(ctx)
		for err == nil {
			at := s.Positions[app(partition)]
			if at == target {
				return true
			}
			s, err = (rowRange{partition, at, min(at+1+roll(4), target)}).write(ctx, tab, s)
		}
		if class := classify.Of(err); class != classify.Fenced && class != classify.Canceled {
			t.Errorf("partition %d: %v", partition, err)
			return false
		}
	}
	return false
}

// TestSixteenWriters: sixteen writers commit fifty times each, each to its own partition. No commit is lost, and no
// version is written twice.
func TestSixteenWriters(t *testing.T) {
	const writers = 16
	commits := int64(50)
	if testing.Short() { // with the race detector a run takes ten times as long, and fewer commits suffice
		commits = 15
	}
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		dice := rand.New(rand.NewPCG(1, 2))
		w := newRecordedStore(t, true, func(int, objstore.Op) objstoretest.Fault {
			mu.Lock()
			defer mu.Unlock()
			return objstoretest.Fault{Delay: time.Duration(5+dice.IntN(20)) * time.Millisecond}
		})
		defer w.faulty.Close()
		began := time.Now()
		var all sync.WaitGroup
		for p := range int32(writers) {
			all.Go(func() {
				tab := process(t, w.faulty)
				defer tab.Close()
				_, err := tab.Load(t.Context())
				for i := int64(0); i < commits && err == nil; i++ {
					c := rowRange{p, i, i + 1}
					_, err = tab.Commit(t.Context(), c.commit(nil), c.pre)
				}
				if err != nil {
					t.Errorf("partition %d: %v", p, err)
				}
			})
		}
		all.Wait()
		s, err := deltalog.Load(t.Context(), w.mem)
		if err != nil {
			t.Fatal(err)
		}
		if s.Version != writers*commits+1 { // plus version 0, which created the table, and version 1, which set a property
			t.Errorf("version %d", s.Version)
		}
		for p := range int32(writers) {
			if got := s.Txns[app(p)].Version; got != commits {
				t.Errorf("partition %d at %d", p, got)
			}
		}
		if v := w.mem.Violations(); len(v) > 0 {
			t.Error(v)
		}
		t.Logf("%d commits in %v of the store's time, %d operations", writers*commits, time.Since(began), len(w.ops))
	})
}

// TestCreateRace: eight processes create the table at once, some with another schema. One of them writes version 0; the
// others adopt that table or return the conflict of schemas.
func TestCreateRace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newRecordedStore(t, false, func(int, objstore.Op) objstoretest.Fault { return objstoretest.Fault{Delay: 10 * time.Millisecond} })
		defer w.faulty.Close()
		ids := make([]string, 8)
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				text := ddl
				if i >= 4 {
					text = "id string"
				}
				tab := open(t, w.faulty, func(o *delta.Options) { o.Schema = parse(t, text) })
				defer tab.Close()
				var s *connector.Snapshot
				if s, errs[i] = tab.Load(t.Context()); errs[i] == nil {
					ids[i] = s.TableID
				}
			})
		}
		all.Wait()
		s, err := deltalog.Load(t.Context(), w.mem)
		if err != nil || s.Version != 0 {
			t.Fatal(s, err)
		}
		adopted := 0
		for i := range ids {
			switch {
			case errs[i] == nil && ids[i] == s.Metadata.ID:
				adopted++
			case errs[i] == nil:
				t.Errorf("process %d has table %s, there is %s", i, ids[i], s.Metadata.ID)
			default:
				holds(t, errs[i], hold.SchemaConflict, "column")
			}
		}
		if adopted != 4 {
			t.Errorf("%d adopted it", adopted)
		}
	})
}

// TestUndecidedOnEndOfContext: a commit ended without a known outcome, and its put may still take effect. It competes
// for its version with the next writer's commit, and only one of the two is committed.
func TestUndecidedOnEndOfContext(t *testing.T) {
	for name, lands := range map[string]bool{"and it lands": true, "and it does not": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dark := false
				w := newRecordedStore(t, true, func(_ int, op objstore.Op) objstoretest.Fault {
					if dark && op.Kind == objstore.OpPutIfAbsent {
						return objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: objstoretest.Late}
					}
					if dark {
						return objstoretest.Fault{Err: objstoretest.ErrUnavailable}
					}
					return objstoretest.Fault{}
				})
				defer w.faulty.Close()
				tab := open(t, w.faulty)
				s := load(t, tab)
				c := rowRange{0, 0, 5}
				staged, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, 0, 5)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				began := time.Now()
				go func() {
					_ = reliability.Wait(ctx, 59*time.Second)
					if h, ok := tab.Undecided(); ok {
						t.Errorf("a hold after %v: %+v", time.Since(began), h)
					}
					_ = reliability.Wait(ctx, 2*time.Second)
					if h, ok := tab.Undecided(); !ok || h.Reason != hold.CommitUndecided || !h.Since.Equal(began) {
						t.Errorf("no hold after %v: %+v", time.Since(began), h)
					}
				}()
				_, err = tab.Commit(ctx, c.commit(staged), func(s *connector.Snapshot) error { dark = true; return c.pre(s) })
				if !errors.Is(err, connector.ErrUndecided) || classify.Of(err) != classify.Canceled {
					t.Fatalf("got %v", err)
				}
				if _, ok := tab.Undecided(); ok {
					t.Error("the hold stayed")
				}
				tab.Discard(t.Context(), staged)
				if len(files(t, w.mem)) != 1 {
					t.Fatal("the files of an undecided commit were deleted")
				}
				dark = false
				if lands {
					w.settle()
				}
				// The same process continues from the state in the log.
				at := int64(0)
				if s = load(t, tab); lands {
					at = 5
				}
				if got := s.Positions[app(0)]; got != at {
					t.Fatalf("position %d", got)
				}
				if s, err = (rowRange{0, at, at + 2}).write(t.Context(), tab, s); err != nil {
					t.Fatal(err)
				}
				w.settle() // the first commit's put takes effect now, too late for its version
				check(t, w.mem, s.Positions[app(0)])
			})
		})
	}
}
