package commit

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
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability"
)

// backRead is a table whose ReadFingerprints returns the Reading in the field.
type backRead struct {
	connector.Table
	reading connector.Reading
}

func (r *backRead) ReadFingerprints(*connector.Snapshot, connector.FingerprintQuery) (connector.Reading, error) {
	return r.reading, nil
}

// filledBy returns a writer of a table with one partition, whose position is 12. The dedup window is filled from the
// rows that reading yields.
func filledBy(d *connector.Duplicates, reading connector.Reading) *Writer {
	a := connectortest.Partition(0)
	return writerOf(Config{Group: healthyCluster{}, Log: healthyCluster{}}, connector.Target{Table: &backRead{reading: reading}, Duplicates: d}, connectortest.Snapshot(map[string]int64{
		a.AppID("pipe"): 12, a.NewestAppID("pipe"): connectortest.Noon().UnixMilli() + 11_000, idempotency.TableAppID("pipe", "T"): 0,
	}))
}

// writerOf returns a writer of target that already has the snapshot s.
func writerOf(c Config, target connector.Target, s *connector.Snapshot) *Writer {
	c.Pipeline, c.Metrics, c.Progress = "pipe", NewMetrics(nil), make(chan struct{}, 1)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Kafka = reliability.NewGuard("kafka", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Second, Max: 30 * time.Second}, Failures: 5, OpenFor: time.Minute,
	}, c.Logger, nil)
	c.Decisions = floods(false)
	w := New(c, "t", target, &lane.Table{})
	w.snapshot = s
	return w
}

// TestWindow_LostClaim: if a claim is lost while its dedup window is being filled, the window is released once the
// filling goroutine has ended, also if the writer was retired meanwhile.
func TestWindow_LostClaim(t *testing.T) {
	a, entries := connectortest.Partition(0), connectortest.Entries(10, "xy")
	for name, end := range map[string]func(*Writer){
		"filled":  func(w *Writer) { w.window.handleFilled(t.Context(), w.Requests.todo.filled) },
		"retired": func(w *Writer) { w.window.close() },
	} {
		more, store := make(chan struct{}), idempotency.NewMemory(1<<20, nil)
		w := filledBy(&connector.Duplicates{Window: 24 * time.Hour, Store: store}, func(_ context.Context, each func(connector.PastRows) error) error {
			<-more
			return each(connector.PastRows{Topic: a.Topic, Partition: a.ID, Written: connectortest.Noon().UnixMilli(), Entries: entries})
		})
		if err := w.window.fillForResume(t.Context(), map[connector.Partition]ResumeRequest{a: {Session: 1}}, map[connector.Partition]Found{a: {Session: 1}}); err != nil {
			t.Fatal(err)
		}
		w.window.release(a)
		close(more)
		w.window.filling.Wait()
		if end(w); store.Stats().Scopes > 0 {
			t.Errorf("%s: %d windows are left", name, store.Stats().Scopes)
		}
	}
}

func (r *backRead) Load(context.Context) (*connector.Snapshot, error) {
	return connectortest.Snapshot(map[string]int64{connectortest.Partition(0).AppID("pipe"): 12, idempotency.TableAppID("pipe", "T"): 0}), nil
}

// healthyCluster is a cluster with one healthy partition.
type healthyCluster struct {
	connector.Group
	connector.Log
}

func (healthyCluster) Offsets(context.Context, string) (map[int32]connector.GroupOffset, error) {
	return nil, nil
}

func (healthyCluster) Bounds(_ context.Context, at []connector.Position) (map[connector.Partition]connector.Bounds, error) {
	return map[connector.Partition]connector.Bounds{at[0].Partition: {HighWatermark: 20, LastStable: 20, DivergedAt: -1}}, nil
}

// TestWindow_ClaimLostBeforeResume: if a claim is lost before the writer takes its resume request, the writer drops the
// request. If the claim comes back, its new request is served.
func TestWindow_ClaimLostBeforeResume(t *testing.T) {
	a := connectortest.Partition(0)
	for name, tc := range map[string]struct {
		back bool // whether the claim is assigned again
		want int
	}{"lost": {false, 0}, "lost and back": {true, 1}} {
		synctest.Test(t, func(t *testing.T) {
			store := idempotency.NewMemory(1<<20, nil)
			w := filledBy(&connector.Duplicates{Window: 24 * time.Hour, Store: store}, nil)
			w.outcomes = make(chan Outcome, 9)
			w.Requests.Resume(map[connector.Partition]ResumeRequest{a: {Session: 1}})
			w.Requests.Lose(a, 2)
			if tc.back {
				w.Requests.Resume(map[connector.Partition]ResumeRequest{a: {Session: 3}})
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

// TestWindow_FillsAtOnce: at most fillsAtOnce dedup windows are filled at the same time, counted over all writers of
// the process.
func TestWindow_FillsAtOnce(t *testing.T) {
	a := connectortest.Partition(0)
	synctest.Test(t, func(t *testing.T) {
		config := Config{Fills: NewFills()}
		reading, more := atomic.Int32{}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 20)
		for range cap(ended) {
			w := writerOf(config, connector.Target{Duplicates: &connector.Duplicates{Window: time.Hour, Store: idempotency.NewMemory(1<<20, nil)}}, nil)
			go func() {
				ended <- w.window.fill(ctx, map[connector.Partition]gap{a: {next: 12}}, func(context.Context, func(connector.PastRows) error) error {
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

// TestWindow_ResetAfterRestore: an operator deletes fingerprints, and later the database is restored from a backup that
// still has them. The writer then does not use them, and does not read the table for a new window.
func TestWindow_ResetAfterRestore(t *testing.T) {
	a, entries := connectortest.Partition(0), connectortest.Entries(0, "xyz")
	store := idempotency.NewMemory(1<<20, nil)
	read := 0
	w := filledBy(&connector.Duplicates{Window: 24 * time.Hour, Store: store, Reset: func(connector.Partition) int64 { return 12 }},
		func(context.Context, func(connector.PastRows) error) error { read++; return nil })
	batch := &plan.SealedBatch{
		Claims: map[connector.Partition]plan.Span{a: {Session: 1, From: 12, Next: 14, Epoch: 0, Earlier: nil}},
		Chunks: []plan.Chunk{{Schema: &connectortest.Schema{}, Runs: []plan.Run{runAt(a, 1, 12, 13, 0, 2)}, Entries: connectortest.Entries(12, "xy")}},
	}
	scope := idempotency.Scope{Pipeline: "pipe", TableID: "T", Partition: a}
	for _, through := range []int64{12, 3, 12} { // the store's position: as it was, as in the backup, as it was
		if through == 3 {
			if err := errors.Join(store.Reset(t.Context(), scope), store.Remember(t.Context(), scope, 0, 3, slices.Values(entries))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.window.load(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if n := len(batch.Seen[a]); n > 0 {
			t.Errorf("behind a store that stood at %d, %d are remembered that were forgotten", through, n)
		}
	}
	if read > 0 {
		t.Errorf("the table was read %d times for nothing", read)
	}
}

// runAt returns a run of a claim's session. It has the offsets from first to last, and the rows [from, to) of a chunk.
func runAt(p connector.Partition, session uint64, first, last, from, to int64) plan.Run {
	return plan.Run{Partition: p, Session: session, First: first, Last: last, From: from, To: to}
}

// floods are decisions that allow the flood of each topic (true) or refuse it (false).
type floods bool

func (f floods) FloodAllowed(string) bool { return bool(f) }
