package reliability

import (
	"math"
	"time"
)

// RecordRetry sets how often the work on one record is retried, and after which pauses, before the record is given up.
// It is not for failing dependencies: a [Guard] retries those and never gives up.
type RecordRetry struct {
	// Max is the number of attempts after the first failure; 0 means none. [Scheduled] ignores it.
	Max int
	// Wait is the first pause of Exponential and Linear.
	Wait time.Duration
	// Curve is the rule by which the pauses grow.
	Curve Curve
	// Schedule lists the pause before each attempt. [Scheduled] uses it, with as many attempts as there are pauses.
	Schedule []time.Duration
	// Cap bounds the pauses of [Exponential]. Jitter is the fraction by which those pauses are spread at random after
	// the bound is applied. The other curves ignore both.
	Cap    time.Duration
	Jitter float64
}

// Curve says how pauses grow from one attempt to the next.
type Curve string

// The curves, with the pause before the n-th attempt; n counts from 1.
const (
	Exponential Curve = "exponential" // Wait × 2^(n-1), up to Cap, then ± Jitter
	Linear      Curve = "linear"      // Wait × n
	Scheduled   Curve = "schedule"    // Schedule[n-1]
)

// Attempts returns the number of attempts after the first failure.
func (r RecordRetry) Attempts() int {
	if r.Curve == Scheduled {
		return len(r.Schedule)
	}
	return max(r.Max, 0)
}

// Pause returns the pause before attempt n, counted from 1. It is never negative, and 0 for an n outside of the
// Schedule.
func (r RecordRetry) Pause(n int) time.Duration {
	switch r.Curve {
	case Scheduled:
		if n < 1 || n > len(r.Schedule) {
			return 0
		}
		return max(r.Schedule[n-1], 0)
	case Linear:
		if n > 0 && r.Wait > math.MaxInt64/time.Duration(n) {
			return math.MaxInt64
		}
		return max(r.Wait*time.Duration(n), 0)
	case Exponential:
	}
	return Backoff{Initial: r.Wait, Max: r.Cap, Jitter: r.Jitter}.Pause(n)
}
