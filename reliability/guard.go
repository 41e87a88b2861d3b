package reliability

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"sluice/classify"
	"sluice/reliability/pulse"
)

// Config is how patient a guard is. See config.yaml for the defaults.
type Config struct {
	Backoff
	Failures  uint32        // consecutive ones that open the breaker: 5
	OpenFor   time.Duration // until a waiting request may probe: 60s
	Successes uint32        // consecutive ones that close it again: 3
}

// A Guard stands before one dependency (a table's store, the Kafka cluster). It retries what is Transient, without
// limit, behind a circuit breaker. Exactly this layer retries: nothing below it does.
//
// While the breaker is open callers wait inside [Guard.Do]. When its time is over, each of them goes on at a moment of
// its own within the ramp, a tenth of that time: the first is the probe, the others find the breaker open again or
// closed, and a dependency that comes back meets them one after the other. Members spread in the same way.
type Guard struct {
	name    string
	backoff Backoff
	openFor time.Duration
	ramp    time.Duration
	answers []error
	breaker *gobreaker.CircuitBreaker[struct{}]
	log     *slog.Logger
	metrics metrics
	failing FailureLog // lines about requests that are tried again
	opening FailureLog // lines about the breaker

	mu      sync.Mutex
	status  Status
	state   gobreaker.State
	round   int       // how often the state changed
	opened  time.Time // when the breaker last did
	wanting int       // callers inside of Do
}

// Status says how a dependency is.
type Status struct {
	Name string
	// Open is true from when the breaker opens until a probe succeeds, which may take long. It is false once the breaker's time is
	// over and no caller waits: the next request is let through then.
	Open bool
	// Failing is since when nothing succeeded, zero if the last request did.
	Failing time.Time
	// Err is the last failure, nil if the last request succeeded.
	Err error
}

