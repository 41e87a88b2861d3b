package reliability

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"sluice/classify"
)

// Config is how patient a guard is. See config.yaml for the defaults.
type Config struct {
	Backoff
	Failures  uint32        // consecutive ones that open the breaker: 5
	OpenFor   time.Duration // until a waiting request may probe: 60s
	Successes uint32        // consecutive ones that close it again: 3
}

// A Guard stands before one dependency (a table's store, the Kafka cluster). It retries what is Transient, without
// limit, behind a circuit breaker. While the breaker is open callers wait inside [Guard.Do]; when its time is over a
// waiting caller is the probe. Exactly this layer retries: nothing below it does.
type Guard struct {
	name    string
	backoff Backoff
	openFor time.Duration
	answers []error
	breaker *gobreaker.CircuitBreaker[struct{}]
	log     *slog.Logger
	metrics metrics

	mu     sync.Mutex
	status Status
}

// Status says how a dependency is.
type Status struct {
	Name string
	// Open is true while requests wait for the breaker.
	Open bool
	// Failing is since when nothing succeeded, zero if the last request did.
	Failing time.Time
	// Err is the last failure, nil if the last request succeeded.
	Err    error
	opened time.Time
}

// NewGuard returns a guard for the dependency called name. answers are errors that are answers rather than failures
// ("not found"): they are returned at once and count as success. reg may be nil.
func NewGuard(name string, c Config, log *slog.Logger, reg prometheus.Registerer, answers ...error) *Guard {
	g := &Guard{name: name, backoff: c.Backoff, openFor: c.OpenFor, answers: answers, log: log, metrics: newMetrics(reg, name)}
	g.status.Name = name
	g.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		MaxRequests: c.Successes,
		Timeout:     c.OpenFor,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= c.Failures },
		IsSuccessful: func(err error) bool {
			return err == nil || g.answer(err) || classify.Of(err) != classify.Transient
		},
		IsExcluded:    func(err error) bool { return err != nil && classify.Of(err) == classify.Canceled },
		OnStateChange: g.changed,
	})
	return g
}

// Backoff returns the guard's pauses, for loops that must try by themselves.
func (g *Guard) Backoff() Backoff { return g.backoff }

// Do runs op until it succeeds or returns something else than a Transient error, and returns that. It returns the
// cause of ctx when ctx ends while it waits.
func (g *Guard) Do(ctx context.Context, op func(context.Context) error) error {
	for failures := 1; ; failures++ {
		err := g.Try(ctx, op)
		pause := g.backoff.Pause(failures)
		switch {
		case errors.Is(err, errOpen):
			pause, failures = g.untilProbe(), failures-1
		case err == nil, g.answer(err), classify.Of(err) != classify.Transient:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			g.metrics.retries.Inc()
			g.log.WarnContext(ctx, "retry", "dependency", g.name, "failures", failures, "pause", pause, "err", err)
		}
		if err := Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// Try runs op once if the breaker lets it. An error while the breaker is open is Transient and says so.
func (g *Guard) Try(ctx context.Context, op func(context.Context) error) error {
	_, err := g.breaker.Execute(func() (struct{}, error) {
		err := op(ctx)
		if err != nil && ctx.Err() != nil && !g.answer(err) && classify.Of(err) == classify.Transient {
			// The end of ctx is not the dependency's failure.
			return struct{}{}, classify.Mark(err, classify.Canceled)
		}
		g.note(err)
		return struct{}{}, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return errOpen
	}
	return err
}

// errOpen is what Try returns instead of trying.
var errOpen = classify.Mark(errors.New("circuit breaker is open"), classify.Transient)

// Status returns how the dependency is now.
func (g *Guard) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// untilProbe is how long to wait for an open breaker, with a spread so that members do not probe in step.
func (g *Guard) untilProbe() time.Duration {
	g.mu.Lock()
	left := time.Until(g.status.opened.Add(g.openFor))
	g.mu.Unlock()
	spread := Backoff{Initial: g.openFor / 20, Max: g.openFor / 20, Jitter: 1}
	return max(left, 0) + spread.Pause(1) + time.Millisecond
}

func (g *Guard) answer(err error) bool {
	for _, a := range g.answers {
		if errors.Is(err, a) {
			return true
		}
	}
	return false
}

func (g *Guard) note(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil || g.answer(err) || classify.Of(err) != classify.Transient {
		if !g.status.Open { // a late answer of a request from before does not close the breaker
			g.status.Failing, g.status.Err = time.Time{}, nil
		}
		return
	}
	if g.status.Failing.IsZero() {
		g.status.Failing = time.Now()
	}
	g.status.Err = err
	if _, known := classify.Known(err); !known {
		g.metrics.unknown.Inc()
	}
}

func (g *Guard) changed(_ string, from, to gobreaker.State) {
	g.mu.Lock()
	g.status.Open = to == gobreaker.StateOpen
	if g.status.Open {
		g.status.opened = time.Now()
	}
	g.mu.Unlock()
	g.metrics.state.Set(float64(to))
	g.metrics.changes.WithLabelValues(to.String()).Inc()
	g.log.Warn("circuit breaker", "dependency", g.name, "from", from.String(), "to", to.String())
}

// Wait pauses for d, or until ctx ends; then it returns the cause.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
