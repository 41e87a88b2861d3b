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

// judgeLetters compares dead letters with the records and the ranges of all commits: no good record has a letter,
// and the ranges count the letters. The model judges that every bad record has one before a position passes it.
func judgeLetters(t *testing.T, w *story.World, ranges []connector.Range, s uint64) {
	t.Helper()
	for _, p := range w.Broker.Partitions(story.Topic) {
		kinds := w.Broker.Kinds(story.Topic, p.ID)
		if w.Letters != nil {
			for o := range w.Letters.Distinct(p.ID) {
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

// TestSchedules_Letters is TestSchedules with bad records that become dead letters. Their topic fails before,
// between and after them, loses responses and takes letters late.
func TestSchedules_Letters(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	letters, distinct := 0, 0
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			w := story.NewWorld(s, 3)
			w.Letters = &story.LetterLog{}
			play(t, w, s)
			letters += len(w.Letters.All())
			for id := range int32(3) {
				distinct += len(w.Letters.Distinct(id))
			}
		})
	}
	t.Logf("%d schedules, %d letters of %d records", last-first+1, letters, distinct)
	if *seed == 0 && letters == distinct {
		t.Error("no letter was ever written twice")
	}
}

// TestLetters_LittleMemory is TestSchedules_LittleMemory with bad records.
func TestLetters_LittleMemory(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		w := story.NewWorld(s, 3)
		w.Letters = &story.LetterLog{}
		w.Fetch = story.Response + 4<<10*int64(1+s%4)
		w.Batch = 100 << (s % 6)
		w.CommitRows = 1 + int64(s%7)
		play(t, w, s)
	})
}

// withLetters is scene with a dead-letter topic.
func withLetters(t *testing.T, partitions int, play func(t *testing.T, w *story.World)) {
	t.Helper()
	scene(t, partitions, func(t *testing.T, w *story.World) {
		w.Letters = &story.LetterLog{}
		play(t, w)
		w.Close()
		for _, v := range w.Broker.Violations() {
			t.Error(v)
		}
		if broken := judge(w, versionsOf(w)); broken != "" {
			t.Errorf("%s\n%s", broken, history(w))
		}
	})
}

func wantLetters(t *testing.T, w *story.World, id int32, want ...int64) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(w.Letters.Distinct(id))); !slices.Equal(got, want) {
		t.Errorf("partition %d has letters %v, want %v\n%s", id, got, want, history(w))
	}
}

func TestLetters_BadRecord(t *testing.T) {
	withLetters(t, 2, func(t *testing.T, w *story.World) {
		w.Broker.Produce(story.Topic, 0, "prrpprtp", "k")
		w.Broker.Produce(story.Topic, 1, "pp", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 0, []int64{1, 2, 5})
		wantLetters(t, w, 0, 0, 3, 4, 7)
		wantLetters(t, w, 1, 0, 1)
		wantHolds(t, p, map[int32]hold.Reason{})
		if got := p.Counted("worker_dlq_messages_total"); got != 6 {
			t.Errorf("%v letters counted by topic", got)
		}
		if got := p.Counted("sluice_dead_letters_total"); got != 6 {
			t.Errorf("%v letters counted by reason", got)
		}
	})
}

// TestLetters_CommittedWhenDue: dead letters without rows are not committed as late as positions alone.
func TestLetters_CommittedWhenDue(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, w *story.World) {
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "initial commit", func() bool { return len(w.Started()) == 1 })
		w.Broker.Produce(story.Topic, 0, "pp", "k")
		time.Sleep(10 * time.Second)
		if at := w.Position(0); at != 2 {
			t.Errorf("after ten commit intervals the position is %d", at)
		}
		w.Broker.Produce(story.Topic, 0, strings.Repeat("p", 55), "k")
		w.Stop(p)
		for _, v := range w.Log.Versions() {
			for _, r := range v.Commit.Ranges {
				if r.Letters > w.CommitRows+12 { // and what was queued
					t.Errorf("a batch of %d letters, a commit takes %d records", r.Letters, w.CommitRows)
				}
			}
		}
	})
}

