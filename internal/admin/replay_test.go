package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/laketest"
	"sluice/sink/opslog"
)

// TestReplay_Interrupted: a replay that is interrupted between two commits makes no further row, and leaves no commit
// without an outcome. The same replay then makes the other rows.
func TestReplay_Interrupted(t *testing.T) {
	l := newLake(t, "topics: {orders: {unknown_fields: dead_letter, bad_records: dead_letter, dead_letters: {hold_above: 100%}}}")
	l.Create("orders", 1)
	for range 3 {
		if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(`{"n": 1}`)}, &kgo.Record{Topic: "orders", Value: []byte(`{"n": 1, "new": 1}`)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	l.run()
	corrected := l.As("unknown_fields: dead_letter", "unknown_fields: ignore")
	a := &Access{Config: laketest.Load(t, corrected.Config), Version: "v1"}
	defer a.Close()
	replay := func(ctx context.Context, by By, progress func(ReplayProgress)) (*ReplayResult, error) {
		t.Helper()
		p, err := PlanReplay(t.Context(), a, ReplayQuery{Rate: 0.001, LetterSelection: LetterSelection{LetterQuery: LetterQuery{Topic: "orders", Within: time.Minute}}})
		if err != nil {
			t.Fatal(err)
		}
		return Replay(ctx, a, p, by, progress)
	}
	by := By{Operator: "ada", Reason: "fixed", Once: opslog.Once{Key: strings.Repeat("a", 64), Request: strings.Repeat("b", 64)}}
	ctx, interrupt := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	r, err := replay(ctx, by, func(p ReplayProgress) {
		if p.Done != 1 || p.Of != 3 || p.Result.Rows != 1 {
			t.Errorf("%+v", p)
		}
		interrupt(enough)
	})
	if !errors.Is(err, enough) || r.Rows != 1 || r.Operation != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = replay(ctx, By{Operator: "ada", Reason: "late"}, nil); err == nil || r.Rows != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	entries := l.operations()
	if done, ok := entries[len(entries)-1].(opslog.ReplayDone); !ok || done.Outcome != opslog.Committed || len(entries) != 2 {
		t.Errorf("%+v", entries)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 4}})
}

// TestOutlast: the context of outlast ends finishCommit after its parent ended, with the cause of the parent. It ends
// at once if the caller calls end.
func TestOutlast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		working, end := outlast(ctx, finishCommit)
		defer end()
		time.Sleep(time.Hour)
		interrupt(errors.New("enough"))
		time.Sleep(finishCommit - time.Second)
		if working.Err() != nil {
			t.Error(context.Cause(working))
		}
		time.Sleep(2 * time.Second)
		if err := context.Cause(working); err == nil || err.Error() != "enough" {
			t.Error(err)
		}
		ended, endEarly := outlast(t.Context(), time.Hour) //nolint:contextcheck // another context on purpose
		endEarly()
		if ended.Err() == nil {
			t.Error("the context outlasts its work")
		}
	})
}
