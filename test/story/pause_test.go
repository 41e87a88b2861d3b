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
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		h.Pauses.Pause(0)
		since := time.Now()
		time.Sleep(story.HearsOfPauses)
		synctest.Wait()
		if h := holdOfClaim(p, 0); h == nil || h.Reason != hold.Paused || h.Offset != 3 || !h.Since.Equal(since) || !strings.Contains(h.Detail, "ada") {
			t.Errorf("the hold is %+v", h)
		}
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		eventually(t, "the other partition at its end", func() bool { return h.Position(1) == 2 })
		for range 60 {
			time.Sleep(time.Minute)
			if at := h.Position(0); at != 3 {
				t.Fatalf("the paused partition moved to %d", at)
			}
			wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		}
		if c := p.Connector.Status().Claims[0]; c.Lag != 3 || c.Position != 3 || !c.Hold.Since.Equal(since) {
			t.Errorf("a paused claim must show its lag: %+v", c)
		}
		h.Pauses.Resume(0)
		began := time.Now()
		eventually(t, "end again", h.AtEnd)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it went on after %v", took)
		}
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, h.Want(0, 0, 6))
	})
}

// TestFlush_CommitsAtOnce requests a flush. A member must commit the records that it has read at once, do so only once,
// and continue to read. A flush that was requested before a member began must have no effect on that member.
func TestFlush_CommitsAtOnce(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		var flushes atomic.Int64
		h.Every, h.Flushes = time.Hour, func(connector.Partition) int64 { return flushes.Load() }
		flushes.Store(1) // before the member
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		h.Broker.Produce(story.Topic, 0, "rrcr", "k")
		eventually(t, "read", func() bool { return p.Connector.Status().Claims[0].Next == 4 })
		time.Sleep(time.Minute)
		if at := h.Position(0); at != 0 || len(p.Connector.Status().Flushes) > 0 {
			t.Fatalf("position %d, %+v", at, p.Connector.Status().Flushes)
		}
		flushes.Store(2)
		began := time.Now()
		eventually(t, "committed", func() bool { return h.Position(0) == 4 })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("committed after %v", took)
		}
		if all := p.Connector.Status().Flushes; len(all) != 1 || all[0].Request != 2 || all[0].State != connector.FlushSealed || all[0].Offsets != 4 {
			t.Errorf("%+v", all)
		}
		h.Broker.Produce(story.Topic, 0, "r", "k")
		eventually(t, "read on", func() bool { return p.Connector.Status().Claims[0].Next == 5 })
		time.Sleep(time.Minute)
		if at := h.Position(0); at != 4 {
			t.Errorf("a flush was done twice: position %d", at)
		}
	})
}

// TestPause_CommitsAtOnce expects that records read before a pause are committed at once, not when the batch is due.
func TestPause_CommitsAtOnce(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Every = time.Hour
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		h.Broker.Produce(story.Topic, 0, "rrcr", "k")
		eventually(t, "read", func() bool { return p.Connector.Status().Claims[0].Next == 4 })
		h.Pauses.Pause(0)
		time.Sleep(10 * time.Second)
		if at := h.Position(0); at != 4 {
			t.Errorf("ten seconds after the pause the position is %d, 4 were read", at)
		}
		if h := holdOfClaim(p, 0); h == nil || h.Offset != 4 {
			t.Errorf("held as %+v", h)
		}
		h.Pauses.Resume(0)
		h.Broker.Produce(story.Topic, 0, "r", "k")
		eventually(t, "read on", func() bool { return p.Connector.Status().Claims[0].Next == 5 })
		h.Stop(p)
		wantRows(t, h, 0, []int64{0, 1, 3, 4})
	})
}

