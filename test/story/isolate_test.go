package story_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// thrice allows three retries, after pauses of 1, 2 and 3 seconds.
var thrice = reliability.RecordRetry{Max: 3, Wait: time.Second, Curve: reliability.Linear}

// ours is withLetters with the record_retry policy thrice.
func ours(t *testing.T, partitions int, play func(t *testing.T, h *story.Harness)) {
	t.Helper()
	withLetters(t, partitions, func(t *testing.T, h *story.Harness) {
		h.Retry = thrice
		play(t, h)
		h.Close()
		for _, v := range h.Broker.Violations() {
			t.Error(v)
		}
	})
}

// TestSchedules_LocalFailures is TestSchedules with records on which the decoder fails or panics, and with rows on
// which the encoder panics. Exactly these records must become dead letters, and all others rows.
func TestSchedules_LocalFailures(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)/3
	if *seed != 0 {
		first, last = *seed, *seed
	}
	letters := 0
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			h := story.NewHarness(s, 3)
			h.Letters = &story.LetterLog{}
			h.Retry = reliability.RecordRetry{Max: int(s % 3), Wait: 100 * time.Millisecond, Curve: reliability.Linear}
			play(t, h, s)
			letters += len(h.Letters.All())
		})
	}
	t.Logf("%d schedules, %d letters", last-first+1, letters)
}

func TestIsolate_RecordAtFault(t *testing.T) {
	for name, c := range map[string]struct {
		produce [2]string
		rows    [2][]int64
		letters [2][]int64
	}{
		"the encoder panics on a row": {
			[2]string{"rrrrerrrrrr", "rrr"}, [2][]int64{{0, 1, 2, 3, 5, 6, 7, 8, 9, 10}, {0, 1, 2}}, [2][]int64{{4}, nil},
		},
		"on two rows of one batch": {
			[2]string{"rerrrrrrerrr", "rrr"}, [2][]int64{{0, 2, 3, 4, 5, 6, 7, 9, 10, 11}, {0, 1, 2}}, [2][]int64{{1, 8}, nil},
		},
		"on rows of two partitions": {
			[2]string{"errr", "rrre"}, [2][]int64{{1, 2, 3}, {0, 1, 2}}, [2][]int64{{0}, {3}},
		},
		"offsets have holes": {
			[2]string{"rctrecctrr", "rcerr"}, [2][]int64{{0, 3, 8, 9}, {0, 3, 4}}, [2][]int64{{4}, {2}},
		},
		"the decoder panics": {
			[2]string{"rrrrxrr", "rrr"}, [2][]int64{{0, 1, 2, 3, 5, 6}, {0, 1, 2}}, [2][]int64{{4}, nil},
		},
		"the decoder fails without a reason": {
			[2]string{"rrrxrrr", "rrr"}, [2][]int64{{0, 1, 2, 4, 5, 6}, {0, 1, 2}}, [2][]int64{{3}, nil},
		},
		"all kinds": {
			[2]string{"rxprerrxpe", "rrxx"}, [2][]int64{{0, 3, 5, 6}, {0, 1}}, [2][]int64{{1, 2, 4, 7, 8, 9}, {2, 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours(t, 2, func(t *testing.T, h *story.Harness) {
				for id, kinds := range c.produce {
					h.Broker.Produce(story.Topic, int32(id), kinds, "k")
				}
				began := time.Now()
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "end", h.AtEnd)
				for id := range c.produce {
					wantRows(t, h, int32(id), c.rows[id])
					wantLetters(t, h, int32(id), c.letters[id]...)
				}
				wantHolds(t, p, map[int32]hold.Reason{})
				if took := time.Since(began); took < 6*time.Second {
					t.Errorf("given up after %v, want at least the pauses of 1, 2 and 3 s", took)
				}
				if got := p.Counted("worker_retry_count_total"); got < 3 {
					t.Errorf("%v attempts counted", got)
				}
			})
		})
	}
}

// TestIsolate_FailurePasses expects no dead letter if the second attempt succeeds.
func TestIsolate_FailurePasses(t *testing.T) {
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		var failed atomic.Int64
		h.Odd = func(s story.Source) {
			if s.Offset == 2 && failed.Add(1) == 1 {
				panic("once")
			}
		}
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2, 3})
		wantLetters(t, h, 0)
		if got := p.Counted("worker_retry_count_total"); got != 1 {
			t.Errorf("%v attempts counted, want 1", got)
		}
	})
}

