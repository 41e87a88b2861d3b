package story_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/test/story"
)

func holdOfClaim(p *story.Process, id int) *hold.Hold { return p.Connector.Status().Claims[id].Hold }

func TestPause_Resume(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "end", w.AtEnd)
		w.Pauses.Pause(0)
		since := time.Now()
		time.Sleep(story.HearsOfPauses)
		synctest.Wait()
		if h := holdOfClaim(p, 0); h == nil || h.Reason != hold.Paused || h.Offset != 3 || !h.Since.Equal(since) || !strings.Contains(h.Detail, "ada") {
			t.Errorf("the hold is %+v", h)
		}
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		w.Broker.Produce(story.Topic, 1, "rr", "k")
		eventually(t, "the other partition at its end", func() bool { return w.Position(1) == 2 })
		for range 60 {
			time.Sleep(time.Minute)
			if at := w.Position(0); at != 3 {
				t.Fatalf("the paused partition moved to %d", at)
			}
			wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		}
		if c := p.Connector.Status().Claims[0]; c.Lag != 3 || c.Position != 3 || !c.Hold.Since.Equal(since) {
			t.Errorf("a paused claim must show its lag: %+v", c)
		}
		w.Pauses.Resume(0)
		began := time.Now()
		eventually(t, "end again", w.AtEnd)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it went on after %v", took)
		}
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, w, 0, w.Want(0, 0, 6))
	})
}

// TestPause_CommitsAtOnce: records read before a pause are committed at once, not when the batch is due.
func TestPause_CommitsAtOnce(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.Every = time.Hour
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "initial commit", func() bool { return len(w.Started()) == 2 })
		w.Broker.Produce(story.Topic, 0, "rrcr", "k")
		eventually(t, "read", func() bool { return p.Connector.Status().Claims[0].Next == 4 })
		w.Pauses.Pause(0)
		time.Sleep(10 * time.Second)
		if at := w.Position(0); at != 4 {
			t.Errorf("ten seconds after the pause the position is %d, 4 were read", at)
		}
		if h := holdOfClaim(p, 0); h == nil || h.Offset != 4 {
			t.Errorf("held as %+v", h)
		}
		w.Pauses.Resume(0)
		w.Broker.Produce(story.Topic, 0, "r", "k")
		eventually(t, "read on", func() bool { return p.Connector.Status().Claims[0].Next == 5 })
		w.Stop(p)
		wantRows(t, w, 0, []int64{0, 1, 3, 4})
	})
}

// TestPause_EndsAtOnce: the pause ends before the records read before it are committed.
func TestPause_EndsAtOnce(t *testing.T) {
	for seed := range uint64(30) {
		seeded(t, seed, 1, func(t *testing.T, w *story.World) {
			var log strings.Builder
			w.Logger = slog.New(slog.NewTextHandler(&log, nil))
			w.Broken = func(step string) error { // commits are slow
				if step == "stage" {
					time.Sleep(time.Duration(w.Chance.N(3000)) * time.Millisecond)
				}
				return nil
			}
			defer func() { // the members have ended
				w.Close()
				if strings.Contains(log.String(), "FENCED") {
					t.Errorf("seed %d: what was read was dropped\n%s", seed, &log)
				}
			}()
			p := w.Begin(t.Context())
			p.Member.Assign(joined(w, 0))
			for range 10 {
				w.Broker.Produce(story.Topic, 0, "rrrr", "k")
				time.Sleep(time.Duration(w.Chance.N(900)) * time.Millisecond)
				w.Pauses.Pause(0)
				time.Sleep(time.Duration(w.Chance.N(900)) * time.Millisecond)
				w.Pauses.Resume(0)
			}
			eventually(t, "end", w.AtEnd)
			wantHolds(t, p, map[int32]hold.Reason{})
			wantRows(t, w, 0, w.Want(0, 0, 40))
		})
	}
}

func TestPause_AssignedWhilePaused(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.Broker.Paused = func(id int32) (time.Time, bool) { // from the start
			_, paused := w.Pauses.Since(id)
			return time.Time{}, paused
		}
		w.Pauses.Pause(0)
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		w.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "the other partition at its end", func() bool { return w.Position(1) == 3 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		for range 10 { // rebalances
			p.Member.Assign(connector.Assignment{Joined: false})
			p.Member.Assign(joined(w, 1))
			p.Member.Assign(joined(w, 0, 1))
			time.Sleep(time.Minute)
		}
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		if at := w.Position(0); at != 0 {
			t.Errorf("it is at %d, want its initial position", at)
		}
		for _, v := range w.Broker.Violations() {
			t.Error(v)
		}
		w.Pauses.Resume(0)
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 0, []int64{0, 1, 2})
	})
}

// TestPause_FindingsWait: findings wait for the end of a pause, and so do positions that an operator sets
// meanwhile.
func TestPause_FindingsWait(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.Broker.Produce(story.Topic, 0, "rrprr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
		w.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		w.Broker.Change(story.Topic, 0, 3, -1)
		time.Sleep(10 * time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		w.Pauses.Resume(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.BehindLogStart})
		w.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		w.Log.Append(story.Version{Commit: w.Forged(0, 4)})
		eventually(t, "the position is seen", func() bool { return holdOfClaim(p, 0).Offset == 4 })
		wantRows(t, w, 0, []int64{0, 1})
		w.Pauses.Resume(0)
		eventually(t, "end", w.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, w, 0, []int64{0, 1, 4})
	})
}

