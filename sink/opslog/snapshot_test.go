package opslog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

// often opens a log that has a snapshot after every few entries, in parts of some bytes.
func often(store objstore.Store, every int64, part int) *opslog.Log {
	l := open(store)
	l.SetSnapshots(every, part)
	return l
}

// canonical returns the state of a log as a snapshot has it.
func canonical(t *testing.T, l *opslog.Log) string {
	t.Helper()
	s, err := l.State(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(s.Head(), " ", string(b))
}

// startsLike opens a log anew and fails the test unless its state is that of all entries. It returns the seq of the
// snapshot that the log started from, 0 if it read all entries.
func startsLike(t *testing.T, store objstore.Store, every int64) int64 {
	t.Helper()
	l := often(store, every, 1000)
	got, want := canonical(t, l), canonical(t, open(store))
	if got != want {
		t.Errorf("from a snapshot: %s\nfrom all entries: %s", got, want)
	}
	return l.StartedFrom()
}

// kindsOf returns the seqs of the entries of a kind.
func kindsOf(all []opslog.Entry, k opslog.Kind) (seqs []int64) {
	for _, e := range all {
		if e.Kind == k {
			seqs = append(seqs, e.Seq)
		}
	}
	return seqs
}

// intact fails the test if Verify finds anything.
func intact(t *testing.T, store objstore.Store) {
	t.Helper()
	if r := verify(t, store, opslog.Head{}); len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
	}
}

// oneEntry is a size of parts that no state of these tests reaches. How far a state can be compressed depends on the
// times of its entries.
const oneEntry = 100_000

// TestSnapshot: a log that starts reads the newest snapshot that a later entry names, and the entries after its state.
func TestSnapshot(t *testing.T) {
	everywhere(t, func(t *testing.T, store objstore.Store) {
		for i := range 60 { // each operation by another process
			add(t, often(store, 10, oneEntry), pause(fmt.Sprint("reason ", i), opslog.Target{Topic: "orders", Partition: int32(i)}))
		}
		all := entries(t, store)
		if got := kindsOf(all, opslog.KindSnapshot); !slices.Equal(got, []int64{11, 22, 33, 44, 55, 66}) {
			t.Errorf("snapshots at %v", got)
		}
		for _, e := range all {
			if want := (e.Seq - 1) / 11 * 11; e.Snapshot != want {
				t.Errorf("seq %d names the snapshot %d, want %d", e.Seq, e.Snapshot, want)
			}
		}
		if from := startsLike(t, store, 10); from != 55 { // no entry names the one at 66 yet
			t.Errorf("it started from %d, want 55", from)
		}
		intact(t, store)
	})
}

// TestSnapshot_FewRequests: the number of requests of a start does not grow with the log.
func TestSnapshot_FewRequests(t *testing.T) {
	mem := objstore.NewMem()
	l := often(mem, 100, 1000)
	for i := range 1500 {
		add(t, l, pause("r", opslog.Target{Topic: "orders", Partition: int32(i % 7)}))
	}
	var requests atomic.Int64
	faulty := objstoretest.NewFaulty(mem, func(objstore.Op) (f objstoretest.Fault) { requests.Add(1); return f })
	follower, err := often(faulty, 100, 1000).Follow(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(ctx) }()
	<-follower.Ready()
	n := requests.Load()
	cancel()
	<-done
	if head := follower.State().Head(); head.Seq != 1514 && head.Seq != 1515 || n > 150 {
		t.Errorf("%d requests to read a log of %d entries", n, head.Seq)
	}
}

// TestSnapshot_Million: the states of a million dead letters need several entries, and are read back from them. The time
// is virtual, so that a slow machine does not exhaust the patience of the writer.
func TestSnapshot_Million(t *testing.T) { synctest.Test(t, million) }