// TestLetters_VoidWithoutTxn: between the letters and their commit, the member is killed or fenced, or the table is
// altered so that good and bad records change places.
func TestLetters_VoidWithoutTxn(t *testing.T) {
	for name, c := range map[string]struct {
		between func(w *story.World, p *story.Process)
		produce string
		rows    []int64
		letters []int64
		void    []int64
	}{
		"killed": {func(w *story.World, p *story.Process) {
			p.Table.Kill()
		}, "rprp", []int64{0, 2}, []int64{1, 3}, nil},
		"fenced": {func(w *story.World, _ *story.Process) {
			w.Log.Append(story.Version{Commit: w.Forged(0, 0)})
		}, "rprp", []int64{0, 2}, []int64{1, 3}, nil},
		"fenced by one who passed them": {func(w *story.World, _ *story.Process) {
			w.Log.Append(story.Version{Commit: w.Forged(0, 2)})
		}, "rprp", []int64{2}, []int64{1, 3}, nil},
		"altered": {func(w *story.World, _ *story.Process) {
			w.Log.Alter()
		}, "rbwp", []int64{0, 1}, []int64{1, 2, 3}, []int64{1}},
		"altered, and no rows": {func(w *story.World, _ *story.Process) {
			w.Log.Alter()
		}, "bp", nil, []int64{0, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, 1, func(t *testing.T, w *story.World) {
				w.Letters = &story.LetterLog{}
				var lettered atomic.Bool
				var first *story.Process
				w.LettersBroken = func(step string) error {
					if step == "letters answered" {
						lettered.Store(true)
					}
					return nil
				}
				done := false // one writer at a time
				w.Broken = func(step string) error {
					if step == "refresh" && lettered.Load() && !done {
						done = true
						c.between(w, first)
						if name == "killed" {
							return classify.Mark(errors.New("the process is gone"), classify.Canceled)
						}
					}
					return nil
				}
				first = w.Begin(t.Context())
				first.Member.Assign(joined(w, 0))
				eventually(t, "initial commit", func() bool { return len(w.Started()) == 1 })
				w.Broker.Produce(story.Topic, 0, c.produce, "k")
				if name == "killed" {
					eventually(t, "letters", lettered.Load)
					w.Crash(first)
					first = w.Begin(t.Context())
					first.Member.Assign(joined(w, 0))
				}
				eventually(t, "end", w.AtEnd)
				wantRows(t, w, 0, c.rows)
				wantLetters(t, w, 0, c.letters...)
				var void []int64
				for _, o := range c.letters {
					if slices.Contains(w.Rows(0), o) {
						void = append(void, o)
					}
				}
				if !slices.Equal(void, c.void) {
					t.Errorf("letters of rows: %v, want %v", void, c.void)
				}
				for o := range int64(len(c.produce)) { // what an operator skipped is not judged
					if !slices.Contains(c.rows, o) && !slices.Contains(c.letters, o) && o >= 2 {
						t.Errorf("@%d is neither row nor letter", o)
					}
				}
			})
		})
	}
}

// TestLetters_TopicDown: no position passes bad records, none is dropped, memory is bounded, and the member
// continues by itself. In one case the topic is down, in the other it refuses the letters.
func TestLetters_TopicDown(t *testing.T) {
	for name, down := range map[string]error{
		"does not answer": classify.Mark(errors.New("no leader"), classify.Transient),
		"refuses":         hold.New(hold.DeadLettersUnavailable, "not allowed", nil),
	} {
		t.Run(name, func(t *testing.T) {
			withLetters(t, 2, func(t *testing.T, w *story.World) {
				var mended atomic.Bool
				w.Batch, w.CommitRows = 64<<10, 20
				w.LettersBroken = func(string) error {
					if mended.Load() {
						return nil
					}
					return down
				}
				p := w.Begin(t.Context())
				p.Member.Assign(joined(w, 0, 1))
				eventually(t, "initial commit", func() bool { return len(w.Started()) == 2 })
				for range 20 {
					w.Broker.Produce(story.Topic, 0, "rrrprrrrrr", "k")
					w.Broker.Produce(story.Topic, 1, "rrrrrrrrrr", "l")
				}
				refused := classify.Of(down) == classify.Fatal
				if refused {
					wantHolds(t, p, map[int32]hold.Reason{0: hold.DeadLettersUnavailable, 1: hold.DeadLettersUnavailable})
				}
				time.Sleep(20 * time.Minute)
				st := p.Connector.Status()
				for _, c := range st.Claims {
					// A commit of records before the first bad one may succeed, and end the hold for a moment.
					if refused && (c.Hold == nil || time.Since(c.Hold.Since) < 10*time.Minute) {
						t.Errorf("%v: nothing holds it for long: %+v", c.Partition, c.Hold)
					}
					if c.Next > 80 {
						t.Errorf("%v is read to %d while nothing is committed", c.Partition, c.Next)
					}
				}
				if at := w.Position(0); at > 3 {
					t.Errorf("the position is %d, behind a record without a letter", at)
				}
				mended.Store(true)
				eventually(t, "end", w.AtEnd)
				wantHolds(t, p, map[int32]hold.Reason{})
				wantRows(t, w, 0, w.Want(0, 0, 1<<40))
				wantRows(t, w, 1, w.Want(1, 0, 1<<40))
				if n := len(w.Letters.Distinct(0)); n != 20 {
					t.Errorf("%d letters of 20", n)
				}
				if refused && len(w.Letters.All()) > 40 {
					t.Errorf("%d letters of 20 records", len(w.Letters.All()))
				}
			})
		})
	}
}

