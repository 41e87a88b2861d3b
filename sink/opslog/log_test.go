package opslog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

// everywhere runs a test on a store of each kind.
func everywhere(t *testing.T, test func(t *testing.T, store objstore.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, objstore.NewMem()) })
	t.Run("local", func(t *testing.T) {
		s, err := objstore.NewLocal(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, s)
	})
	t.Run("S3", func(t *testing.T) {
		c := objstoretest.ServeS3(t, nil)
		c.Prefix = "a/prefix"
		s, err := objstore.NewS3(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, s)
	})
}

func TestAppend(t *testing.T) {
	everywhere(t, func(t *testing.T, store objstore.Store) {
		l := open(store)
		if s, err := l.State(t.Context()); err != nil || s.Head() != (opslog.Head{}) {
			t.Fatalf("the empty log has state %+v %v", s, err)
		}
		if got := verify(t, store, opslog.Head{}); got.Entries != 0 || len(got.Findings) != 0 {
			t.Errorf("the empty log verifies as %+v", got)
		}
		var want []opslog.Entry
		for i := range 40 { // more entries than are read in parallel
			op := pause(fmt.Sprint("reason ", i), opslog.Target{Topic: "orders", Partition: int32(i)})
			if i%3 == 2 {
				op = resume("done", opslog.Topic("orders"))
			}
			want = append(want, add(t, []*opslog.Log{l, open(store)}[i%2], op))
		}
		got := entries(t, store)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(opslog.Entry{})); diff != "" {
			t.Errorf("-appended +read\n%s", diff)
		}
		for i, e := range got {
			if e.Seq != int64(i)+1 || e.Hash() != want[i].Hash() || i > 0 && e.Prev != got[i-1].Hash() {
				t.Errorf("entry %d is %+v", i, e)
			}
		}
		head := got[len(got)-1].Head()
		r := verify(t, store, head)
		if r.Entries != 40 || r.Head != head || len(r.Findings) != 0 {
			t.Errorf("verified %+v", r)
		}
		s, err := l.State(t.Context())
		if err != nil || s.Head() != head || len(s.Pauses()) != 1 || s.Pauses()[0].Target.Partition != 39 {
			t.Errorf("state %+v %v", s, err)
		}
		var late []int64
		for e, err := range l.Entries(t.Context(), 38) {
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, e.Seq)
		}
		if !slices.Equal(late, []int64{38, 39, 40}) {
			t.Errorf("from 38 on: %v", late)
		}
		for e, err := range l.Entries(t.Context(), 1) { // a caller may stop before the end
			if e.Seq != 1 || err != nil {
				t.Errorf("%+v %v", e, err)
			}
			break
		}
	})
}

