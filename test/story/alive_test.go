package story_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/health/liveness"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// wedge is a place where a loop of a member can get stuck: while stuck is set, the loop waits there until end is
// called, without reporting that it waits.
type wedge struct {
	stuck atomic.Bool
	free  chan struct{}
	once  sync.Once
}

// stay blocks the caller while the wedge is stuck.
func (w *wedge) stay() {
	if w.stuck.Load() {
		<-w.free
	}
}

func (w *wedge) end() { w.once.Do(func() { close(w.free) }) }

// stuckDecoder is a decoder whose Add does not return while its wedge is stuck.
type stuckDecoder struct {
	connector.Decoder
	*wedge
}

func (d stuckDecoder) Builder(s connector.Schema) (connector.Builder, error) {
	b, err := d.Decoder.Builder(s)
	return stuckBuilder{b, d.wedge}, err
}

type stuckBuilder struct {
	connector.Builder
	*wedge
}

func (b stuckBuilder) Add(p connector.Partition, r *connector.Record) error {
	b.stay()
	return b.Builder.Add(p, r)
}

// stuckTable is a table whose Stage does not return while its wedge is stuck.
type stuckTable struct {
	*story.Table
	*wedge
}

func (t stuckTable) Stage(ctx context.Context, s *connector.Snapshot, batch string, pieces []connector.Piece, progress func(int, int64)) (*connector.Staged, error) {
	t.stay()
	return t.Table.Stage(ctx, s, batch, pieces, progress)
}

// TestAlive_WedgedLoop expects the liveness check to fail a minute after a loop of the member got stuck, and to name
// that loop first. The check must pass again once the loop continues.
func TestAlive_WedgedLoop(t *testing.T) {
	for _, c := range []struct {
		name string
		// place builds the wedge into the harness.
		place func(h *story.Harness, at *wedge)
		// loops are the loops that may get stuck there.
		loops []string
	}{
		{"lane", func(h *story.Harness, at *wedge) {
			h.Wrap = func(target *connector.Target) { target.Decoder = stuckDecoder{target.Decoder, at} }
		}, []string{"lane 0", "lane 1"}},
		{"writer", func(h *story.Harness, at *wedge) {
			h.Wrap = func(target *connector.Target) { target.Table = stuckTable{target.Table.(*story.Table), at} }
		}, []string{"writer t"}},
		{"reader", func(h *story.Harness, at *wedge) {
			h.PausedBy = func(connector.Partition) *hold.Hold { at.stay(); return nil }
		}, []string{"reader"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := story.NewHarness(3, 2)
				h.Logger = logger()
				at := &wedge{free: make(chan struct{})}
				c.place(h, at)
				p := h.Begin(t.Context())
				defer h.Close()
				defer at.end()
				p.Member.Assign(joined(h, 0, 1))
				h.Broker.Produce(story.Topic, 0, "rrr", "k")
				h.Broker.Produce(story.Topic, 1, "rrr", "k")
				eventually(t, "end", h.AtEnd)
				time.Sleep(time.Hour) // a loop without work counts as alive
				if stalls := h.Stalls(); len(stalls) > 0 {
					t.Fatalf("not alive: %q", stalls)
				}

				h.Wedged.Store(true)
				at.stuck.Store(true)
				h.Broker.Produce(story.Topic, 0, "rrr", "k")
				h.Broker.Produce(story.Topic, 1, "rrr", "k")
				began := time.Now()
				var stalls []liveness.Stall
				for len(stalls) == 0 && time.Since(began) < 10*time.Minute {
					time.Sleep(time.Second)
					stalls = p.Stalls()
				}
				if len(stalls) == 0 || !slices.Contains(c.loops, stalls[0].Loop) {
					t.Fatalf("stalled: %v, want one of %v first", stalls, c.loops)
				}
				if took := time.Since(began); took < time.Minute || took > 75*time.Second {
					t.Errorf("found after %v", took)
				}
				at.stuck.Store(false)
				at.end()
				time.Sleep(2 * time.Second)
				if stalls := p.Stalls(); len(stalls) > 0 {
					t.Errorf("it turns again, and is not alive: %v", stalls)
				}
				eventually(t, "end again", h.AtEnd)
			})
		})
	}
}

// TestAlive_Outage expects that no loop counts as stuck while a dependency is down for hours, and that the member
// continues when the dependency is back.
func TestAlive_Outage(t *testing.T) {
	// hangs makes these steps of the table or the dead-letter topic wait while away is set.
	hangs := func(steps ...string) func(h *story.Harness, away *atomic.Bool) {
		return func(h *story.Harness, away *atomic.Bool) {
			h.Hangs = func(ctx context.Context, step string) {
				for away.Load() && slices.Contains(steps, step) && h.Chance.Pause(ctx, 2*time.Second) == nil {
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		begin func(h *story.Harness, away *atomic.Bool)
		turn  func(h *story.Harness, away bool)
	}{
		{"the store does not answer", hangs("load", "refresh", "put", "put data files", "answer"), nil},
		{"files cannot be put", hangs("put data files"), nil},
		{"commits cannot be put", hangs("put"), nil},
		{"dead letters cannot be written", func(h *story.Harness, away *atomic.Bool) {
			h.Letters = &story.LetterLog{}
			hangs("letters")(h, away)
		}, nil},
		{"Kafka answers no question", nil, func(h *story.Harness, away bool) {
			h.Broker.Flaky.Store(map[bool]int64{true: 1}[away])
		}},
		{"an operator paused it", nil, func(h *story.Harness, away bool) {
			if away {
				h.Pauses.Pause(0, 1)
				return
			}
			h.Pauses.Resume(0, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			scenario(t, 2, func(t *testing.T, h *story.Harness) {
				var gone atomic.Bool
				if c.begin != nil {
					c.begin(h, &gone)
				}
				away := func(is bool) {
					if gone.Store(is); c.turn != nil {
						c.turn(h, is)
					}
				}
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				h.Broker.Produce(story.Topic, 0, "rrrtrr", "k")
				h.Broker.Produce(story.Topic, 1, "rrr", "k")
				eventually(t, "end", h.AtEnd)
				away(true)
				time.Sleep(time.Second)
				kinds := "rrrrrr"
				if h.Letters != nil {
					kinds = "rrprrr"
				}
				h.Broker.Produce(story.Topic, 0, kinds, "k")
				time.Sleep(2 * time.Second)
				// The claim is lost and assigned again, so that the member must look up its position.
				p.Member.Assign(joined(h, 0))
				time.Sleep(time.Second)
				p.Member.Assign(joined(h, 0, 1))
				h.Broker.Produce(story.Topic, 1, kinds, "k")
				time.Sleep(5 * time.Hour)
				if h.AtEnd() {
					t.Error("nothing was away")
				}
				away(false)
				eventually(t, "end again", h.AtEnd)
			})
		})
	}
}
