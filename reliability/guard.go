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

// Config sets the retries and the circuit breaker of a guard. config.yaml lists the defaults.
type Config struct {
	Backoff
	Failures  uint32        // number of consecutive failures that open the breaker, by default 5
	OpenFor   time.Duration // time until a waiting request may probe, by default 60s
	Successes uint32        // number of consecutive successes that close the breaker, by default 3
}

// Guard protects one dependency, for example the store of a table. It retries Transient errors without limit, and its
// circuit breaker stops requests while the dependency is down. The clients behind a guard must not retry. Callers of
// the guard may retry only other errors, by starting again from the table.
//
// While the breaker is open, callers wait inside [Guard.Do]. When OpenFor is over, each caller continues at a random
// moment within the ramp, which is a tenth of OpenFor. The first one probes; the others find the breaker open again, or
// closed. So the callers, also those of other members, do not overload a dependency that has just recovered.
type Guard struct {
	name    string
	backoff Backoff
	openFor time.Duration
	ramp    time.Duration
	answers []error
	breaker *gobreaker.CircuitBreaker[struct{}]
	log     *slog.Logger
	metrics metrics
	failing FailureLog // limits the lines about retries
	opening FailureLog // limits the lines about the breaker

	mu      sync.Mutex
	status  Status
	state   gobreaker.State
	round   int       // number of changes of the breaker's state so far
	opened  time.Time // when the breaker last opened
	wanting int       // number of callers inside Do
}

// Status describes the state of a dependency.
type Status struct {
	Name string
	// Open is true from when the breaker opens until a probe ends without a Transient error. It is false if OpenFor is
	// over and no caller waits: the breaker then lets the next request through.
	Open bool
	// Failing is when the first failure since the last success happened, zero if the last request succeeded.
	Failing time.Time
	// Err is the last failure, nil if the last request succeeded.
	Err error
}

// NewGuard returns a guard for the dependency called name. answers are errors that are valid responses, such as "not
// found": the guard returns them at once and counts them as success. reg may be nil. Values of c that cannot work are
// raised to the smallest that do: one failure opens the breaker, one success closes it.
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

// Backoff returns the guard's pauses, for a caller that retries errors which the guard does not retry.
func (g *Guard) Backoff() Backoff { return g.backoff }

// Do runs op until it succeeds or fails with an error that is not Transient, and returns that result. When ctx ends, Do
// returns the cause of ctx, or the error of the op that ctx ended, marked Canceled; the error also names the last
// failure. For liveness, the loop in ctx counts as waiting meanwhile ([pulse.Of]). about are attributes for the log
// lines, such as the batch that waits.
func (g *Guard) Do(ctx context.Context, op func(context.Context) error, about ...any) error {
	g.wants(1)
	defer g.wants(-1)
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	var last error // error of the attempt before
	for failures := 1; ; failures++ {
		err := g.Try(ctx, op)
		pause := g.backoff.Pause(failures)
		switch class := classify.Of(err); {
		case errors.Is(err, errOpen):
			if err := g.untilProbe(ctx); err != nil {
				return explained(err, g.Status().Err)
			}
			failures--
			continue
		case err == nil, g.answer(err):
			return err
		case ctx.Err() != nil && (class == classify.Transient || class == classify.Canceled):
			return explained(classify.Mark(err, classify.Canceled), last)
		case class != classify.Transient:
			return err
		default:
			last = err
			g.metrics.retries.Inc()
			g.failing.Failed(ctx, g.log, slog.LevelWarn, "retry",
				append(slices.Clip(about), "dependency", g.name, "failures", failures, "pause", pause, "err", err)...)
		}
		if err := Wait(ctx, pause); err != nil {
			return explained(err, g.Status().Err)
		}
	}
}

// explained adds last, the last failure of the dependency, to err, the error of a wait or an attempt that ended early.
// So the text says why the caller waited; the class stays that of err.
func explained(err, last error) error {
	if last == nil {
		return err
	}
	return classify.Mark(fmt.Errorf("%w; the last failure: %w", err, last), classify.Of(err))
}

// Try runs op once if the breaker allows it. While the breaker is open, Try returns a Transient error that names the
// last failure. If the deadline of ctx ends op, that counts as a failure, because the dependency did not answer in
// time. If the caller cancels ctx, the call does not count.
func (g *Guard) Try(ctx context.Context, op func(context.Context) error) error {
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	_, err := g.breaker.Execute(func() (struct{}, error) {
		round := g.now()
		err := op(ctx)
		if err != nil && errors.Is(ctx.Err(), context.Canceled) && !g.answer(err) && classify.Of(err) == classify.Transient {
			// The caller gave up; the dependency is not to blame.
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

// errOpen is the error of Try while the breaker is open.
var errOpen = classify.Mark(errors.New("circuit breaker is open"), classify.Transient)

// Status returns the current state of the dependency.
func (g *Guard) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.status
	s.Open = s.Open && (g.wanting > 0 || time.Since(g.opened) < g.openFor)
	return s
}

// untilProbe waits until OpenFor is over, and then for a random part of the ramp. The error is the cause of ctx.
func (g *Guard) untilProbe(ctx context.Context) error {
	g.mu.Lock()
	left := time.Until(g.opened.Add(g.openFor))
	g.mu.Unlock()
	// One millisecond is added because the breaker allows a probe only after OpenFor, not exactly at it.
	return Wait(ctx, max(left, 0)+rand.N(g.ramp+1)+time.Millisecond)
}

// wants adds n to the number of callers inside Do.
func (g *Guard) wants(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanting += n
}

// now returns the number of the current round. A request remembers the round in which it began, so that note recognizes
// a result of an earlier round.
func (g *Guard) now() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.round
}

// answer reports whether err is one of the errors that count as success.
func (g *Guard) answer(err error) bool {
	for _, a := range g.answers {
		if errors.Is(err, a) {
			return true
		}
	}
	return false
}

// note records the result of a request that began in the given round. It reports whether the dependency works now.
func (g *Guard) note(err error, round int) (works bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answered := err == nil || g.answer(err)
	if !answered && classify.Of(err) == classify.Canceled {
		return false // a request that its caller canceled proves neither a failure nor a recovery
	}
	if answered || classify.Of(err) != classify.Transient {
		// The result of a request from an earlier round is outdated, and so is any result while the breaker is open.
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

// changed records and logs a new state of the breaker.
func (g *Guard) changed(_ string, from, to gobreaker.State) {
	g.mu.Lock()
	g.state, g.round = to, g.round+1
	if to == gobreaker.StateOpen {
		g.status.Open, g.opened = true, time.Now()
	}
	g.mu.Unlock()
	g.metrics.state.Set(float64(to))
	g.metrics.changes.WithLabelValues(to.String()).Inc()
	ctx := context.Background() //nolint:forbidigo // gobreaker passes no context, and a log line needs none
	about := []any{"dependency", g.name, "from", from.String(), "to", to.String()}
	switch to {
	case gobreaker.StateOpen: // this state also begins after each failed probe
		g.opening.Failed(ctx, g.log, slog.LevelWarn, "circuit breaker", about...)
	case gobreaker.StateClosed:
		g.opening.Over(ctx, g.log, "circuit breaker", about...)
	case gobreaker.StateHalfOpen:
		g.log.Debug("circuit breaker", about...)
	}
}

// Wait pauses for d, or until ctx ends; then it returns the cause of ctx. For liveness, the loop in ctx counts as
// waiting.
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
		if ctx.Err() != nil { // the timer and the end of ctx came at the same time
			return context.Cause(ctx)
		}
		return nil
	}
}
