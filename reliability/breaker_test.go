package reliability_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/reliability"
)

// dependency records the requests that arrive at the dependency of a guard, and the state in which the breaker was
// then. It learns the state from the guard's log.
type dependency struct {
	successes int

	mu        sync.Mutex
	began     time.Time
	state     string // the state of the breaker, from the log
	changes   []string
	first     time.Duration   // the time from began until the breaker first opened
	asked     []time.Duration // the times from began until each request
	flying    int             // requests in flight that began in the current half-open state
	round     int             // number of state changes of the breaker
	whileOpen int             // requests that began while the breaker was open
	crowded   int             // requests beyond the allowed probes while it was half-open
}

func watch(successes int) *dependency {
	return &dependency{successes: successes, began: time.Now(), state: "closed"}
}

// guard returns a guard that logs to d, which so learns the state of the breaker.
func (d *dependency) guard(c reliability.Config, reg prometheus.Registerer) *reliability.Guard {
	return reliability.NewGuard("store", c, slog.New(d), reg, errGone)
}

// Enabled, Handle, WithAttrs and WithGroup make d a [slog.Handler].
func (d *dependency) Enabled(context.Context, slog.Level) bool { return true }

func (d *dependency) WithAttrs([]slog.Attr) slog.Handler { return d }

func (d *dependency) WithGroup(string) slog.Handler { return d }

func (d *dependency) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "circuit breaker" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "to" {
			d.state = a.Value.String()
		}
		return true
	})
	d.changes = append(d.changes, fmt.Sprintf("%v %s", r.Level, d.state))
	d.round, d.flying = d.round+1, 0
	if d.state == "open" && d.first == 0 {
		d.first = time.Since(d.began)
	}
	return nil
}

// enter records that a request begins. leave records that it ends; round is the result of its enter.
func (d *dependency) enter() (round int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, time.Since(d.began))
	switch d.state {
	case "open":
		d.whileOpen++
	case "half-open":
		if d.flying++; d.flying > d.successes {
			d.crowded++
		}
	}
	return d.round
}

func (d *dependency) leave(round int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if round == d.round && d.flying > 0 {
		d.flying--
	}
}

// simulation is one dependency with callers that come, cancel their calls, and come again.
type simulation struct {
	config  reliability.Config
	callers int
	seed    uint64
	downs   []time.Duration // the times at which the dependency goes down, up, down, and so on; at the end it is up
	slowest time.Duration   // longest duration of a request
	deaf    bool            // true if requests continue after their callers have canceled them
}

func drawSimulation(t *rapid.T) simulation {
	w := simulation{
		config: reliability.Config{
			Backoff:   config.Backoff,
			Failures:  rapid.Uint32Range(1, 5).Draw(t, "failures"),
			OpenFor:   time.Duration(rapid.IntRange(1, 60).Draw(t, "open for")) * time.Second,
			Successes: rapid.Uint32Range(1, 3).Draw(t, "successes"),
		},
		callers: rapid.IntRange(1, 8).Draw(t, "callers"),
		seed:    rapid.Uint64().Draw(t, "seed"),
		slowest: time.Duration(rapid.IntRange(0, 40).Draw(t, "slowest")) * time.Second,
		deaf:    rapid.Bool().Draw(t, "deaf"),
	}
	at := time.Duration(0)
	for range 2 * rapid.IntRange(0, 3).Draw(t, "outages") {
		at += time.Duration(rapid.IntRange(1, 200).Draw(t, "for")) * time.Second
		w.downs = append(w.downs, at)
	}
	return w
}

func (w simulation) down(at time.Duration) bool {
	n := 0
	for _, d := range w.downs {
		if d <= at {
			n++
		}
	}
	return n%2 == 1
}