// TestIsolate_NoRecordAtFault expects no dead letter if every row fails, or if two rows fail only when they are encoded
// together, even for a long time. The member retries the batch and counts its failures, and the batch commits once the
// rows no longer fail.
func TestIsolate_NoRecordAtFault(t *testing.T) {
	for name, fails := range map[string]func(rows []story.Source) bool{
		"all rows fail":      func([]story.Source) bool { return true },
		"two rows fail only": func(rows []story.Source) bool { return has(rows, 1) && has(rows, 6) },
	} {
		t.Run(name, func(t *testing.T) {
			ours(t, 1, func(t *testing.T, h *story.Harness) {
				var healed atomic.Bool
				h.Together = func(rows []story.Source) {
					if !healed.Load() && fails(rows) {
						panic("unknown cause")
					}
				}
				h.Broker.Produce(story.Topic, 0, "rrrrrrrr", "k")
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0))
				time.Sleep(5 * time.Minute)
				wantLetters(t, h, 0)
				wantRows(t, h, 0, nil)
				if at := h.Position(0); at != 0 {
					t.Errorf("the position is %d", at)
				}
				if got := p.Counted("sluice_commit_failures_total"); got < 10 {
					t.Errorf("%v failures counted", got)
				}
				if got := p.Counted("worker_retry_count_total"); got != 3 {
					t.Errorf("%v attempts counted, want 3", got)
				}
				healed.Store(true)
				eventually(t, "end", h.AtEnd)
				wantRows(t, h, 0, []int64{0, 1, 2, 3, 4, 5, 6, 7})
				wantLetters(t, h, 0)
			})
		})
	}
}

// TestIsolate_OnlyWithOthers has a row that fails alone, and two others that fail only together. The member must not
// make a dead letter of any of them, because a record counts as at fault only if all others can be encoded without it.
func TestIsolate_OnlyWithOthers(t *testing.T) {
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		h.Together = func(rows []story.Source) {
			if has(rows, 0) || has(rows, 2) && has(rows, 6) {
				panic("alone, or together")
			}
		}
		h.Broker.Produce(story.Topic, 0, "rrrrrrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		time.Sleep(5 * time.Minute)
		wantLetters(t, h, 0)
		wantRows(t, h, 0, nil)
		if got := p.Counted("worker_retry_count_total"); got != 3 { // the count would have begun again if a record had become a dead letter
			t.Errorf("%v attempts counted, want 3", got)
		}
	})
}

func has(rows []story.Source, offset int64) bool {
	return slices.ContainsFunc(rows, func(s story.Source) bool { return s.Offset == offset })
}

// TestIsolate_DecoderAlwaysFails expects no dead letter if the decoder fails on every record: the records are not at
// fault.
func TestIsolate_DecoderAlwaysFails(t *testing.T) {
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, strings.Repeat("x", 200), "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		time.Sleep(5 * time.Minute)
		wantLetters(t, h, 0)
		if at := h.Position(0); at != 0 {
			t.Errorf("the position is %d", at)
		}
	})
}

// TestIsolate_HoldWithoutLetters has a record at fault in a topic without dead letters. The record must hold its
// partition, and its batch must not be tried again while the hold lasts. The records before it and those of another
// partition must become rows.
func TestIsolate_HoldWithoutLetters(t *testing.T) {
	for _, kinds := range []string{"rrerr", "rrxrr"} {
		scenario(t, 2, func(t *testing.T, h *story.Harness) {
			h.Retry = thrice
			h.Broker.Produce(story.Topic, 0, kinds, "k")
			h.Broker.Produce(story.Topic, 1, "rrr", "k")
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0, 1))
			wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
			eventually(t, "the others pass", func() bool { return h.Position(0) == 2 && h.Position(1) == 3 })
			for _, c := range p.Connector.Status().Claims {
				if c.Hold != nil && (c.Hold.Offset != 2 || !strings.Contains(c.Hold.Detail, "isolated: ")) {
					t.Errorf("held at %d: %s", c.Hold.Offset, c.Hold.Detail)
				}
			}
			wantRows(t, h, 0, []int64{0, 1})
			failures := p.Counted("sluice_commit_failures_total")
			time.Sleep(10 * time.Minute) // the hold is checked each minute, but the batch must not be retried
			if got := p.Counted("sluice_commit_failures_total"); got != failures {
				t.Errorf("%v failures, %v before it was held", got, failures)
			}
		})
	}
}

