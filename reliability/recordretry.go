package reliability

import (
	"math"
	"time"
)

// RecordRetry is how often work for one record is tried again, and after which pauses, before the record is given up. It
// is never for a dependency that fails: that is a [Guard]'s, which does not give up.
type RecordRetry struct {
	// Max is the number of attempts after the first failure; 0 gives up at once.
	Max int
	// Wait is the pause that Curve starts from.
	Wait time.Duration
	// Curve says how pauses grow.
	Curve Curve
	// Schedule has the pause before each attempt. Only for [Scheduled], where Max is its length.
	Schedule []time.Duration
	// Cap bounds the pauses of [Exponential], and Jitter is the share by which they are spread, after the cap. The other
	// curves have neither: their pauses are exactly what they say.
	Cap    time.Duration
	Jitter float64
}

// Curve is how pauses grow from attempt to attempt.
type Curve string

// The curves. n counts the attempts from 1.
const (
	Exponential Curve = "exponential" // Wait × 2^(n-1), up to Cap, then ± Jitter
	Linear      Curve = "linear"      // Wait × n
	Scheduled   Curve = "schedule"    // Schedule[n-1]
)

// Attempts is how often work is tried after its first failure.
func (r RecordRetry) Attempts() int {
	if r.Curve == Scheduled {
		return len(r.Schedule)
	}
	return max(r.Max, 0)
}

// Pause returns the wait before attempt n, counted from 1. It is never negative.
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
