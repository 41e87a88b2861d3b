package lettercount

import (
	"sync"
	"time"
)

const (
	// rateOver is the window of a rate, rateStep the resolution of the window.
	rateOver = 5 * time.Minute
	rateStep = 10 * time.Second
)

// Rate counts dead letters over the last five minutes. It is safe for concurrent use. The zero value is ready for use.
type Rate struct {
	mu    sync.Mutex
	steps [rateOver / rateStep]struct{ step, n int64 }
}

// Add counts letters that were written now.
func (r *Rate) Add(now time.Time, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now.UnixNano() / int64(rateStep)
	s := &r.steps[at%int64(len(r.steps))]
	if s.step != at {
		s.step, s.n = at, 0
	}
	s.n += int64(n)
}

// PerMinute is the rate of the last five minutes.
func (r *Rate) PerMinute(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, sum := now.UnixNano()/int64(rateStep), int64(0)
	for _, s := range r.steps {
		if s.step <= at && s.step > at-int64(len(r.steps)) {
			sum += s.n
		}
	}
	return float64(sum) / rateOver.Minutes()
}