// TestPause_EndsAtOnce ends each pause before the records that were read before the pause are committed. These records
// must not be dropped and read again.
func TestPause_EndsAtOnce(t *testing.T) {
	for seed := range uint64(30) {
		seeded(t, seed, 1, func(t *testing.T, h *story.Harness) {
			var log strings.Builder
			h.Logger = slog.New(slog.NewTextHandler(&log, nil))
			h.Broken = func(step string) error { // commits are slow
				if step == "stage" {
					time.Sleep(time.Duration(h.Chance.N(3000)) * time.Millisecond)
				}
				return nil
			}
			defer func() { // read after the members have ended, when the log is complete
				h.Close()
				if strings.Contains(log.String(), "FENCED") {
					t.Errorf("seed %d: what was read was dropped\n%s", seed, &log)
				}
			}()
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0))
			for range 10 {
				h.Broker.Produce(story.Topic, 0, "rrrr", "k")
				time.Sleep(time.Duration(h.Chance.N(900)) * time.Millisecond)
				h.Pauses.Pause(0)
				time.Sleep(time.Duration(h.Chance.N(900)) * time.Millisecond)
				h.Pauses.Resume(0)
			}
			eventually(t, "end", h.AtEnd)
			wantHolds(t, p, map[int32]hold.Reason{})
			wantRows(t, h, 0, h.Want(0, 0, 40))
		})
	}
}

func TestPause_AssignedWhilePaused(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Paused = func(id int32) (time.Time, bool) { // a fetch of a paused partition is a violation from the start of the pause on
			_, paused := h.Pauses.Since(id)
			return time.Time{}, paused
		}
		h.Pauses.Pause(0)
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "the other partition at its end", func() bool { return h.Position(1) == 3 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		for range 10 { // rebalances
			p.Member.Assign(connector.Assignment{Joined: false})
			p.Member.Assign(joined(h, 1))
			p.Member.Assign(joined(h, 0, 1))
			time.Sleep(time.Minute)
		}
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		if at := h.Position(0); at != 0 {
			t.Errorf("it is at %d, want its initial position", at)
		}
		for _, v := range h.Broker.Violations() {
			t.Error(v)
		}
		h.Pauses.Resume(0)
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2})
	})
}

// TestPause_FindingsWait expects a paused claim to stay paused even if a check of it has a finding. When the pause
// ends, the claim must be held for the finding. If an operator has set a position meanwhile, the claim must continue
// there.
func TestPause_FindingsWait(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrprr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
		h.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		h.Broker.Change(story.Topic, 0, 3, -1)
		time.Sleep(10 * time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		h.Pauses.Resume(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.BehindLogStart})
		h.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		h.Log.Append(story.Version{Commit: h.Forged(0, 4)})
		eventually(t, "the position is seen", func() bool { return holdOfClaim(p, 0).Offset == 4 })
		wantRows(t, h, 0, []int64{0, 1})
		h.Pauses.Resume(0)
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1, 4})
	})
}

// TestPause_FindingsDelayNone expects other claims to commit as usual while checks of a paused claim find that its
// position is not in its log.
func TestPause_FindingsDelayNone(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		h.Pauses.Pause(0)
		h.Log.Append(story.Version{Commit: h.Forged(0, 99)}) // this position is after the end of the log
		for produced := range int64(200) {
			if at := h.Position(1); at < produced-4 {
				t.Fatalf("%d were produced in as many seconds, and the position is %d", produced, at)
			}
			h.Broker.Produce(story.Topic, 1, "r", "k")
			time.Sleep(time.Second)
		}
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
	})
}

// TestPause_TableDown pauses a claim that is held because its table denies access. The claim must be paused until the
// operator resumes it, and then its uncommitted records must be read again.
func TestPause_TableDown(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		denied := make(chan struct{})
		started := false
		h.Broken = func(step string) error {
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
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "held", func() bool { return p.Holds()[0] == hold.StoreDenied })
		h.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused, 1: hold.StoreDenied})
		time.Sleep(5 * time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused, 1: hold.StoreDenied})
		close(denied)
		h.Broker.Produce(story.Topic, 1, "r", "k")
		eventually(t, "the other partition at its end", func() bool { return h.Position(1) == 1 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		h.Pauses.Resume(0)
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2})
	})
}

