package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestUntilSaid: the context of the work ends only after the log line about the signal has been written.
func TestUntilSaid(t *testing.T) {
	t.Run("Stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stopped, stop := context.WithCancelCause(t.Context())
			saying := make(chan struct{})
			working, end := untilSaid(stopped, func(context.Context) { <-saying })
			reason := errors.New("terminated")
			stop(reason)
			synctest.Wait()
			if working.Err() != nil {
				t.Error("the work was stopped before the log said so")
			}
			close(saying)
			<-working.Done()
			if !errors.Is(context.Cause(working), reason) {
				t.Errorf("cause %v, want %v", context.Cause(working), reason)
			}
			end()
		})
	})
	t.Run("Ended", func(t *testing.T) {
		stopped, stop := context.WithCancel(t.Context())
		working, end := untilSaid(stopped, func(context.Context) { t.Error("say was called after end") })
		end()
		stop()
		if working.Err() == nil {
			t.Error("the context is not released")
		}
	})
}
