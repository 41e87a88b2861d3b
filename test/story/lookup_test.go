package story_test

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/reliability"
	"sluice/test/story"
)

// registered is scene with a registry, a dead-letter topic and record_retry.
func registered(t *testing.T, partitions int, answer func(key string) int, play func(t *testing.T, w *story.World)) {
	t.Helper()
	scene(t, partitions, func(t *testing.T, w *story.World) {
		w.Letters = &story.LetterLog{}
		w.Registry = &story.Registry{Chance: w.Chance, Answer: answer}
		w.Retry = thrice
		play(t, w)
		w.Close()
		for _, v := range w.Broker.Violations() {
			t.Error(v)
		}
	})
}

// TestSchedulesWithLookups is TestSchedules with records that need something from a registry, which answers late, fails and
// now and then does not know yet.
func TestSchedulesWithLookups(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)/3
	if *seed != 0 {
		first, last = *seed, *seed
	}
	asked := 0
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			w := story.NewWorld(s, 3)
			if s%2 == 0 {
				w.Letters = &story.LetterLog{}
			}
			w.Fetch = story.Response + 4<<10*int64(1+s%4) // what waits is shed now and then
			w.Registry = &story.Registry{Chance: w.Chance, Slow: time.Duration(1+s%20) * 100 * time.Millisecond}
			w.Registry.Answer = func(string) int {
				return []int{200, 200, 200, 503, 404}[w.Chance.N(5)]
			}
			w.Retry = reliability.RecordRetry{Max: 1000, Wait: 10 * time.Millisecond}
			play(t, w, s)
			for _, key := range []string{"0", "1", "2"} {
				asked += w.Registry.Asked(key)
			}
		})
	}
	t.Logf("%d schedules, %d questions", last-first+1, asked)
}

// TestALookupComesBeforeTheLane: each need is brought once for a member, and records keep their order behind it.
func TestALookupComesBeforeTheLane(t *testing.T) {
	registered(t, 2, nil, func(t *testing.T, w *story.World) {
		for range 5 {
			for _, key := range []string{"a", "b", "a", "c"} {
				w.Broker.Produce(story.Topic, 0, "rr", key)
				w.Broker.Produce(story.Topic, 1, "rt", key)
			}
		}
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 0, w.Want(0, 0, 40))
		wantRows(t, w, 1, w.Want(1, 0, 40))
		for _, key := range []string{"a", "b", "c"} {
			if n := w.Registry.Asked(key); n < 1 || n > 2 { // once by each claim, if they ask at the same time
				t.Errorf("%s was asked for %d times", key, n)
			}
		}
		var last int64 = -1
		for _, v := range w.Log.Versions() {
			for _, r := range v.Rows {
				if r.ID == 0 {
					if r.Offset <= last {
						t.Errorf("@%d behind @%d", r.Offset, last)
					}
					last = r.Offset
				}
			}
		}
	})
}

func TestLookupsOfSingleRecords(t *testing.T) {
	for name, c := range map[string]struct {
		status   int // of key bad, for so many questions
		times    int64
		letters  []int64
		attempts float64
		least    time.Duration
	}{
		"is never there":              {404, 1 << 40, []int64{1, 3}, 3, 6 * time.Second},
		"is there at the third try":   {404, 2, nil, 2, 3 * time.Second},
		"is refused for good":         {410, 1 << 40, []int64{1, 3}, 0, 0},
		"an outage is no try":         {503, 20, nil, 0, 5 * time.Second},
		"a panic counts as a failure": {418, 1, nil, 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			answer := func(key string) int {
				if key == "bad" && asked.Add(1) <= c.times {
					return c.status
				}
				return 200
			}
			registered(t, 1, answer, func(t *testing.T, w *story.World) {
				for _, key := range []string{"good", "bad", "good", "bad", "good"} {
					w.Broker.Produce(story.Topic, 0, "r", key)
				}
				began := time.Now()
				p := w.Begin(t.Context())
				p.Member.Assign(joined(w, 0))
				eventually(t, "end", w.AtEnd)
				rows := slices.DeleteFunc([]int64{0, 1, 2, 3, 4}, func(o int64) bool { return slices.Contains(c.letters, o) })
				wantRows(t, w, 0, rows)
				wantLetters(t, w, 0, c.letters...)
				if got := p.Counted("worker_retry_count_total"); c.letters == nil && got != c.attempts || got < c.attempts {
					t.Errorf("%v attempts counted, want %v", got, c.attempts)
				}
				if took := time.Since(began); took < c.least {
					t.Errorf("took %v, want at least %v", took, c.least)
				}
			})
		})
	}
}

