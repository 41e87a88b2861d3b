package story_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// judgeLetters expects that only bad records have dead letters, and that the field Letters of each range is the number of
// bad records in the range. It does not check that every bad record has a letter: judge does.
func judgeLetters(t *testing.T, h *story.Harness, ranges []connector.Range, s uint64) {
	t.Helper()
	for _, p := range h.Broker.Partitions(story.Topic) {
		kinds := h.Broker.Kinds(story.Topic, p.ID)
		if h.Letters != nil {
			for o := range h.Letters.Distinct(p.ID) {
				if !kinds[o].Bad() {
					t.Errorf("seed %d: a letter of %v@%d, which is of kind %c", s, p, o, kinds[o])
				}
			}
		}
		for _, r := range ranges {
			if r.Partition != p.ID || r.From < 0 {
				continue
			}
			var bad int64
			for _, k := range kinds[r.From:r.Next] {
				if k.Bad() {
					bad++
				}
			}
			if bad != r.Letters {
				t.Errorf("seed %d: %+v passes %d bad records", s, r, bad)
			}
		}
	}
}

// TestSchedules_Letters is TestSchedules with bad records that become dead letters. A write of letters may fail
// before the first letter is durable, between two letters, or after the last. Letters of a failed write may become
// durable later.
func TestSchedules_Letters(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	letters, distinct := 0, 0
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			h := story.NewHarness(s, 3)
			h.Letters = &story.LetterLog{}
			play(t, h, s)
			letters += len(h.Letters.All())
			for id := range int32(3) {
				distinct += len(h.Letters.Distinct(id))
			}
		})
	}
	t.Logf("%d schedules, %d letters of %d records", last-first+1, letters, distinct)
	if *seed == 0 && letters == distinct {
		t.Error("no letter was ever written twice")
	}
}

// TestLetters_LittleMemory is TestSchedules_LittleMemory with bad records that become dead letters. Their memory, too,
// must be released in the end.
func TestLetters_LittleMemory(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		h := story.NewHarness(s, 3)
		h.Letters = &story.LetterLog{}
		h.Fetch = story.Response + 4<<10*int64(1+s%4)
		h.Batch = 100 << (s % 6)
		h.CommitRows = 1 + int64(s%7)
		play(t, h, s)
	})
}

// withLetters is [scenario] with a dead-letter topic. After play it fails the test if the harness or judge finds a
// violation.
func withLetters(t *testing.T, partitions int, play func(t *testing.T, h *story.Harness)) {
	t.Helper()
	scenario(t, partitions, func(t *testing.T, h *story.Harness) {
		h.Letters = &story.LetterLog{}
		play(t, h)
		h.Close()
		for _, v := range h.Broker.Violations() {
			t.Error(v)
		}
		if broken := judge(h, versionsOf(h)); broken != "" {
			t.Errorf("%s\n%s", broken, history(h))
		}
	})
}

func wantLetters(t *testing.T, h *story.Harness, id int32, want ...int64) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(h.Letters.Distinct(id))); !slices.Equal(got, want) {
		t.Errorf("partition %d has letters %v, want %v\n%s", id, got, want, history(h))
	}
}

func TestLetters_BadRecord(t *testing.T) {
	withLetters(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "prrpprtp", "k")
		h.Broker.Produce(story.Topic, 1, "pp", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{1, 2, 5})
		wantLetters(t, h, 0, 0, 3, 4, 7)
		wantLetters(t, h, 1, 0, 1)
		wantHolds(t, p, map[int32]hold.Reason{})
		if got := p.Counted("worker_dlq_messages_total"); got != 6 {
			t.Errorf("%v letters counted by topic", got)
		}
		if got := p.Counted("sluice_dead_letters_total"); got != 6 {
			t.Errorf("%v letters counted by reason", got)
		}
	})
}

// TestLetters_CommittedWhenDue expects batches of dead letters without rows to be due like batches of rows, by age and
// by number. Batches of positions alone wait much longer.
func TestLetters_CommittedWhenDue(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, h *story.Harness) {
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
		h.Broker.Produce(story.Topic, 0, "pp", "k")
		time.Sleep(10 * time.Second)
		if at := h.Position(0); at != 2 {
			t.Errorf("after ten commit intervals the position is %d", at)
		}
		h.Broker.Produce(story.Topic, 0, strings.Repeat("p", 55), "k")
		h.Stop(p)
		for _, v := range h.Log.Versions() {
			for _, r := range v.Commit.Ranges {
				// When the batch is due, up to 12 more records may be queued, and they enter the batch.
				if r.Letters > h.CommitRows+12 {
					t.Errorf("a batch of %d letters, a commit takes %d records", r.Letters, h.CommitRows)
				}
			}
		}
	})
}