func million(t *testing.T) {
	mem := objstore.NewMem()
	const entries, each = 20, opslog.MaxLetters
	l := often(mem, entries, opslog.SnapshotPartBytes)
	random, offset := rand.New(rand.NewPCG(1, 2)), int64(1e9)
	for i := range entries {
		at := make([]int64, each)
		for k := range at {
			offset += 1 + random.Int64N(40)
			at[k] = offset
		}
		letters := []opslog.Letters{opslog.LettersOf(idempotency.Partition{Topic: "orders", ID: int32(i % 2)}, offsets.Of(at...))}
		add(t, l, opslog.Operation{Operator: "ada", Reason: "r", Body: opslog.Discard{Letters: letters}})
	}
	add(t, l, pause("r", opslog.All()))
	fresh := often(mem, entries, opslog.SnapshotPartBytes)
	s, err := fresh.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for i := range int32(2) {
		n += s.Letters(idempotency.Partition{Topic: "orders", ID: i}).Discarded.Len()
	}
	if fresh.StartedFrom() <= entries+2 || n != entries*each {
		t.Errorf("it started from %d with %d dead letters", fresh.StartedFrom(), n)
	}
	t.Logf("%d dead letters in %d entries", n, fresh.StartedFrom()-entries)
}

// TestSnapshot_Fault: a request of the store fails while a snapshot is written, once or from then on, and takes effect at
// once, later or never. The operation is recorded, the log stays intact, and a later operation writes the snapshot.
func TestSnapshot_Fault(t *testing.T) {
	const every, part = 10, 120
	completed := map[bool]int{}
	for _, lasting := range []bool{false, true} {
		for _, effect := range []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late} {
			for n, more := 0, true; more; n++ {
				synctest.Test(t, func(t *testing.T) {
					mem := objstore.NewMem()
					for i := range every - 1 {
						add(t, often(mem, every, part), pause(fmt.Sprint("reason ", i), opslog.Target{Topic: "orders", Partition: int32(i)}))
					}
					var down, recorded atomic.Bool
					var after atomic.Int64
					more = false
					faulty := objstoretest.NewFaulty(mem, func(op objstore.Op) (f objstoretest.Fault) {
						if !recorded.Load() {
							recorded.Store(op.Kind == objstore.OpPutIfAbsent)
							return f
						}
						if after.Add(1) == int64(n)+1 {
							more = true
							down.Store(true)
						} else if !down.Load() || !lasting {
							return f
						}
						return objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: effect, Land: 7 * time.Second}
					})
					began := time.Now()
					e, err := often(faulty, every, part).Append(t.Context(), pause("mine", opslog.Topic("audit")), nil)
					if err != nil || e.Seq != every || time.Since(began) > 11*time.Second {
						t.Fatalf("effect %d of request %d: %+v %v after %v", effect, n, e, err, time.Since(began))
					}
					time.Sleep(time.Minute)
					if err := faulty.Close(); err != nil {
						t.Error(err)
					}
					intact(t, mem)
					completed[len(kindsOf(entries(t, mem), opslog.KindSnapshot)) > 0]++
					for i := range every {
						add(t, often(mem, every, part), pause(fmt.Sprint("later ", i), opslog.Topic("audit")))
					}
					if from := startsLike(t, mem, every); from == 0 {
						t.Errorf("effect %d of request %d: it read all of %d entries", effect, n, len(entries(t, mem)))
					}
					intact(t, mem)
					if v := mem.Violations(); len(v) > 0 {
						t.Error(v)
					}
				})
			}
		}
	}
	t.Logf("snapshots completed: %v", completed)
	if completed[true] == 0 || completed[false] == 0 {
		t.Error("all snapshots were completed, or none")
	}
}