// NewGuard returns a guard for the dependency called name. answers are errors that are answers rather than failures
// ("not found"): they are returned at once and count as success. reg may be nil. What c leaves zero is the least that
// works: one failure opens the breaker, one success closes it.
func NewGuard(name string, c Config, log *slog.Logger, reg prometheus.Registerer, answers ...error) *Guard {
	c.Failures, c.Successes, c.OpenFor = max(c.Failures, 1), max(c.Successes, 1), max(c.OpenFor, time.Millisecond)
	g := &Guard{
		name: name, backoff: c.Backoff, openFor: c.OpenFor, ramp: c.OpenFor / 10, answers: answers, log: log, metrics: newMetrics(reg, name),
	}
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

// Do runs op until it succeeds or returns something else than a Transient error, and returns that. When ctx ends it
// returns the cause of ctx, or the error of the op that ctx ended, marked Canceled. All of it is a wait of the loop of
// ctx, if there is one ([pulse.Of]). about are attributes for the lines of the log: the batch that waits.
func (g *Guard) Do(ctx context.Context, op func(context.Context) error, about ...any) error {
	g.wants(1)
	defer g.wants(-1)
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	for failures := 1; ; failures++ {
		err := g.Try(ctx, op)
		pause := g.backoff.Pause(failures)
		switch {
		case errors.Is(err, errOpen):
			if err := g.untilProbe(ctx); err != nil {
				return g.explained(err)
			}
			failures--
			continue
		case err == nil, g.answer(err), classify.Of(err) != classify.Transient:
			return err
		case ctx.Err() != nil:
			return classify.Mark(err, classify.Canceled)
		default:
			g.metrics.retries.Inc()
			g.failing.Failed(ctx, g.log, slog.LevelWarn, "retry",
				append(slices.Clip(about), "dependency", g.name, "failures", failures, "pause", pause, "err", err)...)
		}
		if err := Wait(ctx, pause); err != nil {
			return g.explained(err)
		}
	}
}

// explained adds the last failure to the error of a wait that ended early, so that a person learns why there was one. The
// class stays that of the wait's end.
func (g *Guard) explained(err error) error {
	last := g.Status().Err
	if last == nil {
		return err
	}
	return classify.Mark(fmt.Errorf("%w; the last failure: %w", err, last), classify.Of(err))
}

// Try runs op once if the breaker lets it. An error while the breaker is open is Transient, says so, and names the last
// failure. An op that the deadline of ctx ended is a failure like any other: the dependency did not answer in time. An op
// that was cancelled says nothing about the dependency.
func (g *Guard) Try(ctx context.Context, op func(context.Context) error) error {
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	_, err := g.breaker.Execute(func() (struct{}, error) {
		round := g.now()
		err := op(ctx)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) && !g.answer(err) && classify.Of(err) == classify.Transient {
			// The caller gave up, for a reason of its own.
			return struct{}{}, classify.Mark(err, classify.Canceled)
		}
		if g.note(err, round) {
			g.failing.Over(ctx, g.log, "requests succeed again", "dependency", g.name)
		}
		return struct{}{}, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		if last := g.Status().Err; last != nil {
			return fmt.Errorf("%w; the last failure: %w", errOpen, last)
		}
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
	s := g.status
	s.Open = s.Open && (g.wanting > 0 || time.Since(g.opened) < g.openFor)
	return s
}

// untilProbe waits until the breaker's time is over and then for a part of the ramp. The error is the cause of ctx.
func (g *Guard) untilProbe(ctx context.Context) error {
	g.mu.Lock()
	left := time.Until(g.opened.Add(g.openFor))
	g.mu.Unlock()
	// One millisecond more: the breaker's time must be over, not just reached.
	return Wait(ctx, max(left, 0)+rand.N(g.ramp+1)+time.Millisecond)
}

func (g *Guard) wants(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanting += n
}

// now returns the round that a request begins in.
func (g *Guard) now() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.round
}

func (g *Guard) answer(err error) bool {
	for _, a := range g.answers {
		if errors.Is(err, a) {
			return true
		}
	}
	return false
}

// note keeps what a request that began in a round showed. It tells whether the dependency works.
func (g *Guard) note(err error, round int) (works bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answered := err == nil || g.answer(err)
	if !answered && classify.Of(err) == classify.Canceled {
		return false // a request that its caller gave up shows neither a failure nor a recovery
	}
	if answered || classify.Of(err) != classify.Transient {
		// The late answer of a request from before says nothing about now, nor does any while the breaker is open.
		if round == g.round && g.state != gobreaker.StateOpen {
			g.status.Open, g.status.Failing, g.status.Err = false, time.Time{}, nil
			return true
		}
		return false
	}
	if g.status.Failing.IsZero() {
		g.status.Failing = time.Now()
	}
	g.status.Err = err
	if _, known := classify.Known(err); !known {
		g.metrics.unknown.Inc()
	}
	return false
}

func (g *Guard) changed(_ string, from, to gobreaker.State) {
	g.mu.Lock()
	g.state, g.round = to, g.round+1
	if to == gobreaker.StateOpen {
		g.status.Open, g.opened = true, time.Now()
	}
	g.mu.Unlock()
	g.metrics.state.Set(float64(to))
	g.metrics.changes.WithLabelValues(to.String()).Inc()
	ctx := context.Background() //nolint:forbidigo // gobreaker calls this without one, and a line needs none
	about := []any{"dependency", g.name, "from", from.String(), "to", to.String()}
	switch to {
	case gobreaker.StateOpen: // once more for each probe that fails
		g.opening.Failed(ctx, g.log, slog.LevelWarn, "circuit breaker", about...)
	case gobreaker.StateClosed:
		g.opening.Over(ctx, g.log, "circuit breaker", about...)
	case gobreaker.StateHalfOpen:
		g.log.Debug("circuit breaker", about...)
	}
}

// Wait pauses for d, or until ctx ends; then it returns the cause. The loop of ctx, if there is one, waits on purpose.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		if ctx.Err() != nil { // in the same moment
			return context.Cause(ctx)
		}
		return nil
	}
}