// TestLetters_VoidWithoutTxn interrupts a member between the letters and their commit: it is killed or fenced, or the
// table is altered so that good records become bad and bad ones good. Each record must become a row or have a letter.
// Only a bad record that became good may have both; then its letter is void.
func TestLetters_VoidWithoutTxn(t *testing.T) {
	for name, c := range map[string]struct {
		between func(h *story.Harness, p *story.Process)
		produce string
		rows    []int64
		letters []int64
		void    []int64
	}{
		"killed": {func(h *story.Harness, p *story.Process) {
			p.Table.Kill()
		}, "rprp", []int64{0, 2}, []int64{1, 3}, nil},
		"fenced": {func(h *story.Harness, _ *story.Process) {
			h.Log.Append(story.Version{Commit: h.Forged(0, 0)})
		}, "rprp", []int64{0, 2}, []int64{1, 3}, nil},
		"fenced by one who passed them": {func(h *story.Harness, _ *story.Process) {
			h.Log.Append(story.Version{Commit: h.Forged(0, 2)})
		}, "rprp", []int64{2}, []int64{1, 3}, nil},
		"altered": {func(h *story.Harness, _ *story.Process) {
			h.Log.Alter()
		}, "rbwp", []int64{0, 1}, []int64{1, 2, 3}, []int64{1}},
		"altered, and no rows": {func(h *story.Harness, _ *story.Process) {
			h.Log.Alter()
		}, "bp", nil, []int64{0, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 1, func(t *testing.T, h *story.Harness) {
				h.Letters = &story.LetterLog{}
				var lettered atomic.Bool
				var first *story.Process
				h.LettersBroken = func(step string) error {
					if step == "letters answered" {
						lettered.Store(true)
					}
					return nil
				}
				done := false // needs no lock, because only one writer runs at a time
				h.Broken = func(step string) error {
					if step == "refresh" && lettered.Load() && !done {
						done = true
						c.between(h, first)
						if name == "killed" {
							return classify.Mark(errors.New("the process is gone"), classify.Canceled)
						}
					}
					return nil
				}
				first = h.Begin(t.Context())
				first.Member.Assign(joined(h, 0))
				eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
				h.Broker.Produce(story.Topic, 0, c.produce, "k")
				if name == "killed" {
					eventually(t, "letters", lettered.Load)
					h.Crash(first)
					first = h.Begin(t.Context())
					first.Member.Assign(joined(h, 0))
				}
				eventually(t, "end", h.AtEnd)
				wantRows(t, h, 0, c.rows)
				wantLetters(t, h, 0, c.letters...)
				var void []int64
				for _, o := range c.letters {
					if slices.Contains(h.Rows(0), o) {
						void = append(void, o)
					}
				}
				if !slices.Equal(void, c.void) {
					t.Errorf("letters of rows: %v, want %v", void, c.void)
				}
				// In one case the position is set to 2, so the records before it may have neither row nor letter.
				for o := range int64(len(c.produce)) {
					if !slices.Contains(c.rows, o) && !slices.Contains(c.letters, o) && o >= 2 {
						t.Errorf("@%d is neither row nor letter", o)
					}
				}
			})
		})
	}
}

// TestLetters_TopicDown has a dead-letter topic that is down, or that refuses letters. No position must pass a bad
// record, reading must stop, and the member must continue by itself once letters can be written, without losing a
// record.
func TestLetters_TopicDown(t *testing.T) {
	for name, down := range map[string]error{
		"does not answer": classify.Mark(errors.New("no leader"), classify.Transient),
		"refuses":         hold.New(hold.DeadLettersUnavailable, "not allowed", nil),
	} {
		t.Run(name, func(t *testing.T) {
			withLetters(t, 2, func(t *testing.T, h *story.Harness) {
				var mended atomic.Bool
				h.Batch, h.CommitRows = 64<<10, 20
				h.LettersBroken = func(string) error {
					if mended.Load() {
						return nil
					}
					return down
				}
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
				for range 20 {
					h.Broker.Produce(story.Topic, 0, "rrrprrrrrr", "k")
					h.Broker.Produce(story.Topic, 1, "rrrrrrrrrr", "l")
				}
				refused := classify.Of(down) == classify.Fatal
				if refused {
					wantHolds(t, p, map[int32]hold.Reason{0: hold.DeadLettersUnavailable, 1: hold.DeadLettersUnavailable})
				}
				time.Sleep(20 * time.Minute)
				st := p.Connector.Status()
				for _, c := range st.Claims {
					// A commit of the records before the first bad one may succeed and end the hold for a moment. Once
					// the hold has lasted ten minutes, this must not happen.
					if refused && (c.Hold == nil || time.Since(c.Hold.Since) < 10*time.Minute) {
						t.Errorf("%v: nothing holds it for long: %+v", c.Partition, c.Hold)
					}
					if c.Next > 80 {
						t.Errorf("%v is read to %d while nothing is committed", c.Partition, c.Next)
					}
				}
				if at := h.Position(0); at > 3 {
					t.Errorf("the position is %d, behind a record without a letter", at)
				}
				mended.Store(true)
				eventually(t, "end", h.AtEnd)
				wantHolds(t, p, map[int32]hold.Reason{})
				wantRows(t, h, 0, h.Want(0, 0, 1<<40))
				wantRows(t, h, 1, h.Want(1, 0, 1<<40))
				if n := len(h.Letters.Distinct(0)); n != 20 {
					t.Errorf("%d letters of 20", n)
				}
				if refused && len(h.Letters.All()) > 40 {
					t.Errorf("%d letters of 20 records", len(h.Letters.All()))
				}
			})
		})
	}
}

