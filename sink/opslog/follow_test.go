package opslog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

const every = 10 * time.Second

// follow runs a follower in the test's bubble. While down has an error, requests to the store fail with it.
func follow(t *testing.T, store objstore.Store, down *atomic.Pointer[error]) (*opslog.Follower, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	faulty := objstoretest.NewFaulty(store, func(objstore.Op) (f objstoretest.Fault) {
		if err := down.Load(); err != nil {
			f.Err = *err
		}
		return f
	})
	f, err := opslog.Open(faulty, "p", opslog.Options{Guard: guard(), Registerer: reg}).Follow(every)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f, reg
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func paused(f *opslog.Follower, topic string) bool {
	_, is := f.State().Paused(topic, 0)
	return is
}

func TestFollower_ReadsOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem()
		l := open(mem)
		add(t, l, pause("before", opslog.Topic("a")))
		var down atomic.Pointer[error]
		f, reg := follow(t, mem, &down)
		<-f.Ready()
		if !paused(f, "a") || paused(f, "b") {
			t.Errorf("%+v", f.State())
		}
		add(t, l, pause("later", opslog.Topic("b")))
		add(t, l, resume("later", opslog.Topic("a")))
		time.Sleep(every + every/5)
		synctest.Wait()
		if paused(f, "a") || !paused(f, "b") || gauge(t, reg, "sluice_operations_log_seq") != 3 {
			t.Errorf("%+v", f.State())
		}
		if age := gauge(t, reg, "sluice_operations_log_age_seconds"); age < 0 || age > 12 {
			t.Errorf("age %v", age)
		}
	})
}

func TestFollower_NotReadyBeforeFirstPoll(t *testing.T) {
	reg := prometheus.NewRegistry()
	f, err := opslog.Open(objstore.NewMem(), "p", opslog.Options{Guard: guard(), Registerer: reg}).Follow(every)
	if err != nil {
		t.Fatal(err)
	}
	if f.State() != nil || gauge(t, reg, "sluice_operations_log_age_seconds") != -1 || gauge(t, reg, "sluice_operations_log_seq") != 0 {
		t.Errorf("it knows %+v", f.State())
	}
	select {
	case <-f.Ready():
		t.Error("it is ready")
	default:
	}
}

// TestFollower_Changed: the channel of Changed is closed when the first state arrives and with each newer state. A poll
// that finds no new entry does not close it.
func TestFollower_Changed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem()
		l := open(mem)
		f, err := l.Follow(every)
		if err != nil {
			t.Fatal(err)
		}
		closed := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		first := f.Changed()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx)
		synctest.Wait()
		second := f.Changed()
		time.Sleep(time.Minute)
		if !closed(first) || closed(second) || second != f.Changed() {
			t.Error("it tells of no first state, or of news that there are none")
		}
		add(t, l, pause("r", opslog.Topic("a")))
		<-second
		if !paused(f, "a") || closed(f.Changed()) {
			t.Errorf("%+v", f.State())
		}
		// The entries before the first damaged entry stay in force.
		third := f.Changed()
		add(t, l, pause("r", opslog.Topic("b")))
		put(t, mem, key(3), []byte("no entry"))
		<-third
		if _, troubled := f.Trouble(); !paused(f, "b") || !troubled {
			t.Errorf("%+v", f.State())
		}
	})
}

// TestFollower_ReadsOnlyNewEntries: a follower sends one request for each poll without new entries, and few more for a
// new entry. It does not read old entries again.
func TestFollower_ReadsOnlyNewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem()
		l := open(mem)
		for range 20 {
			add(t, l, pause("r", opslog.Topic("a")))
		}
		var ops atomic.Int64
		f, err := open(objstoretest.Traced(mem, func(string) { ops.Add(1) })).Follow(every)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx)
		<-f.Ready()
		ops.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := ops.Load(); n < 300 || n > 410 {
			t.Errorf("%d requests in an hour without news, want one each 10 s", n)
		}
		ops.Store(0)
		add(t, l, pause("r", opslog.Topic("a")))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := ops.Load(); n > 9 {
			t.Errorf("%d requests in a minute with one piece of news", n)
		}
	})
}