// run lets the callers work, and cancels many of their calls, until the last outage is over. Then one more caller comes
// and is not canceled. run returns how long this last caller waited, the dependency, and the status of the guard at the
// end.
func (w simulation) run(t *testing.T) (waited time.Duration, d *dependency, status reliability.Status) {
	t.Helper()
	d = watch(int(w.config.Successes))
	g := d.guard(w.config, nil)
	request := func(random *rand.Rand) func(context.Context) error {
		return func(ctx context.Context) error {
			round := d.enter()
			defer d.leave(round)
			took := time.Duration(0)
			if w.slowest > 0 {
				took = upTo(random, w.slowest)
			}
			if w.deaf {
				time.Sleep(took)
			} else if err := reliability.Wait(ctx, took); err != nil {
				return err
			}
			switch n := random.IntN(20); {
			case w.down(time.Since(d.began)):
				return hiccup
			case n == 0:
				return errGone
			case n == 1:
				return classify.Mark(errors.New("bad"), classify.Poison)
			}
			return nil
		}
	}
	work, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range w.callers {
		random := rand.New(rand.NewPCG(w.seed, uint64(i)))
		all.Go(func() {
			for work.Err() == nil {
				// Canceled, because a deadline would count as a failure of the dependency.
				ctx, cancel := context.WithCancel(work)
				gone := time.AfterFunc(upTo(random, 100*time.Second), cancel)
				_ = g.Do(ctx, request(random))
				gone.Stop()
				cancel()
				_ = reliability.Wait(work, upTo(random, 10*time.Second))
			}
		})
	}
	last := time.Duration(0)
	if len(w.downs) > 0 {
		last = w.downs[len(w.downs)-1]
	}
	time.Sleep(last)
	began := time.Now()
	if err := g.Do(t.Context(), request(rand.New(rand.NewPCG(w.seed, 1000)))); err != nil && !errors.Is(err, errGone) && classify.Of(err) != classify.Poison {
		t.Errorf("who stays gets %v", err)
	}
	waited = time.Since(began)
	stop()
	all.Wait()
	time.Sleep(2 * w.config.OpenFor)
	return waited, d, g.Status()
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// TestBreakerProperties: cancellations, durations and errors are random. No request is sent while the breaker is open,
// and only the allowed probes while it is half-open. A caller that does not cancel is served in bounded time, and only
// failures of the dependency open the breaker.
func TestBreakerProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawSimulation(rt)
		var (
			waited time.Duration
			d      *dependency
			status reliability.Status
		)
		synctest.Test(t, func(t *testing.T) { waited, d, status = w.run(t) })
		// The bound allows for a failure that began earlier, OpenFor with its ramp, a pause, a round of other callers,
		// and a second round.
		bound := 4*w.slowest + 3*w.config.OpenFor + time.Minute
		switch {
		case d.whileOpen > 0:
			rt.Fatalf("%d requests while it was open", d.whileOpen)
		case d.crowded > 0:
			rt.Fatalf("%d requests too many while it was half-open", d.crowded)
		case len(w.downs) == 0 && len(d.changes) > 0:
			rt.Fatalf("a dependency that never failed: %v", d.changes)
		case waited > bound:
			rt.Fatalf("who stayed waited %v, at most %v was thought", waited, bound)
		case status.Open:
			rt.Fatalf("open, and nobody waits: %+v", status)
		}
	})
}