// TestLetters_FailedRecordsGone removes the record whose letter could not be written: its claim is lost, or an operator
// skips the record. The other claims were held for the same failure and have nothing to commit that could end their
// holds. They must not stay held.
func TestLetters_FailedRecordsGone(t *testing.T) {
	for name, end := range map[string]func(*story.Harness, *story.Process){
		"lost":   func(h *story.Harness, p *story.Process) { p.Member.Assign(joined(h, 1)) },
		"passed": func(h *story.Harness, _ *story.Process) { h.Log.Append(story.Version{Commit: h.Forged(0, 1)}) },
	} {
		t.Run(name, func(t *testing.T) {
			withLetters(t, 2, func(t *testing.T, h *story.Harness) {
				h.LettersBroken = func(string) error {
					return hold.New(hold.DeadLettersUnavailable, "not allowed", nil)
				}
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
				h.Broker.Produce(story.Topic, 0, "p", "k")
				wantHolds(t, p, map[int32]hold.Reason{0: hold.DeadLettersUnavailable, 1: hold.DeadLettersUnavailable})
				end(h, p)
				time.Sleep(10 * time.Minute)
				wantHolds(t, p, map[int32]hold.Reason{})
			})
		})
	}
}

// TestLetters_DrainWhileTopicDown expects a drain to end in time while letters cannot be written. The next member reads
// the records again.
func TestLetters_DrainWhileTopicDown(t *testing.T) {
	withLetters(t, 2, func(t *testing.T, h *story.Harness) {
		var mended atomic.Bool
		h.LettersBroken = func(string) error {
			if mended.Load() {
				return nil
			}
			return classify.Mark(errors.New("no leader"), classify.Transient)
		}
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		h.Broker.Produce(story.Topic, 0, "rprr", "k")
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		time.Sleep(time.Minute)
		began := time.Now()
		h.Stop(p)
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the drain took %v, it has 5 s", took)
		}
		if h.Position(0) != 0 || h.Position(1) != 0 {
			t.Errorf("the position is %d and %d", h.Position(0), h.Position(1))
		}
		mended.Store(true)
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 2, 3})
		wantLetters(t, h, 0, 1)
	})
}

// TestFlood_HoldsUntilAllowed expects a flood to hold the topic's partitions with bad records before any letter is
// written. A partition without bad records continues, and records of held claims are not read again and again.
func TestFlood_HoldsUntilAllowed(t *testing.T) {
	withLetters(t, 2, func(t *testing.T, h *story.Harness) {
		var allowed atomic.Bool
		h.HoldAbove, h.CommitRows, h.Every = 0.5, 1000, 30*time.Second
		h.Allowed = func(topic string) bool { return topic == story.Topic && allowed.Load() }
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		for i := range 15 {
			h.Broker.Produce(story.Topic, 0, "pppppppppp", fmt.Sprint(i))
		}
		h.Broker.Produce(story.Topic, 1, "rrrr", "l")
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Flood})
		eventually(t, "the calm partition at its end", func() bool { return h.Position(1) == 4 })
		wantLetters(t, h, 0)
		read := p.Counted("sluice_records_read_total")
		time.Sleep(time.Hour)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Flood})
		if again := p.Counted("sluice_records_read_total") - read; again > 0 {
			t.Errorf("%v records were read again", again)
		}
		wantLetters(t, h, 0)
		if h := p.Connector.Status().Claims[0].Hold; !strings.Contains(h.Detail, "150 of the 154 records") || !strings.Contains(h.Detail, "150 of them for poison") {
			t.Errorf("the hold says %q", h.Detail)
		}
		allowed.Store(true)
		time.Sleep(5 * time.Second)
		wantHolds(t, p, map[int32]hold.Reason{})
		eventually(t, "end", h.AtEnd)
		if n := len(h.Letters.Distinct(0)); n != 150 {
			t.Errorf("%d letters of 150", n)
		}
	})
}

