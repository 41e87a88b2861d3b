package delta

import (
	"context"
	"math/rand/v2"
	"time"

	"sluice/classify"
	"sluice/reliability"
)

// turn shares the log fairly among its writers. A version goes to the writer that puts first, and the log does not show
// which writers had a conflict. A writer that tried again right after its own commit would commit again and again, and
// starve the others. So each writer pauses after a commit. It also pauses after a conflict, and the more conflicts it
// had, the shorter.
type turn struct {
	committed   time.Time     // time of this writer's last commit
	putDuration time.Duration // duration of the newest put, from its start until its outcome was known
}

const (
	// minPause separates writers that had a conflict with the same commit. maxPause bounds the delay with a slow store.
	minPause, maxPause = 20 * time.Millisecond, 2 * time.Second
)

// yield waits until one to two durations of a put have passed since our last commit, so that other writers get a
// chance.
func (t *turn) yield(ctx context.Context) error {
	took := min(t.putDuration, maxPause)
	return t.wait(ctx, time.Until(t.committed.Add(took+rand.N(took+1))))
}

// afterLoss waits after the n-th conflict in a row, counted from 0. The wait is random; its upper limit is four times
// the duration of a put for n = 0, at least 100 ms and at most maxPause, and falls with each conflict.
func (t *turn) afterLoss(ctx context.Context, n int) error {
	wide := min(max(4*t.putDuration, 4*minPause), maxPause-minPause)
	return t.wait(ctx, minPause+rand.N(wide/time.Duration(n+1)+1))
}

// attempted records the duration of a put. A put with an unknown outcome is left out: its duration is not the store's
// usual one.
func (t *turn) attempted(p *proposal) {
	if !p.outcomeWasUnknown {
		t.putDuration = time.Since(p.Sent())
	}
}

func (t *turn) wait(ctx context.Context, d time.Duration) error {
	if err := reliability.Wait(ctx, d); err != nil {
		return classify.Mark(err, classify.Canceled)
	}
	return nil
}
