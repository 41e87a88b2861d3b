package reliability_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/reliability"
)

const (
	second = time.Second
	minute = time.Minute
)

// TestWorkers: a schedule can express the retry policies of seven existing workers. It gives exactly their pauses, and
// the other settings change nothing.
func TestWorkers(t *testing.T) {
	long, deadlines, delivery := []time.Duration{second, 5 * second, 30 * second, 5 * minute, 30 * minute},
		[]time.Duration{second, 5 * second, 30 * second}, []time.Duration{second, 10 * second, 60 * second}
	for _, c := range []struct {
		worker string
		max    int
		pauses []time.Duration
	}{
		{"TON Deposit Watcher", 5, long},
		{"Payout Executor", 5, long},
		{"Refund Executor", 5, long},
		{"Deal Timeout Worker", 3, deadlines},
		{"Post Scheduler", 3, delivery},
		{"Delivery Verifier", 3, delivery},
		{"Reconciliation Worker", 2, []time.Duration{5 * second, 60 * second}},
	} {
		t.Run(c.worker, func(t *testing.T) {
			r := reliability.RecordRetry{Curve: reliability.Scheduled, Schedule: c.pauses, Max: 99, Wait: time.Hour, Cap: 1, Jitter: 1}
			if r.Attempts() != c.max {
				t.Errorf("%d attempts, want %d", r.Attempts(), c.max)
			}
			if d := cmp.Diff(c.pauses, waited(r)); d != "" {
				t.Errorf("pauses (-want +got):\n%s", d)
			}
		})
	}
}

// waited returns the pauses before all attempts of a policy.
func waited(r reliability.RecordRetry) (pauses []time.Duration) {
	for n := range r.Attempts() {
		pauses = append(pauses, r.Pause(n+1))
	}
	return pauses
}

// TestLinear: the pause before attempt n is n × wait, without an upper bound and without jitter.
func TestLinear(t *testing.T) {
	r := reliability.RecordRetry{Curve: reliability.Linear, Max: 5, Wait: 10 * second, Cap: second, Jitter: 1}
	if d := cmp.Diff([]time.Duration{10 * second, 20 * second, 30 * second, 40 * second, 50 * second}, waited(r)); d != "" {
		t.Errorf("pauses (-want +got):\n%s", d)
	}
	r.Wait = math.MaxInt64 / 2
	if p := r.Pause(3); p != math.MaxInt64 {
		t.Errorf("three times half of all time is %v", p)
	}
}

// TestExponential: the pause before attempt n is wait × 2^(n-1), at most the maximum, plus or minus jitter, as the
// pauses of a guard.
func TestExponential(t *testing.T) {
	r := reliability.RecordRetry{Curve: reliability.Exponential, Max: 7, Wait: second, Cap: 30 * second}
	want := []time.Duration{second, 2 * second, 4 * second, 8 * second, 16 * second, 30 * second, 30 * second}
	if d := cmp.Diff(want, waited(r)); d != "" {
		t.Errorf("pauses (-want +got):\n%s", d)
	}
	r.Jitter = 0.25
	seen := map[time.Duration]bool{}
	for range 100 {
		p := r.Pause(7)
		if p < 22500*time.Millisecond || p > 37500*time.Millisecond {
			t.Fatalf("%v at the cap of 30 s ± 25 %%", p)
		}
		seen[p] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different pauses of 100 at the cap", len(seen))
	}
}

func TestPausesAreNeverNegativeAndOnlyOneCurveSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "pause"))
		})
		r := reliability.RecordRetry{
			Max: rapid.IntRange(-1, 1000).Draw(t, "max"), Wait: wait.Draw(t, "wait"),
			Curve:    rapid.SampledFrom([]reliability.Curve{reliability.Exponential, reliability.Linear, reliability.Scheduled}).Draw(t, "curve"),
			Schedule: rapid.SliceOfN(wait, 0, 10).Draw(t, "schedule"),
			Cap:      time.Duration(rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "cap")), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.IntRange(-1, 2000).Draw(t, "n")
		if r.Attempts() < 0 || r.Pause(n) < 0 {
			t.Fatalf("%d attempts, pause %v before number %d", r.Attempts(), r.Pause(n), n)
		}
		if first, second := r.Pause(n), r.Pause(n); r.Curve != reliability.Exponential && first != second {
			t.Fatal("the pauses of a schedule are not what it says")
		}
	})
}