// TestSnapshot_Races: processes that append at once, over a store that is late and fails, write one snapshot each time
// that one is due, and each snapshot has the parts of one process.
func TestSnapshot_Races(t *testing.T) {
	const every, part = 20, 150
	snapshots, orphans := 0, 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			mem := objstore.NewMem()
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 3))
			chance := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			faulty := objstoretest.NewFaulty(mem, func(objstore.Op) objstoretest.Fault {
				f := objstoretest.Fault{Delay: time.Duration(chance(int(100 * time.Millisecond)))}
				if chance(12) == 0 {
					f.Err, f.Land = objstoretest.ErrTimeout, time.Duration(1+chance(int(20*time.Second)))
					f.Effect = []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late}[chance(3)]
				}
				return f
			})
			var writers sync.WaitGroup
			for w := range 3 {
				writers.Go(func() {
					l := often(faulty, every, part)
					for i := range 30 {
						add(t, l, pause(fmt.Sprint(w, " ", i), opslog.Target{Topic: fmt.Sprint("t", w), Partition: int32(i)}))
						if chance(4) == 0 {
							l = often(faulty, every, part)
						}
					}
				})
			}
			writers.Wait()
			time.Sleep(time.Minute)
			if err := faulty.Close(); err != nil {
				t.Error(err)
			}
			all := entries(t, mem)
			last, named := int64(0), map[int64]bool{}
			for _, e := range all {
				body, err := e.Decode()
				if err != nil {
					t.Fatal(err)
				}
				if s, ok := body.(opslog.Snapshot); ok {
					if e.Seq-last < every {
						t.Errorf("seed %d: snapshots at %d and %d", seed, last, e.Seq)
					}
					last = e.Seq
					snapshots++
					for _, p := range s.Parts {
						named[p.Seq] = true
					}
				}
			}
			orphans += len(kindsOf(all, opslog.KindSnapshotPart)) - len(named)
			if from := startsLike(t, mem, every); from == 0 {
				t.Errorf("seed %d: it read all entries", seed)
			}
			intact(t, mem)
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d snapshots, %d parts that none names", snapshots, orphans)
}

// snapshotOf returns the operation of a snapshot by a program that does not follow the rules.
func snapshotOf(s opslog.Snapshot) opslog.Operation {
	return opslog.Operation{Operator: "eve", Reason: "r", Body: s}
}