// TestLetters_FailedRecordsGone: another member has the claims of the letters that could not be written, or an
// operator skipped them. The claims that are left have nothing to commit that would end their holds, so they must
// not stay held.
func TestLetters_FailedRecordsGone(t *testing.T) {
	for name, end := range map[string]func(*story.World, *story.Process){
		"lost":   func(w *story.World, p *story.Process) { p.Member.Assign(joined(w, 1)) },
		"passed": func(w *story.World, _ *story.Process) { w.Log.Append(story.Version{Commit: w.Forged(0, 1)}) },
	} {
		t.Run(name, func(t *testing.T) {
			withLetters(t, 2, func(t *testing.T, w *story.World) {
				w.LettersBroken = func(string) error {
					return hold.New(hold.DeadLettersUnavailable, "not allowed", nil)
				}
				p := w.Begin(t.Context())
				p.Member.Assign(joined(w, 0, 1))
				eventually(t, "initial commit", func() bool { return len(w.Started()) == 2 })
				w.Broker.Produce(story.Topic, 0, "p", "k")
				wantHolds(t, p, map[int32]hold.Reason{0: hold.DeadLettersUnavailable, 1: hold.DeadLettersUnavailable})
				end(w, p)
				time.Sleep(10 * time.Minute)
				wantHolds(t, p, map[int32]hold.Reason{})
			})
		})
	}
}

// TestLetters_DrainWhileTopicDown: the drain ends in time; the records are read again.
func TestLetters_DrainWhileTopicDown(t *testing.T) {
	withLetters(t, 2, func(t *testing.T, w *story.World) {
		var mended atomic.Bool
		w.LettersBroken = func(string) error {
			if mended.Load() {
				return nil
			}
			return classify.Mark(errors.New("no leader"), classify.Transient)
		}
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "initial commit", func() bool { return len(w.Started()) == 2 })
		w.Broker.Produce(story.Topic, 0, "rprr", "k")
		w.Broker.Produce(story.Topic, 1, "rr", "k")
		time.Sleep(time.Minute)
		began := time.Now()
		w.Stop(p)
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the drain took %v, it has 5 s", took)
		}
		if w.Position(0) != 0 || w.Position(1) != 0 {
			t.Errorf("the position is %d and %d", w.Position(0), w.Position(1))
		}
		mended.Store(true)
		p = w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 0, []int64{0, 2, 3})
		wantLetters(t, w, 0, 1)
	})
}

// TestFlood_HoldsUntilAllowed: the topic's partitions with bad records stop before any letter, one without continues,
// and held records are not read again and again.
func TestFlood_HoldsUntilAllowed(t *testing.T) {
	withLetters(t, 2, func(t *testing.T, w *story.World) {
		var allowed atomic.Bool
		w.HoldAbove, w.CommitRows, w.Every = 0.5, 1000, 30*time.Second
		w.Allowed = func(topic string) bool { return topic == story.Topic && allowed.Load() }
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "initial commit", func() bool { return len(w.Started()) == 2 })
		for i := range 15 {
			w.Broker.Produce(story.Topic, 0, "pppppppppp", fmt.Sprint(i))
		}
		w.Broker.Produce(story.Topic, 1, "rrrr", "l")
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Flood})
		eventually(t, "the calm partition at its end", func() bool { return w.Position(1) == 4 })
		wantLetters(t, w, 0)
		read := p.Counted("sluice_records_read_total")
		time.Sleep(time.Hour)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Flood})
		if again := p.Counted("sluice_records_read_total") - read; again > 0 {
			t.Errorf("%v records were read again", again)
		}
		wantLetters(t, w, 0)
		if h := p.Connector.Status().Claims[0].Hold; !strings.Contains(h.Detail, "150 of the 154 records") || !strings.Contains(h.Detail, "150 of them for poison") {
			t.Errorf("the hold says %q", h.Detail)
		}
		allowed.Store(true)
		time.Sleep(5 * time.Second)
		wantHolds(t, p, map[int32]hold.Reason{})
		eventually(t, "end", w.AtEnd)
		if n := len(w.Letters.Distinct(0)); n != 150 {
			t.Errorf("%d letters of 150", n)
		}
	})
}

