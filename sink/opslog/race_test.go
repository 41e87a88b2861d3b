package opslog_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

var (
	seeds = flag.Int("opslog.seeds", 1500, "how many seeded races to run")
	seed  = flag.Uint64("opslog.seed", 0, "run only this race")
)

// TestRaces lets two processes append over a store that is late, fails before and after operations, and lets puts take
// effect long after their sender has given up. In every run: an acknowledged entry is in the log once, each entry of
// the log was acknowledged or is undecided, and the chain is intact.
func TestRaces(t *testing.T) {
	from, to := uint64(1), uint64(*seeds)
	if *seed != 0 {
		from, to = *seed, *seed
	}
	var n tally
	for s := from; s <= to && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) { race(t, s, &n) })
	}
	t.Logf("%+v", n)
	if *seed == 0 && (n.Undecided == 0 || n.Landed == 0 || n.Refused == 0) {
		t.Error("the races do not reach everything that they are about")
	}
}

// tally counts the events of all races.
type tally struct{ Entries, Undecided, Landed, Refused int }

func race(t *testing.T, s uint64, n *tally) {
	mem := objstore.NewMem()
	var (
		mu                 sync.Mutex
		rng                = rand.New(rand.NewPCG(s, 2))
		acknowledged       = map[string]bool{}
		undecided, refused = map[string]bool{}, 0
	)
	chance := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	faulty := objstoretest.NewFaulty(mem, func(op objstore.Op) objstoretest.Fault {
		f := objstoretest.Fault{Delay: time.Duration(chance(int(300 * time.Millisecond)))}
		if chance(4) != 0 {
			return f
		}
		f.Err = []error{objstoretest.ErrUnavailable, objstoretest.ErrTimeout, objstoretest.ErrConflict, objstoretest.ErrExists}[chance(4)]
		if op.Kind != objstore.OpPutIfAbsent && errors.Is(f.Err, objstore.ErrExists) {
			f.Err = objstoretest.ErrTimeout
		}
		f.Effect = []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late}[chance(3)]
		if errors.Is(f.Err, objstore.ErrExists) {
			f.Effect = objstoretest.Done // as if the request arrived twice and this were the response to the second one
		}
		if f.Effect == objstoretest.Late {
			f.Land = time.Duration(1 + chance(int(40*time.Second)))
		}
		return f
	})
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			l := open(faulty)
			for i := range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+chance(int(90*time.Second))))
				e, err := l.Append(ctx, pause(fmt.Sprint(w, " ", i), opslog.Target{Topic: "t", Partition: int32(i)}), func(st *opslog.State) error {
					if chance(20) == 0 {
						return errPre
					}
					return nil
				})
				cancel()
				mu.Lock()
				switch {
				case err == nil:
					acknowledged[e.ID] = true
				case errors.Is(err, opslog.ErrUndecided):
					undecided[e.ID] = true
				default: // the entry is not in the log and will not appear there
					refused++
				}
				mu.Unlock()
				if chance(6) == 0 { // as if the process ended and another one began
					l = open(faulty)
				}
				time.Sleep(time.Duration(chance(int(20 * time.Second))))
			}
		})
	}
	writers.Wait()
	time.Sleep(time.Minute) // all late puts have taken effect after this time
	if err := faulty.Close(); err != nil {
		t.Error(err)
	}
	all := entries(t, mem)
	for _, e := range all {
		switch {
		case acknowledged[e.ID]:
			delete(acknowledged, e.ID)
		case undecided[e.ID]:
			delete(undecided, e.ID)
			n.Landed++
		default:
			t.Errorf("seed %d: seq %d is in the log and was never acknowledged: %+v", s, e.Seq, e)
		}
	}
	if len(acknowledged) > 0 {
		t.Errorf("seed %d: acknowledged and not in the log: %v", s, acknowledged)
	}
	if r := verify(t, mem, opslog.Head{}); len(r.Findings) > 0 || r.Entries != int64(len(all)) {
		t.Errorf("seed %d: %+v", s, r)
	}
	for _, v := range mem.Violations() {
		t.Errorf("seed %d: %s", s, v)
	}
	n.Entries, n.Undecided, n.Refused = n.Entries+len(all), n.Undecided+len(undecided), n.Refused+refused
}