// TestSnapshot_Tampered: a snapshot that was rewritten is refused at the start, and Verify names it. One with a false
// state, in a chain that was made to fit, is found by Verify.
func TestSnapshot_Tampered(t *testing.T) {
	const every = 10
	fresh := func() (*objstore.Mem, opslog.Entry) {
		mem := objstore.NewMem()
		l := often(mem, every, 1000)
		for i := range every + 1 {
			add(t, l, pause(fmt.Sprint("reason ", i), opslog.Target{Topic: "orders", Partition: int32(i)}))
		}
		return mem, entries(t, mem)[every]
	}
	body := func(e opslog.Entry) opslog.Snapshot {
		b, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		return b.(opslog.Snapshot)
	}
	other := func() opslog.Snapshot { // the state of a log without the pauses
		mem := objstore.NewMem()
		l := often(mem, every, 1000)
		for range every {
			add(t, l, resume("r", opslog.All()))
		}
		return body(entries(t, mem)[every])
	}()

	t.Run("rewritten", func(t *testing.T) {
		mem, e := fresh()
		from, to := fmt.Sprintf(`"reason":"%s"`, e.Reason), `"reason":"forged"`
		forge(t, mem, e.Seq, from, to)
		finds(t, mem, opslog.Head{}, e.Seq, "written anew")
		if _, err := often(mem, every, 1000).State(t.Context()); !isBroken(err, e.Seq) {
			t.Errorf("%v, want seq %d to be broken", err, e.Seq)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		mem, e := fresh()
		object := get(t, mem, key(e.Seq))
		object[len(object)/2] ^= 1
		put(t, mem, key(e.Seq), object)
		if _, err := often(mem, every, 1000).State(t.Context()); !isBroken(err, e.Seq) {
			t.Errorf("%v, want seq %d to be broken", err, e.Seq)
		}
	})
	t.Run("removed", func(t *testing.T) {
		mem, e := fresh()
		if err := mem.Delete(t.Context(), key(e.Seq)); err != nil {
			t.Fatal(err)
		}
		if _, err := often(mem, every, 1000).State(t.Context()); !isBroken(err, e.Seq) {
			t.Errorf("%v, want seq %d to be broken", err, e.Seq)
		}
	})
	t.Run("the newest entry is no base", func(t *testing.T) {
		mem, e := fresh()
		if err := mem.Delete(t.Context(), key(e.Seq+1)); err != nil {
			t.Fatal(err)
		}
		if from := startsLike(t, mem, every); from != 0 {
			t.Errorf("it started from %d, which no entry vouches for", from)
		}
	})
	t.Run("a false state", func(t *testing.T) {
		mem, e := fresh()
		s := body(e)
		s.Data = other.Data
		l := open(mem)
		seq := add(t, l, snapshotOf(s)).Seq
		add(t, l, pause("r", opslog.Topic("x")))
		finds(t, mem, opslog.Head{}, seq, "not that of the operations before it")
	})
	for name, c := range map[string]struct {
		change func(*opslog.Snapshot)
		why    string
	}{
		"of another hash":   {func(s *opslog.Snapshot) { s.Of.Hash = strings.Repeat("0", 64) }, "written anew"},
		"of a later entry":  {func(s *opslog.Snapshot) { s.Of.Seq = 99 }, "later operation"},
		"no state":          {func(s *opslog.Snapshot) { s.Data = []byte("x") }, "cannot be read"},
		"a part is no part": {func(s *opslog.Snapshot) { s.Parts = []opslog.Head{s.Of} }, "no part of it"},
		"too many parts":    {func(s *opslog.Snapshot) { s.Parts = slices.Repeat([]opslog.Head{s.Of}, 65) }, "parts"},
	} {
		t.Run(name, func(t *testing.T) {
			mem, e := fresh()
			s := body(e)
			c.change(&s)
			l := open(mem)
			seq := add(t, l, snapshotOf(s)).Seq
			add(t, l, pause("r", opslog.Topic("x")))
			if from := startsLike(t, mem, every); from != 0 {
				t.Errorf("it started from %d", from)
			}
			finds(t, mem, opslog.Head{}, seq, c.why)
		})
	}
	t.Run("a later format", func(t *testing.T) { // which is no defect, and is not used
		mem, e := fresh()
		s := body(e)
		s.Format, s.Data = 1000, []byte("x")
		l := often(mem, every, 1000)
		add(t, l, snapshotOf(s))
		add(t, l, pause("r", opslog.Topic("x")))
		if from := startsLike(t, mem, every); from != e.Seq {
			t.Errorf("it started from %d, want %d", from, e.Seq)
		}
		intact(t, mem)
	})
	t.Run("an earlier version appended", func(t *testing.T) { // its entry names no snapshot
		mem, e := fresh()
		forge(t, mem, e.Seq+1, fmt.Sprintf(`,"snapshot":%d`, e.Seq), "")
		if from := startsLike(t, mem, every); from != 0 {
			t.Errorf("it started from %d", from)
		}
		intact(t, mem)
	})
}

// TestSnapshot_ReplacedWhileRead: the snapshot is another object when the chain comes to it than it was when the state
// was read from it. The log does not start from it.
func TestSnapshot_ReplacedWhileRead(t *testing.T) {
	mem := objstore.NewMem()
	l := often(mem, 10, 1000)
	for i := range 11 {
		add(t, l, pause(fmt.Sprint("reason ", i), opslog.Target{Topic: "orders", Partition: int32(i)}))
	}
	good, want := get(t, mem, key(11)), canonical(t, open(mem))
	forge(t, mem, 11, `"reason":"state at operation 10"`, `"reason":"forged"`)
	reads := 0
	faulty := objstoretest.NewFaulty(mem, func(op objstore.Op) (f objstoretest.Fault) {
		if op.Kind == objstore.OpGet && op.Key == key(11) {
			if reads++; reads == 2 {
				put(t, mem, key(11), good)
			}
		}
		return f
	})
	fresh := often(faulty, 10, 1000)
	if got := canonical(t, fresh); got != want || fresh.StartedFrom() != 0 || reads != 3 {
		t.Errorf("started from %d after %d reads: %s\nwant %s", fresh.StartedFrom(), reads, got, want)
	}
}

// TestSnapshot_Once: an operation with a key that was performed before the snapshot is refused after it, too.
func TestSnapshot_Once(t *testing.T) {
	mem := objstore.NewMem()
	op := pause("r", opslog.Topic("a"))
	op.Once = once("a", "b")
	l := often(mem, 10, 1000)
	add(t, l, op)
	for range 10 {
		add(t, l, pause("r", opslog.Topic("a")))
	}
	fresh := often(mem, 10, 1000)
	_, err := fresh.Append(t.Context(), op, nil)
	if repeated, ok := errors.AsType[*opslog.RepeatedError](err); !ok || repeated.Seq != 1 || fresh.StartedFrom() == 0 {
		t.Errorf("%v, started from %d", err, fresh.StartedFrom())
	}
}