func TestAppend_Concurrent(t *testing.T) {
	everywhere(t, func(t *testing.T, store objstore.Store) {
		const writers, each = 4, 4
		var wg sync.WaitGroup
		ids := make(chan string, writers*each)
		for w := range writers {
			wg.Go(func() {
				l := open(store)
				for i := range each {
					e, err := l.Append(t.Context(), pause(fmt.Sprint(w, " ", i), opslog.Topic("orders")), nil)
					if err != nil {
						t.Error(err)
						return
					}
					ids <- e.ID
				}
			})
		}
		wg.Wait()
		close(ids)
		var want, got []string
		for id := range ids {
			want = append(want, id)
		}
		for _, e := range entries(t, store) {
			got = append(got, e.ID)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%d are in the log, %d were acknowledged", len(got), len(want))
		}
		if r := verify(t, store, opslog.Head{}); len(r.Findings) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestAppend_PreSeesState: pre is called with the current state, also if another writer appends an entry before our
// put.
func TestAppend_PreSeesState(t *testing.T) {
	store := objstore.NewMem()
	l, other := open(store), open(store)
	add(t, other, pause("first", opslog.Topic("a")))
	var saw []int64
	e, err := l.Append(t.Context(), pause("mine", opslog.Topic("b")), func(s *opslog.State) error {
		saw = append(saw, s.Head().Seq)
		if len(saw) == 1 {
			add(t, other, pause("between", opslog.Topic("c")))
		}
		if _, paused := s.Paused("c", 0); paused != (len(saw) == 2) {
			t.Errorf("at look %d c is paused: %v", len(saw), paused)
		}
		return nil
	})
	if err != nil || e.Seq != 3 || !slices.Equal(saw, []int64{1, 2}) {
		t.Errorf("seq %d %v, PRE saw %v", e.Seq, err, saw)
	}
	refusal := errors.New("already so")
	if _, err := l.Append(t.Context(), pause("again", opslog.Topic("b")), func(*opslog.State) error { return refusal }); err != refusal { //nolint:errorlint // as it is
		t.Errorf("%v, want PRE's error as it is", err)
	}
	if got := len(entries(t, store)); got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
}

func TestAppend_IncompleteOperation(t *testing.T) {
	l := open(objstore.NewMem())
	for name, op := range map[string]opslog.Operation{
		"no body":                {Operator: "a", Reason: "r"},
		"no operator":            {Reason: "r", Body: opslog.Pause{Targets: []opslog.Target{opslog.All()}}},
		"no reason":              {Operator: "a", Body: opslog.Pause{Targets: []opslog.Target{opslog.All()}}},
		"no target":              {Operator: "a", Reason: "r", Body: opslog.Resume{}},
		"no move":                {Operator: "a", Reason: "r", Body: opslog.OffsetsIntent{Command: "offsets set", Table: "t"}},
		"no topic":               {Operator: "a", Reason: "r", Body: opslog.FloodAllow{Until: time.Now()}},
		"no column":              {Operator: "a", Reason: "r", Body: opslog.SchemaIntent{Table: "t"}},
		"no table of a column":   {Operator: "a", Reason: "r", Body: opslog.SchemaIntent{Changes: []string{"a int"}}},
		"no intent":              {Operator: "a", Reason: "r", Body: opslog.SchemaDone{Table: "t", Changes: []string{"a int"}, Outcome: opslog.Committed}},
		"no outcome of a schema": {Operator: "a", Reason: "r", Body: opslog.SchemaDone{Intent: 1, Table: "t", Changes: []string{"a int"}}},
		"nothing to forget":      {Operator: "a", Reason: "r", Body: opslog.Forget{Topic: "a", Table: "t"}},
		"forget no member":       {Operator: "a", Reason: "r", Body: opslog.ForgetMembers{}},
		"forget below no offset": {Operator: "a", Reason: "r", Body: opslog.Forget{Topic: "a", Table: "t", Below: []opslog.Below{{Offset: -1}}}},
		"no end":                 {Operator: "a", Reason: "r", Body: opslog.FloodAllow{Topic: "a"}},
		"no outcome":             {Operator: "a", Reason: "r", Body: opslog.OffsetsDone{Intent: 1, Command: "c", Table: "t", Moves: []opslog.Move{{Topic: "a"}}}},
	} {
		if e, err := l.Append(t.Context(), op, nil); err == nil || classify.Of(err) != classify.Fatal {
			t.Errorf("%s: %+v %v", name, e, err)
		}
	}
}

// TestAppend_StoreDenies: if the store denies the put, Append does not retry it and returns the error.
func TestAppend_StoreDenies(t *testing.T) {
	faulty := objstoretest.NewFaulty(objstore.NewMem(), func(op objstore.Op) (f objstoretest.Fault) {
		if op.Kind == objstore.OpPutIfAbsent {
			f.Err = objstoretest.ErrDenied
		}
		return f
	})
	_, err := open(faulty).Append(t.Context(), pause("r", opslog.All()), nil)
	if classify.Of(err) != classify.Fatal || errors.Is(err, opslog.ErrUndecided) || !errors.Is(err, objstore.ErrRefused) {
		t.Errorf("%v", err)
	}
}

// TestAppend_DenialAfterUnknownOutcome: a put with unknown outcome is followed by a denied one. The outcome of Append
// is unknown, because the first put may have written the entry.
func TestAppend_DenialAfterUnknownOutcome(t *testing.T) {
	mem := objstore.NewMem()
	puts := 0
	ctx, cancel := context.WithCancel(t.Context())
	faulty := objstoretest.NewFaulty(mem, func(op objstore.Op) (f objstoretest.Fault) {
		switch {
		case op.Kind != objstore.OpPutIfAbsent:
		case puts == 0:
			f.Err, f.Effect = objstoretest.ErrTimeout, objstoretest.Late
			puts++
		default:
			f.Err = objstoretest.ErrDenied
			if puts++; puts == 3 {
				cancel()
			}
		}
		return f
	})
	t.Cleanup(func() { _ = faulty.Close() })
	e, err := open(faulty).Append(ctx, pause("r", opslog.All()), nil)
	if !errors.Is(err, opslog.ErrUndecided) || e.Seq != 1 || e.ID == "" || puts != 3 {
		t.Fatalf("%+v %v after %d puts", e, err, puts)
	}
	for _, op := range faulty.Flying() {
		if err := faulty.Land(op.N); err != nil {
			t.Fatal(err)
		}
	}
	if got := entries(t, mem); len(got) != 1 || got[0].ID != e.ID {
		t.Errorf("%+v, want the one that was said to be undecided: %s", got, e.ID)
	}
}

// TestAppend_DamagedEntryAtSeq: if the object at the entry's key cannot be parsed, the outcome is unknown, because it
// may be our own entry, damaged in transit.
func TestAppend_DamagedEntryAtSeq(t *testing.T) {
	mem := objstore.NewMem()
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	faulty := objstoretest.NewFaulty(mem, func(op objstore.Op) (f objstoretest.Fault) {
		if op.Kind == objstore.OpGet && op.Key == key(1) {
			if reads++; reads == 2 {
				cancel()
			}
		}
		return f
	})
	_, err := open(faulty).Append(ctx, pause("mine", opslog.All()), func(*opslog.State) error {
		put(t, mem, key(1), []byte("what is this"))
		return nil
	})
	if !errors.Is(err, opslog.ErrUndecided) || reads != 2 {
		t.Errorf("%v after %d looks", err, reads)
	}
}
