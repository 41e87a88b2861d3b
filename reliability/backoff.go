// Package reliability retries an operation against a dependency until it succeeds, cannot succeed, or its context ends.
package reliability

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is the pause between tries: Initial, doubled each time up to Max, then spread by ±Jitter so that members do
// not retry at the same moments. The spread comes after Max, because in a long outage all pauses have reached Max.
type Backoff struct {
	Initial time.Duration // the first pause, by default 1s
	Max     time.Duration // the longest pause, by default 30s
	Jitter  float64       // fraction by which a pause is shortened or lengthened at random, by default 0.25
}

// Pause returns the pause after the n-th failure, counted from 1. It is never negative.
func (b Backoff) Pause(n int) time.Duration {
	d := b.Initial
	for i := 1; i < n && d < b.Max; i++ {
		d *= 2
		if d <= 0 { // the multiplication overflowed
			d = b.Max
		}
	}
	d = max(min(d, b.Max), 0)
	spread := float64(d) * b.Jitter * (2*rand.Float64() - 1)
	if spread >= float64(math.MaxInt64-d) {
		return math.MaxInt64
	}
	return max(0, d+time.Duration(spread))
}