// TestFlood_StopsInTheMiddle: records before the first bad one are committed, records after it are not.
func TestFlood_StopsInTheMiddle(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, w *story.World) {
		w.HoldAbove, w.CommitRows, w.Every = 0.5, 1000, 30*time.Second
		w.Allowed = func(string) bool { return false }
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "initial commit", func() bool { return len(w.Started()) == 1 })
		for i := range 20 {
			w.Broker.Produce(story.Topic, 0, "rppprppppp", fmt.Sprint(i))
		}
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Flood})
		eventually(t, "up to the first bad one", func() bool { return w.Position(0) == 1 })
		wantRows(t, w, 0, []int64{0})
		wantLetters(t, w, 0)
		w.Stop(p)
		wantRows(t, w, 0, []int64{0})
	})
}

// TestLetters_OfTwoOwners: two members believe that they own the claim, and each writes its letters.
func TestLetters_OfTwoOwners(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, w *story.World) {
		w.Broker.Produce(story.Topic, 0, "rprpr", "k")
		a, b := w.Begin(t.Context()), w.Begin(t.Context())
		a.Member.Assign(joined(w, 0))
		b.Member.Assign(joined(w, 0)) // by mistake
		eventually(t, "end", w.AtEnd)
		time.Sleep(5 * time.Minute)
		wantRows(t, w, 0, []int64{0, 2, 4})
		wantLetters(t, w, 0, 1, 3)
	})
}

// TestLetters_WithinPool: bad records much larger than good ones suggest, alone and among others, while the
// dead-letter topic is slow. Allocations never exceed the pool, and every record becomes a row or a letter.
func TestLetters_WithinPool(t *testing.T) {
	const large = 64 << 10
	for name, kinds := range map[string]string{"alone": "pppppppppp", "among others": "rrrrprrrpr", "with tombstones": "ptthppttpp"} {
		t.Run(name, func(t *testing.T) {
			withLetters(t, 2, func(t *testing.T, w *story.World) {
				w.Fetch, w.Batch, w.CommitRows = 1<<20, 12*large, 1000
				w.Broker.Value = func(k story.Kind, _ int64) []byte {
					if k.Bad() {
						return append([]byte{byte(k)}, make([]byte, large)...)
					}
					return append([]byte{byte(k)}, make([]byte, 100)...)
				}
				w.LettersBroken = func(step string) error {
					if step == "letters" {
						time.Sleep(20 * time.Second)
					}
					return nil
				}
				p := w.Begin(t.Context())
				p.Member.Assign(joined(w, 0, 1))
				for i := range 20 {
					w.Broker.Produce(story.Topic, int32(i%2), kinds, fmt.Sprint(i))
				}
				most := int64(0)
				for end := time.Now().Add(20 * time.Minute); time.Now().Before(end) && !w.AtEnd(); time.Sleep(5 * time.Millisecond) {
					most = max(most, p.Connector.Pools.Batch.Used())
				}
				if !w.AtEnd() {
					t.Errorf("stuck\n%s", history(w))
				}
				// The buffers of the lanes' builders are known only once they exist.
				if lanes := int64(2 * 2 * 1200); most > w.Batch+lanes || most < w.Batch/2 {
					t.Errorf("%d bytes were taken of a pool of %d", most, w.Batch)
				}
				for id := range int32(2) {
					wantRows(t, w, id, w.Want(id, 0, 1<<40))
					if got, want := len(w.Letters.Distinct(id)), 10*strings.Count(kinds, "p"); got != want {
						t.Errorf("%d letters, want %d", got, want)
					}
				}
			})
		})
	}
}

// TestLetters_LargerThanPool: a single bad record larger than the pool becomes a letter all the same.
func TestLetters_LargerThanPool(t *testing.T) {
	withLetters(t, 1, func(t *testing.T, w *story.World) {
		w.Fetch, w.Batch = 1<<20, 8<<10
		w.Broker.Value = func(k story.Kind, _ int64) []byte {
			if k == story.Poison {
				return append([]byte{byte(k)}, make([]byte, 64<<10)...)
			}
			return []byte{byte(k)}
		}
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		w.Broker.Produce(story.Topic, 0, "rpprrp", "k")
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 0, []int64{0, 3, 4})
		wantLetters(t, w, 0, 1, 2, 5)
	})
}