// TestOpenMeansQuiet: while the dependency is down, only the probes of each round reach it, however many callers wait.
func TestOpenMeansQuiet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := config
		c.Successes = rapid.Uint32Range(1, 3).Draw(rt, "successes")
		c.OpenFor = time.Duration(rapid.IntRange(5, 60).Draw(rt, "open for")) * time.Second
		callers := rapid.IntRange(1, 20).Draw(rt, "callers")
		stall := time.Duration(rapid.IntRange(0, 30).Draw(rt, "stall")) * time.Second
		var asked []time.Duration
		synctest.Test(t, func(t *testing.T) {
			d := watch(int(c.Successes))
			g := d.guard(c, nil)
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					_ = g.Do(ctx, func(ctx context.Context) error {
						d.enter()
						_ = reliability.Wait(ctx, stall)
						return hiccup
					})
				})
			}
			time.Sleep(10 * time.Minute)
			stop()
			all.Wait()
			for _, at := range d.asked {
				if at > d.first { // the requests before opened the breaker
					asked = append(asked, at)
				}
			}
		})
		rounds := int(10*time.Minute/c.OpenFor) + 1
		if most := rounds * int(c.Successes); len(asked) > most || len(asked) > 10*60 {
			rt.Fatalf("%d requests in ten minutes, at most %d in %d rounds", len(asked), most, rounds)
		}
		if len(asked) < int(10*time.Minute/(c.OpenFor+c.OpenFor/10+stall+40*time.Second))-1 {
			rt.Fatalf("%d requests in ten minutes: somebody waited and was no probe", len(asked))
		}
	})
}

// TestRecoveryIsNoStampede: once OpenFor is over, the waiting callers continue spread over the ramp, not all at once.
func TestRecoveryIsNoStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 200
		d := watch(3)
		g := d.guard(config, nil)
		for range config.Failures {
			if err := g.Try(t.Context(), func(context.Context) error { return hiccup }); !errors.Is(err, hiccup) {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if err := g.Do(t.Context(), func(context.Context) error { d.enter(); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := most(d.asked, 300*time.Millisecond); len(d.asked) != callers || got > callers/5 {
			t.Errorf("%d of %d requests within 300 ms; they were to be spread over 6 s", got, len(d.asked))
		}
		if first, last := d.asked[0], d.asked[callers-1]; first < config.OpenFor || last > config.OpenFor*6/5 {
			t.Errorf("the first after %v, the last after %v", first, last)
		}
	})
}

// TestMembersDoNotProbeInStep: members whose breakers opened at the same moment probe at different moments, in each
// round.
func TestMembersDoNotProbeInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 40
		d := watch(1)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range members {
			g := guard(t) // this guard does not log to d, which only counts its requests
			for range config.Failures {
				_ = g.Try(ctx, func(context.Context) error { return hiccup })
			}
			all.Go(func() { _ = g.Do(ctx, func(context.Context) error { d.enter(); return hiccup }) })
		}
		time.Sleep(5 * time.Minute)
		stop()
		all.Wait()
		slices.Sort(d.asked)
		if n := len(slices.Compact(slices.Clone(d.asked))); n != len(d.asked) || n < 3*members {
			t.Errorf("%d probes at %d moments", len(d.asked), n)
		}
		if got := most(d.asked, 300*time.Millisecond); got > members/4 {
			t.Errorf("%d of %d members probe within 300 ms", got, members)
		}
	})
}

// most returns the largest number of moments in at that lie within a window of this length.
func most(at []time.Duration, window time.Duration) (n int) {
	slices.Sort(at)
	for i, from := range at {
		for j := i; j < len(at) && at[j] < from+window; j++ {
			n = max(n, j-i+1)
		}
	}
	return n
}

// TestStateChangesAreSeen: a state change of the breaker appears in the log at WARN, in the gauge and in the counter.
func TestStateChangesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, reg := watch(3), prometheus.NewPedanticRegistry()
		g := d.guard(config, reg)
		fails := true
		for range 12 {
			_ = g.Do(t.Context(), func(context.Context) error {
				if fails && d.state != "closed" {
					fails = false
				}
				if fails {
					return hiccup
				}
				return nil
			})
		}
		want := []string{"WARN open", "DEBUG half-open", "INFO closed"}
		if !slices.Equal(d.changes, want) {
			t.Errorf("logged %q, want %q", d.changes, want)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					if l.GetName() != "dependency" {
						name += " " + l.GetValue()
					}
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		wanted := map[string]float64{
			"sluice_breaker_state": 0, "sluice_breaker_changes_total open": 1, "sluice_breaker_changes_total half-open": 1,
			"sluice_breaker_changes_total closed": 1, "sluice_retries_total": 5, "sluice_unknown_errors_total": 0,
		}
		if d := cmp.Diff(wanted, got); d != "" {
			t.Errorf("metrics (-want +got):\n%s", d)
		}
	})
}