// TestFollower_KeepsPausesInTrouble: while the log is damaged or unreachable, pauses that the member has read stay in
// force. A member that has never read the log intact does not become ready.
func TestFollower_KeepsPausesInTrouble(t *testing.T) {
	outage, denial := objstoretest.ErrUnavailable, objstoretest.ErrDenied
	for name, c := range map[string]struct {
		down   *error
		harm   func(t *testing.T, mem *objstore.Mem)
		broken int64 // seq of the damaged entry
		blind  bool  // true if a member that starts during the trouble must not become ready
	}{
		"outage": {&outage, nil, 0, false},
		"denial": {&denial, nil, 0, false},
		"a changed byte in the newest entry": {nil, func(t *testing.T, mem *objstore.Mem) {
			b := get(t, mem, key(2))
			b[20] ^= 1
			time.Sleep(time.Millisecond)
			put(t, mem, key(2), b)
		}, 2, false},
		"a newest entry that was written anew": {nil, func(t *testing.T, mem *objstore.Mem) {
			time.Sleep(time.Millisecond)
			forge(t, mem, 2, "reason 1", "forged 1")
		}, 2, true},
		"a missing end": {nil, func(t *testing.T, mem *objstore.Mem) {
			if err := mem.Delete(t.Context(), key(2)); err != nil {
				t.Fatal(err)
			}
		}, 2, true},
		"nothing left": {nil, func(t *testing.T, mem *objstore.Mem) {
			for seq := range int64(2) {
				if err := mem.Delete(t.Context(), key(seq+1)); err != nil {
					t.Fatal(err)
				}
			}
		}, 2, true},
		"a gap": {nil, func(t *testing.T, mem *objstore.Mem) { put(t, mem, key(4), get(t, mem, key(2))) }, 3, false},
		"no entry": {nil, func(t *testing.T, mem *objstore.Mem) {
			put(t, mem, key(3), []byte("resume everything"))
		}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem, _ := written(t, 2)
				var down atomic.Pointer[error]
				f, reg := follow(t, mem, &down)
				<-f.Ready()
				kept := map[string][]byte{key(1): get(t, mem, key(1)), key(2): get(t, mem, key(2))}
				if down.Store(c.down); c.harm != nil {
					c.harm(t, mem)
				}
				since := time.Now()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if !paused(f, "orders") {
					t.Error("trouble was taken for no pauses")
				}
				trouble, troubled := f.Trouble()
				if c.broken > 0 && (!troubled || !isBroken(trouble.Err, c.broken) || trouble.Since.Sub(since) > 12*time.Second) {
					t.Errorf("trouble %+v, want broken at seq %d", trouble, c.broken)
				}
				if c.down == &denial && (!troubled || !errors.Is(trouble.Err, objstore.ErrRefused)) {
					t.Errorf("trouble %+v, want a denial", trouble)
				}
				if got, want := gauge(t, reg, "sluice_operations_log_broken"), map[bool]float64{true: 1}[c.broken > 0]; got != want {
					t.Errorf("broken is %v, want %v", got, want)
				}
				if age := gauge(t, reg, "sluice_operations_log_age_seconds"); age < 280 {
					t.Errorf("age %v, want about 300", age)
				}
				late, _ := follow(t, mem, &down)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if !c.blind && late.State() != nil {
					t.Errorf("a late member knows %+v", late.State())
				}
				// Once the log is repaired, the follower continues by itself.
				down.Store(nil)
				for k, b := range kept {
					put(t, mem, k, b)
				}
				for _, seq := range []int64{3, 4} {
					if err := mem.Delete(t.Context(), key(seq)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := open(mem).Append(t.Context(), resume("mended", opslog.All()), nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if _, troubled := f.Trouble(); troubled || paused(f, "orders") || gauge(t, reg, "sluice_operations_log_broken") != 0 {
					t.Errorf("it does not go on: %+v", f.State())
				}
			})
		})
	}
}
