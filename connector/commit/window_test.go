package commit

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/deadletter"
)

// TestWindow_RemembersAfterCommit: no fingerprint of a batch is stored before its commit, and none if the commit fails.
// So the table always has the rows whose fingerprints are stored.
func TestWindow_RemembersAfterCommit(t *testing.T) {
	a, entries := connectortest.Partition(0), connectortest.Entries(10, "xy")
	scope := idempotency.Scope{Pipeline: "pipe", TableID: "T", Partition: a}
	for _, lost := range []error{nil, classify.Mark(errors.New("another member was first"), classify.Fenced)} {
		store := idempotency.NewMemory(1<<20, nil)
		table := &observed{at: connectortest.Snapshot(map[string]int64{a.AppID("pipe"): 10, idempotency.TableAppID("pipe", "T"): 0})}
		w := writerOf(Config{}, connector.Target{Table: table, Duplicates: &connector.Duplicates{Window: 24 * time.Hour, Store: store}}, table.at)
		known := func() (through int64, seen int) {
			through, err := store.Through(t.Context(), scope)
			all, seenErr := store.Seen(t.Context(), scope, slices.Values(entries))
			if err := errors.Join(err, seenErr); err != nil {
				t.Fatal(err)
			}
			return through, len(all)
		}
		table.commit = func() error {
			if through, seen := known(); through != 10 || seen != 0 {
				t.Errorf("before the commit %d are remembered, up to offset %d", seen, through)
			}
			return lost
		}
		batch := &plan.SealedBatch{
			Claims: map[connector.Partition]plan.Span{a: {Session: 1, From: 10, Next: 12, Epoch: 0, Earlier: nil}},
			Chunks: []plan.Chunk{{Schema: &connectortest.Schema{}, Runs: []plan.Run{runAt(a, 1, 10, 11, 0, 2)}, Entries: entries}},
		}
		if err := w.window.load(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		p := plan.Decide(batch, w.snapshot, w.committer.terms(t.Context(), batch))
		_, err := w.committer.commit(t.Context(), p, &reservation{pool: bytepool.New(1), wakeReader: func() {}, barrier: &lane.Barrier{}})
		through, seen := known()
		switch {
		case !errors.Is(err, lost):
			t.Fatal(err)
		case lost == nil && (through != 12 || seen != 2):
			t.Errorf("behind the commit %d are remembered, up to offset %d", seen, through)
		case lost != nil && (through != 10 || seen != 0):
			t.Errorf("behind a lost commit %d are remembered, up to offset %d", seen, through)
		}
	}
}

// TestWindow_IDs: the producer's ids reach the store, both from the lanes and from the table's rows. The pool accounts
// for them until they are in the store.
func TestWindow_IDs(t *testing.T) {
	a := connectortest.Partition(0)
	table := &recalling{rows: connector.PastRows{Topic: a.Topic, Partition: a.ID, Written: connectortest.Noon().Add(time.Minute).UnixMilli(), Entries: connectortest.Entries(8, "ab")}}
	table.rows.Entries[0].ID, table.rows.Entries[1].ID = "evt-8", "evt-9"
	table.at = connectortest.Snapshot(map[string]int64{
		a.AppID("pipe"): 10, a.NewestAppID("pipe"): connectortest.Noon().UnixMilli() + 9000, idempotency.TableAppID("pipe", "T"): 0,
	})
	store, pool := &namedStore{Store: idempotency.NewMemory(1<<20, nil)}, bytepool.New(1<<20)
	w := writerOf(Config{Batch: pool}, connector.Target{Table: table, Duplicates: &connector.Duplicates{Window: 24 * time.Hour, Store: store, IDs: true}}, table.at)
	entries := connectortest.Entries(10, "xyx")
	entries[0].ID, entries[1].ID, entries[2].ID = "evt-10", "evt-11", "evt-12"
	batch := &plan.SealedBatch{
		Claims: map[connector.Partition]plan.Span{a: {Session: 1, From: 10, Next: 13, Epoch: 0, Earlier: nil}},
		Chunks: []plan.Chunk{{Schema: &connectortest.Schema{}, Rows: connectortest.NoRows{}, Runs: []plan.Run{runAt(a, 1, 10, 12, 0, 3)}, Entries: entries, Allocated: 100 + 18, EntryBytes: 7}},
	}
	pool.Adjust(100 + 18 + 7)
	r := w.committer.reserve(&lane.Barrier{}, batch)
	if err := w.window.load(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if !table.ids {
		t.Error("the table was not asked for ids")
	}
	p := plan.Decide(batch, table.at, w.committer.terms(t.Context(), batch))
	r.plan(p.Pieces)
	r.progress(len(p.Pieces), 0)
	if used := pool.Used(); used != 18+7 {
		t.Errorf("without its rows the batch takes %d bytes of the pool, want those of entries and ids", used)
	}
	w.window.remember(t.Context(), p)
	var ids []string
	for _, e := range store.remembered {
		ids = append(ids, e.ID)
	}
	if want := []string{"evt-8", "evt-9", "evt-10", "evt-11"}; !slices.Equal(ids, want) {
		t.Errorf("remembered %q, want %q", ids, want)
	}
	if r.end(); pool.Used() != 0 {
		t.Errorf("%d bytes of the pool are left", pool.Used())
	}
}

// TestWindow_SharedAndReset: members share the fingerprint store. A duplicate is found although another member resets
// the window of the partition while the fingerprints are looked up. If this happens at each attempt, the load fails
// with class Fenced.
func TestWindow_SharedAndReset(t *testing.T) {
	a := connectortest.Partition(0)
	for resets, whole := range map[int]bool{0: true, 1: true, 2: true, 9: false} {
		store := &meddled{Store: idempotency.NewMemory(1<<20, nil), resets: resets}
		table := &recalling{rows: connector.PastRows{Topic: a.Topic, Partition: a.ID, Written: connectortest.Noon().Add(time.Minute).UnixMilli(), Entries: connectortest.Entries(0, "abcdexghij")}}
		table.at = connectortest.Snapshot(map[string]int64{
			a.AppID("pipe"): 10, a.NewestAppID("pipe"): connectortest.Noon().UnixMilli() + 9000, idempotency.TableAppID("pipe", "T"): 0,
		})
		w := writerOf(Config{}, connector.Target{Table: table, Duplicates: &connector.Duplicates{Window: 24 * time.Hour, Store: store}}, table.at)
		batch := &plan.SealedBatch{
			Claims: map[connector.Partition]plan.Span{a: {Session: 1, From: 10, Next: 12, Epoch: 0, Earlier: nil}},
			Chunks: []plan.Chunk{{Schema: &connectortest.Schema{}, Runs: []plan.Run{runAt(a, 1, 10, 11, 0, 2)}, Entries: connectortest.Entries(10, "xy")}},
		}
		err := w.window.load(t.Context(), batch)
		if !whole {
			if classify.Of(err) != classify.Fenced {
				t.Errorf("reset %d times: %v, want a fence", resets, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := plan.Decide(batch, w.snapshot, w.committer.terms(t.Context(), batch)).Commit.Ranges[0]; r.Duplicates != 1 || r.Rows != 1 {
			t.Errorf("reset %d times: %+v, want one row and one duplicate", resets, r)
		}
	}
}

// TestWindow_ClaimBackWhileFilling: if a claim is lost and assigned again while its window is being filled, the
// fingerprints stored so far are kept, because the window counts as complete once it is filled.
func TestWindow_ClaimBackWhileFilling(t *testing.T) {
	a := connectortest.Partition(0)
	store := idempotency.NewMemory(1<<20, nil)
	half, on := make(chan struct{}), make(chan struct{})
	table := &halting{half: half, on: on, rows: connector.PastRows{Topic: a.Topic, Partition: a.ID, Written: connectortest.Noon().Add(time.Minute).UnixMilli()}}
	table.at = connectortest.Snapshot(map[string]int64{
		a.AppID("pipe"): 10, a.NewestAppID("pipe"): connectortest.Noon().UnixMilli() + 9000, idempotency.TableAppID("pipe", "T"): 0,
	})
	w := writerOf(Config{}, connector.Target{Table: table, Duplicates: &connector.Duplicates{Window: 24 * time.Hour, Store: store}}, table.at)
	resume := func(session uint64) map[connector.Partition]Found {
		t.Helper()
		result := map[connector.Partition]Found{a: {Session: session, At: connector.Position{Partition: a, Next: 10, Epoch: 0}}}
		if err := w.window.fillForResume(t.Context(), map[connector.Partition]ResumeRequest{a: {Session: session}}, result); err != nil {
			t.Fatal(err)
		}
		return result
	}
	if len(resume(1)) != 0 {
		t.Fatal("it resumed without its window")
	}
	<-half
	w.window.release(a)
	if len(resume(2)) != 0 {
		t.Fatal("it came back and resumed without its window")
	}
	close(on)
	w.window.filling.Wait()
	w.Requests.mu.Lock()
	done := w.Requests.todo.filled
	w.Requests.mu.Unlock()
	if again := w.window.handleFilled(t.Context(), done); again[a].Session != 2 {
		t.Fatalf("resumes as %+v", again)
	}
	if len(resume(2)) != 1 {
		t.Fatal("it does not resume")
	}
	batch := &plan.SealedBatch{
		Claims: map[connector.Partition]plan.Span{a: {Session: 2, From: 10, Next: 12, Epoch: 0, Earlier: nil}},
		Chunks: []plan.Chunk{{Schema: &connectortest.Schema{}, Runs: []plan.Run{runAt(a, 2, 10, 11, 0, 2)}, Entries: connectortest.Entries(10, "aj")}},
	}
	if err := w.window.load(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if r := plan.Decide(batch, w.snapshot, w.committer.terms(t.Context(), batch)).Commit.Ranges[0]; r.Duplicates != 2 {
		t.Errorf("%+v: want two duplicates", r)
	}
}

// duplicatesOf returns the plan of a batch, from a writer that logs to logger. The batch has n+1 equal records: those
// at the offsets from 1 on are duplicates of the record at offset 0.
func duplicatesOf(t *testing.T, n int, logger *slog.Logger) *plan.Plan {
	t.Helper()
	a, batch := connectortest.Partition(0), &plan.SealedBatch{ID: "b-1"}
	entries := connectortest.Entries(0, strings.Repeat("x", n+1))
	batch.Claims = map[connector.Partition]plan.Span{a: {Session: 1, From: 0, Next: int64(n + 1), Epoch: 3, Earlier: nil}}
	batch.Chunks = []plan.Chunk{{Runs: []plan.Run{runAt(a, 1, 0, int64(n), 0, int64(n+1))}, Entries: entries}}
	w := writerOf(Config{Logger: logger}, connector.Target{Duplicates: &connector.Duplicates{Window: 24 * time.Hour}}, nil)
	return plan.Decide(batch, connectortest.Snapshot(nil), w.committer.terms(t.Context(), batch))
}

// TestDuplicateLog: at DEBUG each duplicate has a line with its coordinates and its fingerprint, up to
// maxDebugDuplicates per second. left_out counts the duplicates without a line, including those that the plan did not
// keep.
func TestDuplicateLog(t *testing.T) {
	said := func(log *bytes.Buffer, msg string) (lines []map[string]any) {
		for _, line := range connectortest.LogLines(t, log) {
			if delete(line, "time"); line["msg"] == msg {
				lines = append(lines, line)
			}
		}
		return lines
	}
	at := func(level slog.Level) (*slog.Logger, *bytes.Buffer) {
		log := &bytes.Buffer{}
		return slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level})), log
	}
	t.Run("Debug", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			logger, log := at(slog.LevelDebug)
			l := newDuplicateLog()
			l.log(t.Context(), logger, duplicatesOf(t, 2, logger))
			want := func(offset, left int) map[string]any {
				c := idempotency.Coordinates{Partition: connectortest.Partition(0), Offset: int64(offset)}
				return map[string]any{
					"level": "DEBUG", "msg": "fingerprint hit", "topic": "orders", "partition": 0.0, "offset": float64(offset),
					"fingerprint": connectortest.Entries(0, "x")[0].Fingerprint.String(), "correlation_id": deadletter.Correlation(c), "batch_id": "b-1", "left_out": float64(left),
				}
			}
			if diff := cmp.Diff([]map[string]any{want(1, 0), want(2, 0)}, said(log, "fingerprint hit")); diff != "" {
				t.Error(diff)
			}
			time.Sleep(time.Second)
			l.log(t.Context(), logger, duplicatesOf(t, 5*maxDebugDuplicates, logger))
			if n := len(said(log, "fingerprint hit")); n != maxDebugDuplicates {
				t.Errorf("%d lines in a second, want %d", n, maxDebugDuplicates)
			}
			l.log(t.Context(), logger, duplicatesOf(t, 7, logger))
			time.Sleep(time.Second)
			l.log(t.Context(), logger, duplicatesOf(t, 1, logger))
			if diff := cmp.Diff([]map[string]any{want(1, 4*maxDebugDuplicates+7)}, said(log, "fingerprint hit")); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("Info", func(t *testing.T) {
		logger, log := at(slog.LevelInfo)
		l, p := newDuplicateLog(), duplicatesOf(t, 3*maxLoggedDuplicates, logger)
		l.log(t.Context(), logger, p)
		if len(p.Skipped) != maxLoggedDuplicates || l.beyond != 0 {
			t.Errorf("%d duplicates are kept for lines that are not written, and %d counted", len(p.Skipped), l.beyond)
		}
		if n := bytes.Count(log.Bytes(), []byte("\n")); n != duplicateLines || n != bytes.Count(log.Bytes(), []byte("Skipping duplicate")) {
			t.Errorf("%d lines, want %d of duplicates:\n%s", n, duplicateLines, log)
		}
	})
}

// observed is a table in memory. Its method Commit checks the precondition against the snapshot in the field at, calls
// the function in the field commit, and then stores the commit's positions in at.
type observed struct {
	connector.Table
	at     *connector.Snapshot
	commit func() error
}

func (o *observed) Commit(_ context.Context, c *connector.Commit, pre func(*connector.Snapshot) error) (*connector.Snapshot, error) {
	if err := errors.Join(pre(o.at), o.commit()); err != nil {
		return nil, err
	}
	for _, txn := range c.Txns {
		o.at.Positions[txn.AppID] = txn.Version
	}
	return o.at, nil
}

func (o *observed) Stage(context.Context, *connector.Snapshot, string, []connector.Piece, func(int, int64)) (*connector.Staged, error) {
	return &connector.Staged{}, nil
}

func (o *observed) Discard(context.Context, *connector.Staged) {}

// namedStore is a store that keeps a copy of each entry passed to Remember.
type namedStore struct {
	idempotency.Store
	remembered []idempotency.Entry
}

func (n *namedStore) For(string) idempotency.Store { return n }

func (n *namedStore) Remember(ctx context.Context, s idempotency.Scope, from, next int64, entries iter.Seq[idempotency.Entry]) error {
	n.remembered = append(n.remembered, slices.Collect(entries)...)
	return n.Store.Remember(ctx, s, from, next, entries)
}

// meddled is a store that another member seems to change: the first calls of Seen, as many as the field resets says,
// reset the window before they look anything up. So the reset falls between this member's check of the window and its
// look-up.
type meddled struct {
	idempotency.Store
	resets int
}

func (m *meddled) For(string) idempotency.Store { return m }

func (m *meddled) Seen(ctx context.Context, s idempotency.Scope, entries iter.Seq[idempotency.Entry]) (map[idempotency.Fingerprint]int64, error) {
	if m.resets > 0 {
		m.resets--
		if err := m.Reset(ctx, s); err != nil {
			return nil, err
		}
	}
	return m.Store.Seen(ctx, s, entries)
}

// recalling is an observed table whose ReadFingerprints yields rows and notes whether ids were requested.
type recalling struct {
	observed
	rows connector.PastRows
	ids  bool // whether ids were requested
}

func (r *recalling) ReadFingerprints(_ *connector.Snapshot, q connector.FingerprintQuery) (connector.Reading, error) {
	r.ids = q.IDs
	return func(_ context.Context, each func(connector.PastRows) error) error { return each(r.rows) }, nil
}

// halting is a table whose ReadFingerprints yields rows in two parts. After the first part it closes the channel half.
// It yields the second part once the test has closed the channel on.
type halting struct {
	observed
	rows     connector.PastRows
	half, on chan struct{}
}

func (h *halting) ReadFingerprints(*connector.Snapshot, connector.FingerprintQuery) (connector.Reading, error) {
	return func(_ context.Context, each func(connector.PastRows) error) error {
		first, second := h.rows, h.rows
		first.Entries, second.Entries = connectortest.Entries(0, "abcde"), connectortest.Entries(5, "fghij")
		if err := each(first); err != nil {
			return err
		}
		close(h.half)
		<-h.on
		return each(second)
	}, nil
}