// TestPause_FindingsDelayNone: no other claim waits for the confirmation of a paused claim's finding.
func TestPause_FindingsDelayNone(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "initial commit", func() bool { return len(w.Started()) == 2 })
		w.Pauses.Pause(0)
		w.Log.Append(story.Version{Commit: w.Forged(0, 99)}) // ahead of the log's end
		for produced := range int64(200) {
			if at := w.Position(1); at < produced-4 {
				t.Fatalf("%d were produced in as many seconds, and the position is %d", produced, at)
			}
			w.Broker.Produce(story.Topic, 1, "r", "k")
			time.Sleep(time.Second)
		}
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
	})
}

// TestPause_TableDown: the claim stays paused; its records are read again.
func TestPause_TableDown(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		denied := make(chan struct{})
		started := false
		w.Broken = func(step string) error {
			select {
			case <-denied:
				return nil
			default:
			}
			if step == "refresh" && started {
				return hold.New(hold.StoreDenied, "403", nil)
			}
			started = started || step == "answer"
			return nil
		}
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "held", func() bool { return p.Holds()[0] == hold.StoreDenied })
		w.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused, 1: hold.StoreDenied})
		time.Sleep(5 * time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused, 1: hold.StoreDenied})
		close(denied)
		w.Broker.Produce(story.Topic, 1, "r", "k")
		eventually(t, "the other partition at its end", func() bool { return w.Position(1) == 1 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		w.Pauses.Resume(0)
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 0, []int64{0, 1, 2})
	})
}

// TestPause_EndsWhileTableDown: the pause becomes the hold of the table.
func TestPause_EndsWhileTableDown(t *testing.T) {
	scene(t, 1, func(t *testing.T, w *story.World) {
		var denied atomic.Bool
		w.Broken = func(string) error {
			if denied.Load() {
				return hold.New(hold.StoreDenied, "403", nil)
			}
			return nil
		}
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		eventually(t, "end", w.AtEnd)
		w.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		w.Broker.Produce(story.Topic, 0, "r", "k")
		denied.Store(true)
		w.Pauses.Resume(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.StoreDenied})
		denied.Store(false)
		eventually(t, "end again", w.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, w, 0, []int64{0, 1, 2, 3})
	})
}

func TestUntilCurrent_Paused(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.UntilCurrent = true
		w.Pauses.Pause(0)
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		w.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		w.Done(p)
		if got := p.Holds(); !maps.Equal(got, map[int32]hold.Reason{0: hold.Paused}) {
			t.Errorf("ended with holds %v", got)
		}
		wantRows(t, w, 0, nil)
		wantRows(t, w, 1, []int64{0, 1, 2})
	})
}

// TestUntilCurrent_PausedElsewhere: the partition is another member's, and no member reads it.
func TestUntilCurrent_PausedElsewhere(t *testing.T) {
	scene(t, 3, func(t *testing.T, w *story.World) {
		w.UntilCurrent = true
		w.Pauses.Pause(0, 2)
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		w.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 1))
		w.Done(p)
		left := p.Connector.Status().Left
		if len(left) != 1 || left[0].Partition.ID != 0 || left[0].Reason != hold.Paused || left[0].Offset != 0 {
			t.Errorf("ended with %+v, want partition 0 left: 2 is paused and at its end", left)
		}
		wantRows(t, w, 1, []int64{0, 1, 2})
	})
}

// TestSchedules_Pauses: in every schedule, while all is paused and what was read before is committed, no position
// moves. Afterwards each record is in the table once. The broker checks that paused partitions are not fetched.
func TestSchedules_Pauses(t *testing.T) {
	stood := 0
	for s := uint64(1); s <= uint64(*seeds)/3 && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			w := story.NewWorld(s, 3)
			disturb(t, w, func() {
				w.Pauses.Pause(0, 1, 2)
				time.Sleep(30 * time.Second)
				before := []int64{w.Position(0), w.Position(1), w.Position(2)}
				w.Broker.Produce(story.Topic, 0, "rr", "k")
				time.Sleep(3 * time.Minute)
				if after := []int64{w.Position(0), w.Position(1), w.Position(2)}; !slices.Equal(after, before) {
					// A claim without an owner may have got its initial commit.
					for id, at := range after {
						if before[id] != at && before[id] != -1 {
							t.Errorf("seed %d: paused, and the positions moved from %v to %v\n%s", s, before, after, history(w))
						}
					}
				}
				stood++
				w.Pauses.Resume(0, 1, 2)
			})
			calm(t, w, s)
			w.Close()
			for _, v := range w.Broker.Violations() {
				t.Errorf("seed %d: %s", s, v)
			}
			if broken := judge(w, versionsOf(w)); broken != "" {
				t.Errorf("seed %d: %s\n%s", s, broken, history(w))
			}
			starts := w.Started()
			for id := range int32(3) {
				if got, want := w.Rows(id), w.Want(id, starts[id], 1<<40); !slices.Equal(got, want) {
					t.Errorf("seed %d: partition %d has rows %v, want %v\n%s", s, id, got, want, history(w))
				}
			}
		})
	}
	t.Logf("stood still %d times", stood)
}