// TestFlood_StopsInTheMiddle expects that a flood lets the records before the first bad one commit, but none after it.
func TestFlood_StopsInTheMiddle(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, h *story.Harness) {
		h.HoldAbove, h.CommitRows, h.Every = 0.5, 1000, 30*time.Second
		h.Allowed = func(string) bool { return false }
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
		for i := range 20 {
			h.Broker.Produce(story.Topic, 0, "rppprppppp", fmt.Sprint(i))
		}
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Flood})
		eventually(t, "up to the first bad one", func() bool { return h.Position(0) == 1 })
		wantRows(t, h, 0, []int64{0})
		wantLetters(t, h, 0)
		h.Stop(p)
		wantRows(t, h, 0, []int64{0})
	})
}

// TestLetters_OfTwoOwners has two members that believe that they own the claim. Both may write its letters, but each
// record must become one row, or have letters and no row.
func TestLetters_OfTwoOwners(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rprpr", "k")
		a, b := h.Begin(t.Context()), h.Begin(t.Context())
		a.Member.Assign(joined(h, 0))
		b.Member.Assign(joined(h, 0)) // the second member believes that it owns the same claim
		eventually(t, "end", h.AtEnd)
		time.Sleep(5 * time.Minute)
		wantRows(t, h, 0, []int64{0, 2, 4})
		wantLetters(t, h, 0, 1, 3)
	})
}

// TestLetters_WithinPool has bad records that are much larger than good ones, while the dead-letter topic is slow. Use
// of the batch pool must stay within its size, and every record must become a row or a letter.
func TestLetters_WithinPool(t *testing.T) {
	const large = 64 << 10
	for name, kinds := range map[string]string{"alone": "pppppppppp", "among others": "rrrrprrrpr", "with tombstones": "ptthppttpp"} {
		t.Run(name, func(t *testing.T) {
			withLetters(t, 2, func(t *testing.T, h *story.Harness) {
				h.Fetch, h.Batch, h.CommitRows = 1<<20, 12*large, 1000
				h.Broker.Value = func(k story.Kind, _ int64) []byte {
					if k.Bad() {
						return append([]byte{byte(k)}, make([]byte, large)...)
					}
					return append([]byte{byte(k)}, make([]byte, 100)...)
				}
				h.LettersBroken = func(step string) error {
					if step == "letters" {
						time.Sleep(20 * time.Second)
					}
					return nil
				}
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				for i := range 20 {
					h.Broker.Produce(story.Topic, int32(i%2), kinds, fmt.Sprint(i))
				}
				most := int64(0)
				for end := time.Now().Add(20 * time.Minute); time.Now().Before(end) && !h.AtEnd(); time.Sleep(5 * time.Millisecond) {
					most = max(most, p.Connector.Pools.Batch.Used())
				}
				if !h.AtEnd() {
					t.Errorf("stuck\n%s", history(h))
				}
				// The pool counts the buffers of the lanes' builders only once they exist, so its use may exceed its
				// size by the sizes of these buffers.
				if lanes := int64(2 * 2 * 1200); most > h.Batch+lanes || most < h.Batch/2 {
					t.Errorf("%d bytes were taken of a pool of %d", most, h.Batch)
				}
				for id := range int32(2) {
					wantRows(t, h, id, h.Want(id, 0, 1<<40))
					if got, want := len(h.Letters.Distinct(id)), 10*strings.Count(kinds, "p"); got != want {
						t.Errorf("%d letters, want %d", got, want)
					}
				}
			})
		})
	}
}

// TestLetters_AfterElection has a bad record before and one after an election, with different leader epochs. Each must
// become a dead letter with its own value, in which the epoch is.
func TestLetters_AfterElection(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, h *story.Harness) {
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		h.Broker.Produce(story.Topic, 0, "rp", "k")
		h.Broker.Elect(story.Topic, 0)
		h.Broker.Produce(story.Topic, 0, "rp", "k")
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 2})
		wantLetters(t, h, 0, 1, 3)
	})
}

// TestLetters_LargerThanPool expects a bad record that is larger than the batch pool to become a letter.
func TestLetters_LargerThanPool(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, h *story.Harness) {
		h.Fetch, h.Batch = 1<<20, 8<<10
		h.Broker.Value = func(k story.Kind, _ int64) []byte {
			if k == story.Poison {
				return append([]byte{byte(k)}, make([]byte, 64<<10)...)
			}
			return []byte{byte(k)}
		}
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		h.Broker.Produce(story.Topic, 0, "rpprrp", "k")
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 3, 4})
		wantLetters(t, h, 0, 1, 2, 5)
	})
}