// TestTheRegistryIsDown: nothing is skipped, no letter is written, others go on, and it goes on by itself. Once it only
// lasts, once it is refused.
func TestTheRegistryIsDown(t *testing.T) {
	for _, status := range []int{503, 401} {
		var healthy atomic.Bool
		answer := func(key string) int {
			if key == "bad" && !healthy.Load() {
				return status
			}
			return 200
		}
		registered(t, 2, answer, func(t *testing.T, w *story.World) {
			for _, key := range []string{"good", "bad", "good"} {
				w.Broker.Produce(story.Topic, 0, "r", key)
				w.Broker.Produce(story.Topic, 1, "r", "good")
			}
			p := w.Begin(t.Context())
			p.Member.Assign(joined(w, 0, 1))
			time.Sleep(20 * time.Minute)
			wantRows(t, w, 1, []int64{0, 1, 2})
			wantLetters(t, w, 0)
			if at := w.Position(0); at > 1 {
				t.Errorf("the table stands at %d", at)
			}
			if held := p.Holds()[0]; status == 401 && held != connector.ReasonStoreDenied || status == 503 && held != "" {
				t.Errorf("status %d: held %q", status, held)
			}
			if n := w.Registry.Asked("bad"); n > 20*60 {
				t.Errorf("%d questions in 20 minutes", n)
			}
			healthy.Store(true)
			eventually(t, "end", w.AtEnd)
			wantRows(t, w, 0, []int64{0, 1, 2})
			wantLetters(t, w, 0)
			wantHolds(t, p, map[int32]connector.Reason{})
		})
	}
}

// TestAClaimGoesWhileItWaitsForALookup: lost, given to another member, fenced, stopped, crashed. What waits is given back,
// nothing is done twice, and the order stays.
func TestAClaimGoesWhileItWaitsForALookup(t *testing.T) {
	for name, goes := range map[string]func(t *testing.T, w *story.World, p *story.Process) *story.Process{
		"revoked and given back": func(_ *testing.T, w *story.World, p *story.Process) *story.Process {
			p.Member.Assign(connector.Assignment{Joined: true})
			time.Sleep(time.Second)
			p.Member.Assign(joined(w, 0))
			return p
		},
		"taken by another": func(t *testing.T, w *story.World, p *story.Process) *story.Process {
			p.Member.Assign(connector.Assignment{Joined: true})
			other := w.Begin(t.Context())
			other.Member.Assign(joined(w, 0))
			return p
		},
		"fenced": func(_ *testing.T, w *story.World, p *story.Process) *story.Process {
			w.Log.Append(story.Version{Commit: w.Forged(0, 2)})
			w.Broker.Produce(story.Topic, 0, strings.Repeat("r", 30), "good") // somebody notices
			return p
		},
		"stopped": func(t *testing.T, w *story.World, p *story.Process) *story.Process {
			began := time.Now()
			w.Stop(p)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("stopped after %v", took)
			}
			p = w.Begin(t.Context())
			p.Member.Assign(joined(w, 0))
			return p
		},
		"crashed": func(t *testing.T, w *story.World, p *story.Process) *story.Process {
			w.Crash(p)
			p = w.Begin(t.Context())
			p.Member.Assign(joined(w, 0))
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			var healthy atomic.Bool
			answer := func(key string) int {
				if key == "bad" && !healthy.Load() {
					return 503
				}
				return 200
			}
			registered(t, 1, answer, func(t *testing.T, w *story.World) {
				w.Broker.Produce(story.Topic, 0, "rr", "good")
				w.Broker.Produce(story.Topic, 0, "rr", "bad")
				w.Broker.Produce(story.Topic, 0, "rr", "good")
				p := w.Begin(t.Context())
				p.Member.Assign(joined(w, 0))
				eventually(t, "the question", func() bool { return w.Registry.Asked("bad") > 2 })
				goes(t, w, p)
				time.Sleep(10 * time.Second)
				if at := w.Position(0); at > 2 {
					t.Errorf("the table stands at %d", at)
				}
				healthy.Store(true)
				eventually(t, "end", w.AtEnd)
				seen := map[int64]int{}
				for _, o := range w.Rows(0) {
					seen[o]++
				}
				want := map[int64]int{}
				for o := range int64(len(w.Broker.Kinds(story.Topic, 0))) {
					if name != "fenced" || seen[o] > 0 || o >= 2 { // what an operator passed by hand need not be there
						want[o] = 1
					}
				}
				if !maps.Equal(seen, want) {
					t.Errorf("rows %v\n%s", seen, history(w))
				}
				wantLetters(t, w, 0)
			})
		})
	}
}