var errPre = errors.New("not like this")

// TestAppend_SlowPre: while pre runs for long, the entries before ours vanish. The writer checks the log again before
// it puts, and writes nothing.
func TestAppend_SlowPre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, _ := written(t, 2)
		_, err := open(mem).Append(t.Context(), pause("mine", opslog.Topic("t")), func(*opslog.State) error {
			time.Sleep(2 * time.Minute)
			return errors.Join(mem.Delete(t.Context(), key(1)), mem.Delete(t.Context(), key(2)))
		})
		if !isBroken(err, 2) {
			t.Errorf("%v, want it to miss seq 2", err)
		}
		if all := entries(t, mem); len(all) > 0 {
			t.Errorf("it wrote %+v", all)
		}
	})
}

// sleeper is the store of a process that stops once, when it is about to send its first put. When it wakes up, it has
// not noticed yet that its deadlines are over.
type sleeper struct {
	objstore.Store
	slept bool
	looks int // requests after the stop
}

func (s *sleeper) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if !s.slept {
		s.slept = true
		time.Sleep(2 * time.Minute)
	}
	return s.Store.Put(context.WithoutCancel(ctx), key, body, mode)
}

func (s *sleeper) Head(ctx context.Context, key string) (objstore.Info, error) {
	s.looks++
	return s.Store.Head(ctx, key)
}

func (s *sleeper) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if s.slept {
		s.looks++
	}
	return s.Store.List(ctx, prefix, after)
}

// TestAppend_WriterWokeUp: a writer sleeps between its check of the log and its put. The put is not sent before a new
// check, and the entries that others wrote meanwhile stay.
func TestAppend_WriterWokeUp(t *testing.T) {
	for name, c := range map[string]struct {
		others int // entries that other writers append during the sleep
		before int // entries in the log before the sleep
		gone   bool
	}{
		"alone, first":           {0, 0, false},
		"alone, later":           {0, 3, false},
		"others came, first":     {2, 0, false},
		"others came, later":     {2, 3, false},
		"the log was moved away": {0, 3, true},
		"moved away, begun anew": {2, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := objstore.NewMem()
				store := &sleeper{Store: mem}
				others := open(mem)
				for i := range c.before {
					add(t, others, pause(fmt.Sprint("before ", i), opslog.Topic("t")))
				}
				go func() {
					time.Sleep(time.Minute)
					if c.gone {
						for i := range c.before {
							if err := mem.Delete(t.Context(), key(int64(i)+1)); err != nil {
								t.Error(err)
							}
						}
						others = open(mem)
					}
					for i := range c.others {
						add(t, others, pause(fmt.Sprint("meanwhile ", i), opslog.Topic("t")))
					}
				}()
				e, err := open(store).Append(t.Context(), pause("mine", opslog.Topic("t")), nil)
				if store.looks == 0 {
					t.Error("it did not look again")
				}
				if broken := (*opslog.BrokenError)(nil); c.gone && c.before > 0 {
					if !errors.As(err, &broken) || broken.Seq != int64(c.before) {
						t.Fatalf("%+v %v, want it to miss seq %d", e, err, c.before)
					}
				} else if err != nil || e.Seq != int64(c.before+c.others)+1 {
					t.Fatalf("%+v %v", e, err)
				}
				if r := verify(t, mem, opslog.Head{}); len(r.Findings) > 0 {
					t.Errorf("%+v", r)
				}
				if v := mem.Violations(); len(v) > 0 {
					t.Error(v)
				}
			})
		})
	}
}