// TestPoisonNeverCounts: a thousand Poison errors in a row do not open the breaker and leave no failure in the status.
func TestPoisonNeverCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := watch(3)
		g := d.guard(config, nil)
		for range 1000 {
			err := g.Try(t.Context(), func(context.Context) error { return classify.Mark(errors.New("503 timeout"), classify.Poison) })
			if classify.Of(err) != classify.Poison {
				t.Fatal(err)
			}
		}
		if len(d.changes) > 0 || g.Status().Err != nil {
			t.Errorf("%v, %+v", d.changes, g.Status())
		}
	})
}

// TestCancelledCallsDoNotCount: a call that its caller canceled counts neither as a failure nor as a success of the
// dependency.
func TestCancelledCallsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := watch(3)
		g := d.guard(config, nil)
		try := func(want error) {
			t.Helper()
			if err := g.Try(t.Context(), func(context.Context) error { return want }); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		cancelled := func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			err := g.Try(ctx, func(ctx context.Context) error { cancel(); return ctx.Err() })
			if classify.Of(err) != classify.Canceled {
				t.Errorf("cancelled: %v", err)
			}
		}
		for range config.Failures - 1 {
			try(hiccup)
			cancelled()
		}
		try(hiccup)
		if d.state != "open" {
			t.Fatalf("%s after %d failures", d.state, config.Failures)
		}
		time.Sleep(config.OpenFor + time.Second)
		failing := g.Status()
		for range 5 {
			cancelled()
		}
		if st := g.Status(); st.Err == nil || !st.Failing.Equal(failing.Failing) {
			t.Errorf("canceled probes ended the failure: %+v, before %+v", st, failing)
		}
		for range 2 {
			try(nil)
			cancelled()
		}
		if d.state != "half-open" {
			t.Fatalf("%s after two of three successes", d.state)
		}
		try(nil)
		if d.state != "closed" {
			t.Fatalf("%s after three successes", d.state)
		}
	})
}

// TestASlowProbeIsNoEnd: while a slow probe is in flight, the status stays open, with the time and the error of the
// failure. A late success of an earlier request changes nothing.
func TestASlowProbeIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := guard(t), time.Now()
		slow := make(chan error, 1)
		go func() { // this request begins before the breaker opens, and succeeds during the probe
			slow <- g.Try(t.Context(), func(context.Context) error {
				time.Sleep(config.OpenFor + 30*time.Second)
				return nil
			})
		}()
		synctest.Wait()
		for range config.Failures {
			_ = g.Try(t.Context(), func(context.Context) error { return hiccup })
		}
		done := make(chan error, 1)
		go func() {
			done <- g.Do(t.Context(), func(context.Context) error {
				time.Sleep(time.Minute)
				return nil
			})
		}()
		for range 110 {
			time.Sleep(time.Second)
			if s := g.Status(); !s.Open || !s.Failing.Equal(began) || s.Err == nil {
				t.Fatalf("after %v: %+v", time.Since(began), s)
			}
		}
		if err := errors.Join(<-done, <-slow); err != nil {
			t.Error(err)
		}
		if s := g.Status(); s.Open || s.Err != nil {
			t.Errorf("the probe succeeded: %+v", s)
		}
	})
}

// TestALeftBreakerIsNotOpen: once OpenFor is over and no caller waits, the status is no longer open, and the next
// request is sent.
func TestALeftBreakerIsNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		for range config.Failures {
			_ = g.Try(t.Context(), func(context.Context) error { return hiccup })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Do(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if !g.Status().Open {
			t.Error("not open within its time")
		}
		time.Sleep(config.OpenFor)
		if s := g.Status(); s.Open || s.Err == nil {
			t.Errorf("its time is over and nobody waits: %+v", s)
		}
		if err := g.Try(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
