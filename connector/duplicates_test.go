package connector

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
	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/deadletter"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// prints makes entries of offsets from on: one for each letter, which is its identity; a dot has none. Each comes a second
// after the other.
func prints(from int64, text string) []idempotency.Entry {
	h := idempotency.NewHasher(idempotency.Identity{By: idempotency.ByHeader, Name: "id"})
	var all []idempotency.Entry
	for i, r := range text {
		e := idempotency.Entry{Offset: from + int64(i), At: noon.UnixMilli() + (from+int64(i))*1000}
		if r != '.' {
			e.Fingerprint = h.Header([]byte(string(r)))
		}
		all = append(all, e)
	}
	return all
}

func judging() terms {
	return terms{pipeline: "pipe", window: 24 * time.Hour, now: noon.Add(time.Hour)}
}

func TestDecideLeavesDuplicatesOut(t *testing.T) {
	bad := classify.Mark(errors.New("not JSON"), classify.Poison)
	a, b := part0(0), part0(1)
	second := func(n int64) int64 { return noon.UnixMilli() + n*1000 }
	run := func(p Partition, session uint64, first, from, to int64) Run {
		return Run{Partition: p, Session: session, First: first, Last: first + to - from - 1, From: from, To: to}
	}
	for name, tc := range map[string]struct {
		cut     *Cut
		newest  map[Partition]int64
		pieces  []Piece
		dropped map[Partition]int64 // as the ranges say
		kept    string              // offsets that will be remembered
		after   map[Partition]int64 // newest
	}{
		"in one chunk, and pieces split around them": {
			cut: &Cut{
				Claims: map[Partition]Span{a: {1, 10, 17, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{run(a, 1, 10, 0, 7)}, Entries: prints(10, "xyxz.xx")}},
			},
			pieces:  []Piece{{From: 0, To: 2}, {From: 3, To: 5}},
			dropped: map[Partition]int64{a: 3}, kept: "orders:0@10 orders:0@11 orders:0@13", after: map[Partition]int64{a: second(14)},
		},
		"of the chunk before, and never of another partition": {
			cut: &Cut{
				Claims: map[Partition]Span{a: {1, 10, 16, 3, nil}, b: {2, 10, 12, 3, nil}},
				Chunks: []Chunk{
					{Runs: []Run{run(a, 1, 10, 0, 2), run(b, 2, 10, 2, 4)}, Entries: slices.Concat(prints(10, "xy"), prints(10, "xy"))},
					{Runs: []Run{run(a, 1, 12, 0, 4)}, Entries: prints(12, "zyxz")},
				},
			},
			pieces:  []Piece{{From: 0, To: 4}, {From: 0, To: 1}},
			dropped: map[Partition]int64{a: 3}, kept: "orders:0@10 orders:0@11 orders:0@12 orders:1@10 orders:1@11", after: map[Partition]int64{a: second(12), b: second(11)},
		},
		"of what is remembered": {
			cut: &Cut{
				Claims: map[Partition]Span{a: {1, 10, 13, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{run(a, 1, 10, 0, 3)}, Entries: prints(10, "xyz")}},
				Seen: map[Partition]map[idempotency.Fingerprint]int64{a: {
					prints(0, "x")[0].Fingerprint: second(11) - 24*3600_000, // just in the window
					prints(0, "z")[0].Fingerprint: second(11) - 24*3600_000, // just out of it, as y came in between
				}},
			},
			newest:  map[Partition]int64{a: second(5)},
			pieces:  []Piece{{From: 1, To: 3}},
			dropped: map[Partition]int64{a: 1}, kept: "orders:0@11 orders:0@12", after: map[Partition]int64{a: second(12)},
		},
		"rows that are masked or cut off are neither counted nor remembered": {
			cut: &Cut{
				Claims: map[Partition]Span{a: {5, 10, 20, 3, nil}, b: {2, 10, 12, 3, nil}},
				Chunks: []Chunk{
					{Runs: []Run{run(a, 1, 8, 0, 2), run(a, 5, 10, 2, 4)}, Entries: slices.Concat(prints(8, "xy"), prints(10, "xy"))},
					{Runs: []Run{run(a, 5, 15, 0, 2), run(part0(9), 7, 3, 2, 4)}, Entries: slices.Concat(prints(15, "xq"), prints(3, "xx"))},
				},
				Candidates: []Candidate{stopper(a, 5, 14, bad)},
			},
			pieces:  []Piece{{From: 2, To: 4}},
			dropped: map[Partition]int64{}, kept: "orders:0@10 orders:0@11", after: map[Partition]int64{a: second(11)},
		},
		"a newest timestamp that does not move is not written again": {
			cut: &Cut{
				Claims: map[Partition]Span{a: {1, 10, 12, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{run(a, 1, 10, 0, 2)}, Entries: prints(10, "xx")}},
			},
			newest:  map[Partition]int64{a: second(10)},
			pieces:  []Piece{{From: 0, To: 1}},
			dropped: map[Partition]int64{a: 1}, kept: "orders:0@10", after: map[Partition]int64{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := map[string]int64{}
			for p, newest := range tc.newest {
				at[p.NewestAppID("pipe")] = newest
			}
			p := decide(tc.cut, snapshotAt(at), judging())
			if diff := cmp.Diff(tc.pieces, p.Pieces); diff != "" {
				t.Errorf("pieces: -want +got\n%s", diff)
			}
			var rows int64
			dropped, after, kept := map[Partition]int64{}, map[Partition]int64{}, ""
			for _, r := range p.Commit.Ranges {
				rows += r.Rows
				if r.Duplicates > 0 {
					dropped[part0(r.Partition)] = r.Duplicates
				}
			}
			for _, partition := range []Partition{a, b, part0(9)} {
				for _, txn := range p.Commit.Txns {
					if txn.AppID == partition.NewestAppID("pipe") {
						after[partition] = txn.Version
					}
				}
				for e := range p.remembered(partition) {
					if kept != "" {
						kept += " "
					}
					kept += idempotency.Coordinates{Partition: partition, Offset: e.Offset}.String()
				}
			}
			var want int64
			for _, piece := range tc.pieces {
				want += piece.To - piece.From
			}
			if rows != want {
				t.Errorf("the ranges say %d rows, the pieces have %d", rows, want)
			}
			if diff := cmp.Diff(tc.dropped, dropped); diff != "" {
				t.Errorf("dropped: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tc.after, after); diff != "" {
				t.Errorf("newest: -want +got\n%s", diff)
			}
			if kept != tc.kept {
				t.Errorf("remembered will be %s, want %s", kept, tc.kept)
			}
		})
	}
}

func TestABadRecordIsNeverADuplicate(t *testing.T) {
	a := part0(0)
	letter := bad(a, 1, 11, classify.Mark(coded("wrong_type"), classify.Poison))
	p := decide(&Cut{
		Claims:     map[Partition]Span{a: {1, 10, 13, 3, nil}},
		Chunks:     []Chunk{{Runs: []Run{runOf(a, 1, 10, 10, 0, 1), runOf(a, 1, 12, 12, 1, 2)}, Entries: slices.Concat(prints(10, "x"), prints(12, "x"))}},
		Candidates: []Candidate{letter},
	}, snapshotAt(nil), judging())
	r := p.Commit.Ranges[0]
	if len(p.Letters) != 1 || r.Letters != 1 || r.Rows != 1 || r.Duplicates != 1 {
		t.Errorf("%d letters, range %+v", len(p.Letters), r)
	}
}

func TestACutOfDuplicatesAloneMovesThePosition(t *testing.T) {
	a := part0(0)
	p := decide(&Cut{
		Claims: map[Partition]Span{a: {1, 10, 12, 3, nil}},
		Chunks: []Chunk{{Runs: []Run{runOf(a, 1, 10, 11, 0, 2)}, Entries: prints(10, "xx")}},
		Seen:   map[Partition]map[idempotency.Fingerprint]int64{a: {prints(0, "x")[0].Fingerprint: noon.UnixMilli()}},
	}, snapshotAt(nil), judging())
	if want := []Range{{Topic: "orders", From: 10, Next: 12, Duplicates: 2, Epoch: 3}}; len(p.Pieces) > 0 || cmp.Diff(want, p.Commit.Ranges) != "" {
		t.Errorf("pieces %v, ranges %+v", p.Pieces, p.Commit.Ranges)
	}
}

// observed is a table whose commits are looked at.
type observed struct {
	Table
	at     *Snapshot
	commit func() error
}

func (o *observed) Commit(_ context.Context, c *Commit, pre func(*Snapshot) error) (*Snapshot, error) {
	if err := errors.Join(pre(o.at), o.commit()); err != nil {
		return nil, err
	}
	for _, txn := range c.Txns {
		o.at.Positions[txn.AppID] = txn.Version
	}
	return o.at, nil
}

func (o *observed) Stage(context.Context, *Snapshot, string, []Piece, func(int, int64)) (*Staged, error) {
	return &Staged{}, nil
}
func (o *observed) Discard(context.Context, *Staged) {}

// TestFingerprintsAreRememberedBehindTheCommit: what is remembered is in the table, at every moment.
func TestFingerprintsAreRememberedBehindTheCommit(t *testing.T) {
	a, entries := part0(0), prints(10, "xy")
	scope := idempotency.Scope{Pipeline: "pipe", TableID: "T", Partition: a}
	for _, lost := range []error{nil, classify.Mark(errors.New("another member was first"), classify.Fenced)} {
		store := idempotency.NewMemory(1<<20, nil)
		table := &observed{at: snapshotAt(map[string]int64{a.AppID("pipe"): 10, idempotency.TableAppID("pipe", "T"): 0})}
		w := &writer{
			table: table, pipeline: "pipe", snapshot: table.at, logger: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
			recollection: newRecollection(&Duplicates{Window: 24 * time.Hour, Store: store}),
		}
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
		cut := &Cut{
			Claims: map[Partition]Span{a: {1, 10, 12, 0, nil}},
			Chunks: []Chunk{{Schema: &fits{}, Runs: []Run{runOf(a, 1, 10, 11, 0, 2)}, Entries: entries}},
		}
		if err := w.recall(t.Context(), cut); err != nil {
			t.Fatal(err)
		}
		p := decide(cut, w.snapshot, w.terms(t.Context(), cut))
		_, err := w.commit(t.Context(), p, &holding{pool: bytepool.New(1), tell: func() {}, cut: &openCut{}})
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

// namedStore notes what it is given to remember.
type namedStore struct {
	idempotency.Store
	remembered []idempotency.Entry
}

func (n *namedStore) For(string) idempotency.Store { return n }

func (n *namedStore) Remember(ctx context.Context, s idempotency.Scope, from, next int64, entries iter.Seq[idempotency.Entry]) error {
	n.remembered = append(n.remembered, slices.Collect(entries)...)
	return n.Store.Remember(ctx, s, from, next, entries)
}

// TestIDsReachTheStore, from the lanes and from the table. The pool has room for them until they are there.
func TestIDsReachTheStore(t *testing.T) {
	a := part0(0)
	table := &recalling{rows: Recalled{Topic: a.Topic, Partition: a.ID, Written: noon.Add(time.Minute).UnixMilli(), Entries: prints(8, "ab")}}
	table.rows.Entries[0].ID, table.rows.Entries[1].ID = "evt-8", "evt-9"
	table.at = snapshotAt(map[string]int64{
		a.AppID("pipe"): 10, a.NewestAppID("pipe"): noon.UnixMilli() + 9000, idempotency.TableAppID("pipe", "T"): 0,
	})
	store, pool := &namedStore{Store: idempotency.NewMemory(1<<20, nil)}, bytepool.New(1<<20)
	w := &writer{
		table: table, pipeline: "pipe", snapshot: table.at, logger: slog.New(slog.DiscardHandler), metrics: newMetrics(nil), batch: pool, tell: func() {},
		recollection: newRecollection(&Duplicates{Window: 24 * time.Hour, Store: store, IDs: true}),
	}
	entries := prints(10, "xyx")
	entries[0].ID, entries[1].ID, entries[2].ID = "evt-10", "evt-11", "evt-12"
	cut := &Cut{
		Claims: map[Partition]Span{a: {1, 10, 13, 0, nil}},
		Chunks: []Chunk{{Schema: &fits{}, Rows: noRows{}, Runs: []Run{runOf(a, 1, 10, 12, 0, 3)}, Entries: entries, held: 100 + 18, entries: 7}},
	}
	pool.Adjust(100 + 18 + 7)
	h := w.hold(&openCut{}, cut)
	if err := w.recall(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	if !table.ids {
		t.Error("the table was not asked for ids")
	}
	p := decide(cut, table.at, w.terms(t.Context(), cut))
	h.plan(p.Pieces)
	h.progress(len(p.Pieces), 0)
	if used := pool.Used(); used != 18+7 {
		t.Errorf("without its rows the batch takes %d bytes of the pool, want those of entries and ids", used)
	}
	w.remember(t.Context(), p)
	var ids []string
	for _, e := range store.remembered {
		ids = append(ids, e.ID)
	}
	if want := []string{"evt-8", "evt-9", "evt-10", "evt-11"}; !slices.Equal(ids, want) {
		t.Errorf("remembered %q, want %q", ids, want)
	}
	if h.end(); pool.Used() != 0 {
		t.Errorf("%d bytes of the pool are left", pool.Used())
	}
}

// idDecoder is a decoder that can set ids.
type idDecoder struct {
	Decoder
	ids bool
}

func (d idDecoder) WithIDs() Decoder { return idDecoder{ids: true} }

func TestOnlyAStoreThatKeepsIDsAsksForThem(t *testing.T) {
	for name, c := range map[string]struct {
		duplicates *Duplicates
		want       bool
	}{"no identity": {nil, false}, "memory": {&Duplicates{}, false}, "database": {&Duplicates{IDs: true}, true}} {
		target := Target{Decoder: idDecoder{}, Duplicates: c.duplicates}
		if got := target.decoder().(idDecoder).ids; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	target := Target{Decoder: struct{ Decoder }{}, Duplicates: &Duplicates{IDs: true}}
	if target.decoder() != target.Decoder {
		t.Error("a decoder without ids was replaced")
	}
	c := &Connector{
		Config: Config{Queue: QueueConfig{PauseAt: 10, ResumeAt: 5, PerKey: 1}}, Logger: slog.New(slog.DiscardHandler),
		Route: func(string) (TopicConfig, Target, bool) {
			return TopicConfig{Table: "t"}, Target{Decoder: idDecoder{}, Duplicates: &Duplicates{IDs: true}}, true
		},
	}
	r, err := c.newReader(newMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	if table := r.feeds("orders"); !table.decoder.(idDecoder).ids {
		t.Error("the lanes got a decoder that sets no ids")
	}
}

// meddled is a store that another member resets, who believes in an older position: between our look at the window and
// our question about what is in it.
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

// recalling is a table with these rows.
type recalling struct {
	observed
	rows Recalled
	ids  bool // were asked for
}

func (r *recalling) Recall(_ *Snapshot, q Recall) (Reading, error) {
	r.ids = q.IDs
	return func(_ context.Context, each func(Recalled) error) error { return each(r.rows) }, nil
}

// TestASharedWindowIsWholeWhenItIsAsked: a duplicate stays one although somebody resets the window meanwhile; if that does
// not end, nothing is decided.
func TestASharedWindowIsWholeWhenItIsAsked(t *testing.T) {
	a := part0(0)
	for resets, whole := range map[int]bool{0: true, 1: true, 2: true, 9: false} {
		store := &meddled{Store: idempotency.NewMemory(1<<20, nil), resets: resets}
		table := &recalling{rows: Recalled{Topic: a.Topic, Partition: a.ID, Written: noon.Add(time.Minute).UnixMilli(), Entries: prints(0, "abcdexghij")}}
		table.at = snapshotAt(map[string]int64{
			a.AppID("pipe"): 10, a.NewestAppID("pipe"): noon.UnixMilli() + 9000, idempotency.TableAppID("pipe", "T"): 0,
		})
		w := &writer{
			table: table, pipeline: "pipe", snapshot: table.at, logger: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
			recollection: newRecollection(&Duplicates{Window: 24 * time.Hour, Store: store}),
		}
		cut := &Cut{
			Claims: map[Partition]Span{a: {1, 10, 12, 0, nil}},
			Chunks: []Chunk{{Schema: &fits{}, Runs: []Run{runOf(a, 1, 10, 11, 0, 2)}, Entries: prints(10, "xy")}},
		}
		err := w.recall(t.Context(), cut)
		if !whole {
			if classify.Of(err) != classify.Fenced {
				t.Errorf("reset %d times: %v, want a fence", resets, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := decide(cut, w.snapshot, w.terms(t.Context(), cut)).Commit.Ranges[0]; r.Duplicates != 1 || r.Rows != 1 {
			t.Errorf("reset %d times: %+v, want one row and one duplicate", resets, r)
		}
	}
}

// TestAClaimThatComesBackWhileItsWindowIsFilled: it was lost and regained before the filling was through. Nobody may take
// away in between what was filled in so far: the window would be taken for whole.
func TestAClaimThatComesBackWhileItsWindowIsFilled(t *testing.T) {
	a := part0(0)
	store := idempotency.NewMemory(1<<20, nil)
	half, on := make(chan struct{}), make(chan struct{})
	table := &halting{half: half, on: on, rows: Recalled{Topic: a.Topic, Partition: a.ID, Written: noon.Add(time.Minute).UnixMilli()}}
	table.at = snapshotAt(map[string]int64{
		a.AppID("pipe"): 10, a.NewestAppID("pipe"): noon.UnixMilli() + 9000, idempotency.TableAppID("pipe", "T"): 0,
	})
	w := &writer{
		table: table, pipeline: "pipe", snapshot: table.at, logger: slog.New(slog.DiscardHandler), metrics: newMetrics(nil), wake: make(chan struct{}, 1),
		recollection: newRecollection(&Duplicates{Window: 24 * time.Hour, Store: store}),
	}
	resume := func(session uint64) map[Partition]found {
		t.Helper()
		result := map[Partition]found{a: {session: session, at: Position{a, 10, 0}}}
		if err := w.ready(t.Context(), map[Partition]resumeRequest{a: {session: session}}, result); err != nil {
			t.Fatal(err)
		}
		return result
	}
	if len(resume(1)) != 0 {
		t.Fatal("it resumed without its window")
	}
	<-half
	w.release(a)
	if len(resume(2)) != 0 {
		t.Fatal("it came back and resumed without its window")
	}
	close(on)
	w.recollection.filling.Wait()
	w.mu.Lock()
	done := w.todo.filled
	w.mu.Unlock()
	if again := w.heardFilled(t.Context(), done); again[a].session != 2 {
		t.Fatalf("resumes as %+v", again)
	}
	if len(resume(2)) != 1 {
		t.Fatal("it does not resume")
	}
	cut := &Cut{
		Claims: map[Partition]Span{a: {2, 10, 12, 0, nil}},
		Chunks: []Chunk{{Schema: &fits{}, Runs: []Run{runOf(a, 2, 10, 11, 0, 2)}, Entries: prints(10, "aj")}},
	}
	if err := w.recall(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	if r := decide(cut, w.snapshot, w.terms(t.Context(), cut)).Commit.Ranges[0]; r.Duplicates != 2 {
		t.Errorf("%+v: want two duplicates", r)
	}
}

// halting is a table whose rows come in two parts, with a pause between them.
type halting struct {
	observed
	rows     Recalled
	half, on chan struct{}
}

func (h *halting) Recall(*Snapshot, Recall) (Reading, error) {
	return func(_ context.Context, each func(Recalled) error) error {
		first, second := h.rows, h.rows
		first.Entries, second.Entries = prints(0, "abcde"), prints(5, "fghij")
		if err := each(first); err != nil {
			return err
		}
		close(h.half)
		<-h.on
		return each(second)
	}, nil
}

// duplicatesOf is the plan of a batch whose n records at offsets from 1 on are duplicates of the one at 0, as it is decided for a
// logger.
func duplicatesOf(t *testing.T, n int, logger *slog.Logger) *Plan {
	t.Helper()
	a, cut := part0(0), &Cut{Batch: "b-1"}
	entries := prints(0, strings.Repeat("x", n+1))
	cut.Claims = map[Partition]Span{a: {1, 0, int64(n + 1), 3, nil}}
	cut.Chunks = []Chunk{{Runs: []Run{runOf(a, 1, 0, int64(n), 0, int64(n+1))}, Entries: entries}}
	w := &writer{pipeline: "pipe", logger: logger, recollection: newRecollection(&Duplicates{Window: 24 * time.Hour})}
	return decide(cut, snapshotAt(nil), w.terms(t.Context(), cut))
}

// TestDuplicateLog/Debug: each duplicate has a line with its coordinates and its fingerprint, up to a number each second; a line
// says how many were left out, those that the plan did not keep included.
func TestDuplicateLog(t *testing.T) {
	said := func(log *bytes.Buffer, msg string) (lines []map[string]any) {
		for _, line := range logLines(t, log) {
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
			l.tell(t.Context(), logger, duplicatesOf(t, 2, logger))
			want := func(offset, left int) map[string]any {
				c := idempotency.Coordinates{Partition: part0(0), Offset: int64(offset)}
				return map[string]any{
					"level": "DEBUG", "msg": "fingerprint hit", "topic": "orders", "partition": 0.0, "offset": float64(offset),
					"fingerprint": prints(0, "x")[0].Fingerprint.String(), "correlation_id": deadletter.Correlation(c), "batch_id": "b-1", "left_out": float64(left),
				}
			}
			if diff := cmp.Diff([]map[string]any{want(1, 0), want(2, 0)}, said(log, "fingerprint hit")); diff != "" {
				t.Error(diff)
			}
			time.Sleep(time.Second)
			l.tell(t.Context(), logger, duplicatesOf(t, 5*recordLines, logger))
			if n := len(said(log, "fingerprint hit")); n != recordLines {
				t.Errorf("%d lines in a second, want %d", n, recordLines)
			}
			l.tell(t.Context(), logger, duplicatesOf(t, 7, logger))
			time.Sleep(time.Second)
			l.tell(t.Context(), logger, duplicatesOf(t, 1, logger))
			if diff := cmp.Diff([]map[string]any{want(1, 4*recordLines+7)}, said(log, "fingerprint hit")); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("Info", func(t *testing.T) {
		logger, log := at(slog.LevelInfo)
		l, p := newDuplicateLog(), duplicatesOf(t, 3*skippedKept, logger)
		l.tell(t.Context(), logger, p)
		if len(p.skipped) != skippedKept || l.beyond != 0 {
			t.Errorf("%d duplicates are kept for lines that are not written, and %d counted", len(p.skipped), l.beyond)
		}
		if n := bytes.Count(log.Bytes(), []byte("\n")); n != skippedLines || n != bytes.Count(log.Bytes(), []byte("Skipping duplicate")) {
			t.Errorf("%d lines, want %d of duplicates:\n%s", n, skippedLines, log)
		}
	})
}
