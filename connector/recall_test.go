package connector

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// backRead is a table whose rows are read back as a test says.
type backRead struct {
	Table
	reading Reading
}

func (r *backRead) Recall(*Snapshot, Recall) (Reading, error) { return r.reading, nil }

// filledBy makes a writer of a table of one partition, which stands at 12.
func filledBy(d *Duplicates, reading Reading) *writer {
	a := part0(0)
	return &writer{
		table: &backRead{reading: reading}, pipeline: "pipe", logger: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
		snapshot: snapshotAt(map[string]int64{
			a.AppID("pipe"): 12, a.NewestAppID("pipe"): noon.UnixMilli() + 11_000, idempotency.TableAppID("pipe", "T"): 0,
		}),
		recollection: newRecollection(d), wake: make(chan struct{}, 1),
	}
}

// TestAClaimThatStaysAwayLeavesNoWindow, whether it went while its window was filled or before.
func TestAClaimThatStaysAwayLeavesNoWindow(t *testing.T) {
	a, entries := part0(0), prints(10, "xy")
	for name, end := range map[string]func(*writer){
		"filled":  func(w *writer) { w.heardFilled(t.Context(), w.todo.filled) },
		"retired": func(w *writer) { w.recollection.close() },
	} {
		more, store := make(chan struct{}), idempotency.NewMemory(1<<20, nil)
		w := filledBy(&Duplicates{Window: 24 * time.Hour, Store: store}, func(_ context.Context, each func(Recalled) error) error {
			<-more
			return each(Recalled{Topic: a.Topic, Partition: a.ID, Written: noon.UnixMilli(), Entries: entries})
		})
		if err := w.ready(t.Context(), map[Partition]resumeRequest{a: {session: 1}}, map[Partition]found{a: {session: 1}}); err != nil {
			t.Fatal(err)
		}
		w.release(a)
		close(more)
		w.recollection.filling.Wait()
		if end(w); store.Stats().Scopes > 0 {
			t.Errorf("%s: %d windows are left", name, store.Stats().Scopes)
		}
	}
}

func (r *backRead) Load(context.Context) (*Snapshot, error) {
	return snapshotAt(map[string]int64{part0(0).AppID("pipe"): 12, idempotency.TableAppID("pipe", "T"): 0}), nil
}

// calm is a cluster with one partition, of which there is nothing to say.
type calm struct {
	Group
	Log
}

func (calm) Offsets(context.Context, string) (map[int32]GroupOffset, error) { return nil, nil }

func (calm) Bounds(_ context.Context, at []Position) (map[Partition]Bounds, error) {
	return map[Partition]Bounds{at[0].Partition: {HighWatermark: 20, LastStable: 20, DivergedAt: -1}}, nil
}

// TestAClaimThatIsLostBeforeItResumesLeavesNoWindow: what the reader wanted to know of it is not wanted any more.
func TestAClaimThatIsLostBeforeItResumesLeavesNoWindow(t *testing.T) {
	a := part0(0)
	for name, tc := range map[string]struct {
		back bool // it comes back
		want int
	}{"lost": {false, 0}, "lost and back": {true, 1}} {
		synctest.Test(t, func(t *testing.T) {
			store := idempotency.NewMemory(1<<20, nil)
			w := filledBy(&Duplicates{Window: 24 * time.Hour, Store: store}, nil)
			out := make(chan outcome, 9)
			w.out, w.group, w.log, w.state = out, calm{}, calm{}, &tableState{name: "t"}
			w.kafka = reliability.NewGuard("kafka", reliability.Config{}, w.logger, nil)
			r := &reader{log: &forgetting{}, claims: map[Partition]*claim{}, paused: func(Partition) *hold.Hold { return nil }}
			w.state.writer, w.state.claims = w, map[Partition]*claim{}
			c := &claim{Partition: a, table: w.state}
			r.end(c)
			r.resume(w.state, c)
			r.lose(c)
			if tc.back {
				r.end(c)
				r.resume(w.state, c)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go w.run(ctx)
			synctest.Wait()
			if got := store.Stats().Scopes; got != tc.want {
				t.Errorf("%s: %d windows are there, want %d", name, got, tc.want)
			}
			cancel()
			synctest.Wait()
		})
	}
}

type forgetting struct{ Log }

func (forgetting) Forget(Partition) {}

// TestFewWindowsAreFilledAtOnce: each takes memory while it reads, and after a start all tables want to.
func TestFewWindowsAreFilledAtOnce(t *testing.T) {
	a := part0(0)
	synctest.Test(t, func(t *testing.T) {
		r, err := (&Connector{Config: Config{Queue: QueueConfig{PauseAt: 10, ResumeAt: 5, PerKey: 1}}, Logger: slog.New(slog.DiscardHandler)}).newReader(newMetrics(nil))
		if err != nil {
			t.Fatal(err)
		}
		reading, more := atomic.Int32{}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 20)
		for range cap(ended) {
			w := r.newWriter(&tableState{}, Target{Duplicates: &Duplicates{Window: time.Hour, Store: idempotency.NewMemory(1<<20, nil)}})
			go func() {
				ended <- w.fill(ctx, map[Partition]gap{a: {next: 12}}, func(context.Context, func(Recalled) error) error {
					reading.Add(1)
					defer reading.Add(-1)
					<-more
					return nil
				})
			}()
		}
		synctest.Wait()
		if n := reading.Load(); n < 1 || n > 4 {
			t.Errorf("%d windows are filled at once", n)
		}
		more <- struct{}{}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := reading.Load(); n < 1 || n > 4 {
			t.Errorf("%d windows are filled behind the first", n)
		}
		cancel()
		synctest.Wait()
		close(more)
		canceled := 0
		for range cap(ended) - 1 {
			if classify.Of(<-ended) == classify.Canceled {
				canceled++
			}
		}
		if canceled < cap(ended)-6 {
			t.Errorf("%d of those that waited ended with the process", canceled)
		}
	})
}

// TestADatabaseThatWasRestoredKeepsToAReset: what an operator had forgotten does not come back with an older copy of it.
func TestADatabaseThatWasRestoredKeepsToAReset(t *testing.T) {
	a, entries := part0(0), prints(0, "xyz")
	store := idempotency.NewMemory(1<<20, nil)
	read := 0
	w := filledBy(&Duplicates{Window: 24 * time.Hour, Store: store, Reset: func(Partition) int64 { return 12 }},
		func(context.Context, func(Recalled) error) error { read++; return nil })
	cut := &Cut{
		Claims: map[Partition]Span{a: {1, 12, 14, 0, nil}},
		Chunks: []Chunk{{Schema: &fits{}, Runs: []Run{runOf(a, 1, 12, 13, 0, 2)}, Entries: prints(12, "xy")}},
	}
	scope := idempotency.Scope{Pipeline: "pipe", TableID: "T", Partition: a}
	for _, through := range []int64{12, 3, 12} { // as before, of a copy, and as before
		if through == 3 {
			if err := errors.Join(store.Reset(t.Context(), scope), store.Remember(t.Context(), scope, 0, 3, slices.Values(entries))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.recall(t.Context(), cut); err != nil {
			t.Fatal(err)
		}
		if n := len(cut.Seen[a]); n > 0 {
			t.Errorf("behind a store that stood at %d, %d are remembered that were forgotten", through, n)
		}
	}
	if read > 0 {
		t.Errorf("the table was read %d times for nothing", read)
	}
}
