package pulse_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/reliability/pulse"
)

func TestLoop(t *testing.T) {
	var all pulse.Loops
	a, b := all.Begin("a"), all.Begin("b")
	a.Work()
	a.Turn()
	b.Work()
	b.Wait()
	b.Wait() // a function that the loop calls waits, too, so waits may be nested
	b.Done()
	want := []pulse.State{
		{ID: 1, Name: "a", Working: true, Turns: 2},
		{ID: 2, Name: "b", Working: true, Waiting: true, Turns: 2},
	}
	if diff := cmp.Diff(want, all.States()); diff != "" {
		t.Error(diff)
	}
	b.Done()
	b.Rest()
	a.End()
	c := all.Begin("a") // a new loop with the name of one that has ended
	c.Work()
	want = []pulse.State{
		{ID: 2, Name: "b", Turns: 3},
		{ID: 3, Name: "a", Working: true, Turns: 1},
	}
	if diff := cmp.Diff(want, all.States()); diff != "" {
		t.Error(diff)
	}
}

func TestContext(t *testing.T) {
	var all pulse.Loops
	a := all.Begin("a")
	ctx := pulse.With(t.Context(), a)
	pulse.Of(ctx).Work()
	if got := all.States()[0]; !got.Working {
		t.Errorf("%+v", got)
	}
	if pulse.Of(pulse.With(ctx, nil)) != nil || pulse.Of(t.Context()) != nil {
		t.Error("a loop from nowhere")
	}
}

func TestNobodyLooks(t *testing.T) {
	var none *pulse.Loops
	l := none.Begin("a")
	l.Work()
	l.Turn()
	l.Wait()
	l.Done()
	l.Rest()
	l.End()
	if all := none.States(); all != nil {
		t.Error(all)
	}
}
