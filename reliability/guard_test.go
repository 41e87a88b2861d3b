package reliability_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/reliability"
)

var (
	hiccup  = classify.Mark(errors.New("hiccup"), classify.Transient)
	errGone = errors.New("gone")
	config  = reliability.Config{
		Backoff:  reliability.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: 0.25},
		Failures: 5, OpenFor: time.Minute, Successes: 3,
	}
)

func guard(t *testing.T) *reliability.Guard {
	t.Helper()
	return reliability.NewGuard("store", config, slog.New(slog.DiscardHandler), nil, errGone)
}

func TestBackoffStaysWithinItsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := reliability.Backoff{
			Initial: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
			Max:     time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "max")),
			Jitter:  rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.IntRange(-1, 10_000).Draw(t, "n")
		d := b.Pause(n)
		full := float64(b.Max)
		if n < 62 {
			full = min(full, float64(b.Initial)*math.Exp2(float64(max(n, 1)-1)))
		}
		if slack := full*b.Jitter*1.001 + 1; d < 0 || float64(d) < min(full, math.MaxInt64)-slack || float64(d) > full+slack {
			t.Fatalf("pause %v, want %v ± %v", d, time.Duration(full), b.Jitter)
		}
	})
}

func TestBackoffIsSpreadAtTheCapToo(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[config.Pause(20)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different pauses of 100: members would try in step", len(seen))
	}
}

func TestGuardRetriesWhatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, n, began := guard(t), 0, time.Now()
		err := g.Do(t.Context(), func(context.Context) error {
			if n++; n < 4 {
				return hiccup
			}
			return nil
		})
		if took := time.Since(began); err != nil || n != 4 || took < 5*time.Second || took > 9*time.Second {
			t.Errorf("%v after %d tries in %v, want nil after 4 tries in 1+2+4 s ± 25 %%", err, n, took)
		}
	})
}

func TestGuardReturnsWhatDoesNotPass(t *testing.T) {
	for _, want := range []error{
		classify.Mark(errors.New("denied"), classify.Fatal), classify.Mark(errors.New("moved"), classify.Fenced),
		classify.Mark(errors.New("bad"), classify.Poison), errGone,
	} {
		synctest.Test(t, func(t *testing.T) {
			g, n := guard(t), 0
			for range 10 { // so many errors of this class must not open the breaker
				err := g.Do(t.Context(), func(context.Context) error { n++; return want })
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			if n != 10 || g.Status().Open {
				t.Errorf("%v: %d calls for 10, open %v", want, n, g.Status().Open)
			}
		})
	}
}

func TestBreakerOpensHoldsProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		var (
			mu      sync.Mutex
			healthy bool
			tries   []time.Duration
		)
		began := time.Now()
		done := make(chan error)
		go func() {
			done <- g.Do(t.Context(), func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Since(began))
				if healthy {
					return nil
				}
				return hiccup
			})
		}()
		tried := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return len(tries)
		}
		time.Sleep(40 * time.Second)
		n := tried()
		if s := g.Status(); !s.Open || n != 5 || s.Failing != began || s.Err == nil {
			t.Fatalf("after 5 failures: %d tries, %+v", n, s)
		}
		time.Sleep(60 * time.Second) // one probe is sent, which fails
		if n := tried(); !g.Status().Open || n != 6 {
			t.Fatalf("after a failed probe: %d tries, open %v", n, g.Status().Open)
		}
		mu.Lock()
		healthy = true
		mu.Unlock()
		if err := <-done; err != nil || tried() != 7 {
			t.Fatalf("%v after %d tries", err, tried())
		}
		if gap := tries[6] - tries[5]; gap < time.Minute {
			t.Errorf("probe after %v, want the breaker's minute", gap)
		}
		for range 2 {
			if err := g.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if s := g.Status(); s.Open || !s.Failing.IsZero() || s.Err != nil {
			t.Errorf("healthy again: %+v", s)
		}
	})
}

// TestALateSuccessDoesNotCloseTheBreaker: a request that began before the breaker opened may still succeed. The breaker
// stays open, and the last failure stays known.
func TestALateSuccessDoesNotCloseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		slow := make(chan error)
		go func() {
			slow <- g.Try(t.Context(), func(context.Context) error {
				time.Sleep(config.OpenFor - time.Second)
				return nil
			})
		}()
		synctest.Wait()
		for range 5 {
			if err := g.Try(t.Context(), func(context.Context) error { return hiccup }); !errors.Is(err, hiccup) {
				t.Fatal(err)
			}
		}
		if err := <-slow; err != nil {
			t.Fatal(err)
		}
		if s := g.Status(); !s.Open || s.Err == nil || s.Failing.IsZero() {
			t.Errorf("open, and nothing says why: %+v", s)
		}
	})
}

func TestCancellationIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		for range 10 {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := g.Do(ctx, func(ctx context.Context) error {
				cancel(errGone)
				return ctx.Err()
			})
			if classify.Of(err) != classify.Canceled && !errors.Is(err, errGone) {
				t.Fatalf("got %v", err)
			}
		}
		if g.Status().Open || g.Status().Err != nil {
			t.Errorf("cancelled calls opened the breaker: %+v", g.Status())
		}
	})
}

// TestGuard_NoAnswerInTime: if a dependency does not answer before the deadline of the caller, this counts as a failure
// of the dependency. If the caller cancels its call, this counts neither as failure nor as success.
func TestGuard_NoAnswerInTime(t *testing.T) {
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	type op = func(context.Context) error
	ways := map[string]func(*reliability.Guard, context.Context, op) error{
		"try": func(g *reliability.Guard, ctx context.Context, op op) error { return g.Try(ctx, op) },
		"do":  func(g *reliability.Guard, ctx context.Context, op op) error { return g.Do(ctx, op) },
	}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t)
				for n := range config.Failures {
					if g.Status().Open {
						t.Fatalf("open after %d failures", n)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					if err := ask(g, ctx, silent); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v", err)
					}
					cancel()
				}
				s := g.Status()
				if !s.Open || !errors.Is(s.Err, context.DeadlineExceeded) || time.Since(s.Failing) != 40*time.Second {
					t.Errorf("after %d questions without an answer: %+v", config.Failures, s)
				}
				if err := ask(g, expired(t), silent); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
					t.Errorf("the breaker is open: %v", err)
				}
			})
		})
		t.Run(name+" given up", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(t)
				for range 2 * config.Failures {
					ctx, cancel := context.WithCancel(t.Context())
					asking, end := context.WithTimeout(ctx, 10*time.Second) // there is a deadline, but the call is canceled before
					time.AfterFunc(time.Second, cancel)
					broken := func(ctx context.Context) error { <-ctx.Done(); return hiccup } // the request fails because its connection was closed when ctx ended
					if err := ask(g, asking, broken); classify.Of(err) != classify.Canceled {
						t.Errorf("%v", err)
					}
					end()
				}
				if s := g.Status(); s.Open || s.Err != nil {
					t.Errorf("callers that gave up opened the breaker: %+v", s)
				}
			})
		})
	}
}

// TestGuard_EndedAttempt: if the context ends during an attempt, the error also names the failure of the attempt
// before, which tells an operator more than a deadline.
func TestGuard_EndedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Minute) },
			"given up": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := end()
			attempts := 0
			err := guard(t).Do(ctx, func(ctx context.Context) error {
				if attempts++; attempts < 3 {
					return hiccup
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, hiccup) || !errors.Is(err, ctx.Err()) || classify.Of(err) != classify.Canceled || attempts != 3 {
				t.Errorf("%s: %v after %d attempts", name, err, attempts)
			}
			cancel()
		}
	})
}

// expired returns a context whose deadline comes after a millisecond.
func expired(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TestGuard_OpenBreakerNamesTheFailure: the error of a call that the open breaker refuses names the failure that opened
// the breaker.
func TestGuard_OpenBreakerNamesTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		for range config.Failures {
			_ = g.Try(t.Context(), func(context.Context) error { return hiccup })
		}
		never := func(context.Context) error { t.Error("asked"); return nil }
		if err := g.Try(t.Context(), never); !errors.Is(err, hiccup) || classify.Of(err) != classify.Transient {
			t.Errorf("try: %v", err)
		}
		if err := g.Do(expired(t), never); !errors.Is(err, hiccup) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("do: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := g.Do(ctx, never); !errors.Is(err, hiccup) || classify.Of(err) != classify.Canceled {
			t.Errorf("do, given up: %v", err)
		}
	})
}

// TestGuard_TenHours: an outage of ten hours in which many requests wait causes a few hundred log lines. The first line
// of each kind comes at once and names the batch that waits. The end of the outage causes one line of each kind.
func TestGuard_TenHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := reliability.NewGuard("store", config, slog.New(slog.NewTextHandler(&out, nil)), nil)
		began := time.Now()
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				err := g.Do(t.Context(), func(context.Context) error {
					if time.Since(began) < 10*time.Hour {
						return hiccup
					}
					return nil
				}, "batch_id", "b-17")
				if err != nil {
					t.Error(err)
				}
			})
		}
		waiting.Wait()
		text := out.String()
		if !strings.Contains(text, "time=2000-01-01T00:00:00.000Z level=WARN msg=retry batch_id=b-17 dependency=store") {
			t.Error(text[:min(len(text), 2000)])
		}
		for msg, most := range map[string]int{`msg=retry`: 121, `msg="circuit breaker"`: 122, `msg="requests succeed again"`: 1} {
			if n := strings.Count(text, msg); n == 0 || n > most {
				t.Errorf("%s: %d lines, at most %d", msg, n, most)
			}
		}
		if !strings.Contains(text, "to=closed after=10h") || !strings.Contains(text, "left_out=") {
			t.Error(text[max(0, len(text)-2000):])
		}
	})
}