// TestPause_EndsWhileTableDown ends a pause while the table denies access. The claim must then be held because access
// is denied, and must continue by itself once the table allows access.
func TestPause_EndsWhileTableDown(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		var denied atomic.Bool
		h.Broken = func(string) error {
			if denied.Load() {
				return hold.New(hold.StoreDenied, "403", nil)
			}
			return nil
		}
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		h.Pauses.Pause(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused})
		h.Broker.Produce(story.Topic, 0, "r", "k")
		denied.Store(true)
		h.Pauses.Resume(0)
		wantHolds(t, p, map[int32]hold.Reason{0: hold.StoreDenied})
		denied.Store(false)
		eventually(t, "end again", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1, 2, 3})
	})
}

func TestUntilCurrent_Paused(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.UntilCurrent = true
		h.Pauses.Pause(0)
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		h.Done(p)
		if got := p.Holds(); !maps.Equal(got, map[int32]hold.Reason{0: hold.Paused}) {
			t.Errorf("ended with holds %v", got)
		}
		wantRows(t, h, 0, nil)
		wantRows(t, h, 1, []int64{0, 1, 2})
	})
}

// TestUntilCurrent_PausedElsewhere expects a run until current to end although a paused partition, which the member
// does not own, has records that are not in the table. The status must name that partition.
func TestUntilCurrent_PausedElsewhere(t *testing.T) {
	scenario(t, 3, func(t *testing.T, h *story.Harness) {
		h.UntilCurrent = true
		h.Pauses.Pause(0, 2)
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 1))
		h.Done(p)
		left := p.Connector.Status().Left
		if len(left) != 1 || left[0].Partition.ID != 0 || left[0].Reason != hold.Paused || left[0].Offset != 0 {
			t.Errorf("ended with %+v, want partition 0 left: 2 is paused and at its end", left)
		}
		wantRows(t, h, 1, []int64{0, 1, 2})
	})
}

// TestSchedules_Pauses is TestSchedules with times in which all partitions are paused. From 30 s after the start of a
// pause until its end no position must move. The broker checks that paused partitions are not fetched.
func TestSchedules_Pauses(t *testing.T) {
	stood := 0
	for s := uint64(1); s <= uint64(*seeds)/3 && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			h := story.NewHarness(s, 3)
			disturb(t, h, func() {
				h.Pauses.Pause(0, 1, 2)
				time.Sleep(30 * time.Second)
				before := []int64{h.Position(0), h.Position(1), h.Position(2)}
				h.Broker.Produce(story.Topic, 0, "rr", "k")
				time.Sleep(3 * time.Minute)
				if after := []int64{h.Position(0), h.Position(1), h.Position(2)}; !slices.Equal(after, before) {
					// The initial commit of a partition is allowed: it adds no rows.
					for id, at := range after {
						if before[id] != at && before[id] != -1 {
							t.Errorf("seed %d: paused, and the positions moved from %v to %v\n%s", s, before, after, history(h))
						}
					}
				}
				stood++
				h.Pauses.Resume(0, 1, 2)
			})
			calm(t, h, s)
			h.Close()
			for _, v := range h.Broker.Violations() {
				t.Errorf("seed %d: %s", s, v)
			}
			if broken := judge(h, versionsOf(h)); broken != "" {
				t.Errorf("seed %d: %s\n%s", s, broken, history(h))
			}
			starts := h.Started()
			for id := range int32(3) {
				if got, want := h.Rows(id), h.Want(id, starts[id], 1<<40); !slices.Equal(got, want) {
					t.Errorf("seed %d: partition %d has rows %v, want %v\n%s", s, id, got, want, history(h))
				}
			}
		})
	}
	t.Logf("stood still %d times", stood)
}
