package opslog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/reliability"
)

const (
	// PollEvery is the interval at which a member polls the log.
	PollEvery = 8 * time.Second
	// FollowDelay is the longest time until members act on an operation, while the store answers.
	FollowDelay = 10 * time.Second
)

// A Follower keeps a member up to date with the log: it polls, reads new entries and verifies the chain. While the log
// is unreachable or broken, the follower keeps the state of the entries that it could verify, so that an outage never
// looks like "no pauses".
type Follower struct {
	chain chain
	every time.Duration
	log   *slog.Logger
	ready chan struct{}

	broken prometheus.Gauge

	mu      sync.Mutex
	state   *State        // state of the last poll; nil before the first poll that found the log intact
	changed chan struct{} // closed when state is replaced
	polled  time.Time
	trouble Trouble
	failing reliability.FailureLog
}

// Trouble is the reason why a follower is not up to date.
type Trouble struct {
	Since time.Time
	Err   error // a [BrokenError] if the log is damaged, incomplete or rewritten
}

// Follow returns a follower that polls at this interval once it runs. The error is that of registering its metrics.
func (l *Log) Follow(every time.Duration) (*Follower, error) {
	f := &Follower{chain: chain{bucket: l.bucket, state: &State{}}, every: every, log: l.log, ready: make(chan struct{}), changed: make(chan struct{})}
	f.broken = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_operations_log_broken", Help: "1 while the operations log is not what was written.",
	})
	if l.reg == nil {
		return f, nil
	}
	for _, c := range []prometheus.Collector{
		f.broken,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_operations_log_seq", Help: "Seq of the newest operation that this member knows, 0 if there is none.",
		}, func() float64 { return float64(f.head().Seq) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_operations_log_age_seconds", Help: "Time since this member last saw the end of the operations log, -1 before the first time.",
		}, f.age),
	} {
		if err := l.reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of the operations log: %w", err)
		}
	}
	return f, nil
}

// Run polls the log until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	pause := reliability.Backoff{Initial: f.every, Max: f.every, Jitter: 0.1} // the jitter spreads the polls of the members
	for {
		f.poll(ctx)
		if reliability.Wait(ctx, pause.Pause(1)) != nil {
			return
		}
	}
}

// poll reads the new entries and publishes the new state. If that fails, it logs the error and keeps it as the trouble;
// the entries that it could verify are in force.
func (f *Follower) poll(ctx context.Context) {
	before := f.chain.state.head
	err := f.chain.refresh(ctx)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	broken := (*BrokenError)(nil)
	f.broken.Set(0)
	if errors.As(err, &broken) {
		f.broken.Set(1)
	}
	if err == nil {
		f.failing.Over(ctx, f.log, "following the operations log again", "seq", f.chain.state.head.Seq)
		if f.state == nil {
			close(f.ready)
		}
		f.set(f.chain.state)
		f.polled, f.trouble = f.chain.seen, Trouble{}
		if head := f.state.head; head != before {
			f.log.InfoContext(ctx, "operations log", "seq", head.Seq, "hash", head.Hash, "pauses", len(f.state.pauses))
		}
		return
	}
	f.failing.Failed(ctx, f.log, slog.LevelError, "failed to follow the operations log; keeping the last state",
		"err", err, "class", classify.Of(err).String(), "seq", f.chain.state.head.Seq)
	if f.trouble.Since.IsZero() {
		f.trouble.Since = time.Now()
	}
	f.trouble.Err = err
	if f.state != nil {
		f.set(f.chain.state) // if the log is broken, the entries before the break are in force
	}
}

// set stores a new state and wakes those who wait for one. The caller has the lock.
func (f *Follower) set(s *State) {
	if f.state == nil || f.state.head != s.head {
		close(f.changed)
		f.changed = make(chan struct{})
	}
	f.state = s
}

// Ready returns a channel that is closed after the first poll that found the log intact.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// State returns the newest state, nil until [Follower.Ready] is closed.
func (f *Follower) State() *State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Changed returns a channel that is closed once there is a newer state. A caller that calls it before [Follower.State] misses
// no change.
func (f *Follower) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Trouble returns the reason why the last poll failed; false means that it succeeded.
func (f *Follower) Trouble() (Trouble, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble, f.trouble.Err != nil
}

func (f *Follower) head() Head {
	if s := f.State(); s != nil {
		return s.head
	}
	return Head{}
}

func (f *Follower) age() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.polled.IsZero() {
		return -1
	}
	return time.Since(f.polled).Seconds()
}