// TestIsolate_StopDuringPause stops a member while it waits between two attempts. The member must end without waiting
// for the rest of the pause.
func TestIsolate_StopDuringPause(t *testing.T) {
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		h.Retry = reliability.RecordRetry{Curve: reliability.Scheduled, Schedule: []time.Duration{30 * time.Minute}}
		h.Broker.Produce(story.Topic, 0, "rrer", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "the first failure", func() bool { return p.Counted("worker_retry_count_total") == 1 })
		time.Sleep(10 * time.Second)
		began := time.Now()
		h.Stop(p)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("stopped after %v", took)
		}
		wantRows(t, h, 0, nil)
		wantLetters(t, h, 0)
	})
}

// TestClaimLeavesBatch expects commits of one partition to continue while records of another wait for a retry.
func TestClaimLeavesBatch(t *testing.T) {
	for name, kinds := range map[string]string{"EncoderPanics": "rrer", "DecoderPanics": "rrxr", "DecoderFails": "rrrx"} {
		t.Run(name, func(t *testing.T) {
			ours(t, 2, func(t *testing.T, h *story.Harness) {
				h.Retry = reliability.RecordRetry{Curve: reliability.Scheduled, Schedule: []time.Duration{30 * time.Minute}}
				h.Broker.Produce(story.Topic, 0, kinds, "k")
				h.Broker.Produce(story.Topic, 1, "rrr", "k")
				began := time.Now()
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "rows of the other partition", func() bool { return h.Position(1) == 3 })
				eventually(t, "the first failure", func() bool { return p.Counted("worker_retry_count_total") == 1 })
				h.Broker.Produce(story.Topic, 1, "rrrr", "k")
				eventually(t, "later rows of the other partition", func() bool { return h.Position(1) == 7 })
				if took := time.Since(began); took > 10*time.Minute {
					t.Errorf("the other partition waited for %v", took)
				}
				wantRows(t, h, 0, nil)
				wantLetters(t, h, 0)
				wantHolds(t, p, map[int32]hold.Reason{})

				at := int64(strings.IndexAny(kinds, "ex"))
				time.Sleep(40 * time.Minute)
				wantRows(t, h, 0, slices.DeleteFunc([]int64{0, 1, 2, 3}, func(o int64) bool { return o == at }))
				wantLetters(t, h, 0, at)
				wantLetters(t, h, 1)
				if got := p.Counted("worker_retry_count_total"); got != 1 {
					t.Errorf("%v attempts counted, want 1", got)
				}
			})
		})
	}
}

// TestIsolate_Trace expects the writes that are visible outside of the process to be those in testdata/isolated.txt, in
// the same order.
func TestIsolate_Trace(t *testing.T) {
	var (
		mu    sync.Mutex
		trace strings.Builder
	)
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		began := time.Now()
		h.Retry = reliability.RecordRetry{Curve: reliability.Scheduled, Schedule: []time.Duration{5 * time.Second, 60 * time.Second}}
		h.Trace = func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			if line := fmt.Sprintf(format, args...); !strings.HasPrefix(line, "bounds") && !strings.HasPrefix(line, "load") && !strings.HasPrefix(line, "fetch") {
				fmt.Fprintf(&trace, "%3.0fs %s\n", time.Since(began).Seconds(), line)
			}
		}
		h.Broker.Produce(story.Topic, 0, "rrerrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		if got := slices.Sorted(maps.Keys(h.Letters.Distinct(0))); !slices.Equal(got, []int64{2}) {
			t.Errorf("letters %v", got)
		}
	})
	golden := filepath.Join("testdata", "isolated.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(trace.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), trace.String()); diff != "" {
		t.Errorf("-want +got (go test -update writes it anew)\n%s", diff)
	}
}
