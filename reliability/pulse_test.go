package reliability_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sluice/reliability"
	"sluice/reliability/pulse"
)

// TestAGuardsLoopWaits: while a guard makes an attempt, pauses, or waits for its open breaker, the loop that called it
// counts as waiting. Once the guard has returned, it does not.
func TestAGuardsLoopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loops pulse.Loops
		loop := loops.Begin("writer")
		loop.Work()
		ctx, end := context.WithCancel(pulse.With(t.Context(), loop))
		defer end()
		g, answers := guard(t), make(chan error)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = g.Do(ctx, func(ctx context.Context) error {
				select {
				case err := <-answers:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		waits := func(when string) {
			t.Helper()
			if synctest.Wait(); !loops.States()[0].Waiting {
				t.Errorf("it does not wait %s", when)
			}
		}
		time.Sleep(time.Hour)
		waits("for an answer")
		for range 5 { // so many failures open the breaker
			answers <- hiccup
			waits("between attempts")
		}
		before := loops.States()[0].Turns
		answers <- nil
		<-done
		if s := loops.States()[0]; s.Waiting || !s.Working || s.Turns <= before {
			t.Errorf("answered: %+v", s)
		}
		if g.Try(ctx, func(context.Context) error { waits("for one try"); return nil }) != nil || loops.States()[0].Waiting {
			t.Error("it still waits")
		}
		go func() { _ = reliability.Wait(ctx, time.Hour) }()
		waits("for time to pass")
	})
}
