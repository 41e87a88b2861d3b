package delta

import (
	"context"
	"math/rand/v2"
	"time"

	"sluice/classify"
	"sluice/reliability"
)

// turn shares the log among its writers. A version goes to whoever puts first, and those who lose leave no trace in the
// log that others could heed: a writer that comes back at once would win again and again, and the others never. So each
// stays away for a while after it has won, and comes back the sooner the more often it has lost.
type turn struct {
	committed time.Time     // when we won last
	took      time.Duration // the newest put of a version, from its start to its known end
}

const (
	// minPause keeps writers who lost to the same one apart, mostPause bounds what a slow store may cost.
	minPause, maxPause = 20 * time.Millisecond, 2 * time.Second
)

// yield waits until others have had their chance since we won: one to two times as long as a put takes.
func (t *turn) yield(ctx context.Context) error {
	took := min(t.took, maxPause)
	return t.wait(ctx, time.Until(t.committed.Add(took+rand.N(took+1))))
}

// afterLoss waits after the n-th lost race in a row, counted from 0, up to four times as long as a put takes, and shorter
// with each.
func (t *turn) afterLoss(ctx context.Context, n int) error {
	wide := min(max(4*t.took, 4*minPause), maxPause-minPause)
	return t.wait(ctx, minPause+rand.N(wide/time.Duration(n+1)+1))
}

// attempted notes how long it took to decide a version. One that was in doubt says nothing of the store's usual speed.
func (t *turn) attempted(p *proposal) {
	if !p.outcomeWasUnknown {
		t.took = time.Since(p.Sent())
	}
}

func (t *turn) wait(ctx context.Context, d time.Duration) error {
	if err := reliability.Wait(ctx, d); err != nil {
		return classify.Mark(err, classify.Canceled)
	}
	return nil
}
