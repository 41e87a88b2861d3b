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
	// PollEvery is how often a member reads the log.
	PollEvery = 8 * time.Second
	// FollowDelay is how long it takes at most until members act on an operation, while the store answers.
	FollowDelay = 10 * time.Second
)

// A Follower keeps up with the log for a member: it looks at it from time to time, reads what is new and checks the chain
// as it goes. While the log is out of reach or broken it keeps what it knew; it never takes that for "no pauses".
type Follower struct {
	chain chain
	every time.Duration
	log   *slog.Logger
	ready chan struct{}

	broken prometheus.Gauge

	mu      sync.Mutex
	state   *State // nil before the first look that succeeded
	polled  time.Time
	trouble Trouble
	failing reliability.FailureLog
}

// Trouble is why a follower does not keep up.
type Trouble struct {
	Since time.Time
	Err   error // a [BrokenError] if the log is not what was written
}

// Follow returns a follower that looks every so often once it runs. The error is that of registering its metrics.
func (l *Log) Follow(every time.Duration) (*Follower, error) {
	f := &Follower{chain: chain{bucket: l.bucket, state: &State{}}, every: every, log: l.log, ready: make(chan struct{})}
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

// Run looks at the log until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	pause := reliability.Backoff{Initial: f.every, Max: f.every, Jitter: 0.1} // members do not look in step
	for {
		f.poll(ctx)
		if reliability.Wait(ctx, pause.Pause(1)) != nil {
			return
		}
	}
}

// poll reads what is new.
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
		f.failing.Over(ctx, f.log, "the operations log is followed again", "seq", f.chain.state.head.Seq)
		if f.state == nil {
			close(f.ready)
		}
		f.state, f.polled, f.trouble = f.chain.state, f.chain.seen, Trouble{}
		if head := f.state.head; head != before {
			f.log.InfoContext(ctx, "operations log", "seq", head.Seq, "hash", head.Hash, "pauses", len(f.state.pauses))
		}
		return
	}
	f.failing.Failed(ctx, f.log, slog.LevelError, "the operations log cannot be followed, what is known of it stays in force",
		"err", err, "class", classify.Of(err).String(), "seq", f.chain.state.head.Seq)
	if f.trouble.Since.IsZero() {
		f.trouble.Since = time.Now()
	}
	f.trouble.Err = err
	if f.state != nil {
		f.state = f.chain.state // what is before a break counts
	}
}

// Ready is closed after the first look that saw the log whole.
func (f *Follower) Ready() <-chan struct{} { return f.ready }

// State returns the newest state, nil before [Follower.Ready].
func (f *Follower) State() *State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Trouble returns why the last look failed, false if it did not.
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
