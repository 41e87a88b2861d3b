package story_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/test/story"
)

func moves(h *story.Harness, all ...plan.Move) *plan.Moves {
	return &plan.Moves{
		Moved:    connector.Moved{Command: "offsets set", Operator: "operator", Reason: "a test"},
		Pipeline: story.Pipeline, TableID: "table-1", Moves: all,
	}
}

func move(h *story.Harness, id int32, from, next int64) plan.Move {
	return plan.Move{Partition: h.Broker.Partitions(story.Topic)[id], From: from, Next: next}
}

// TestMove_BesideRunningMember moves a position backwards and forwards while a member commits. The member must continue
// from each new position.
func TestMove_BesideRunningMember(t *testing.T) {
	for seed := range uint64(20) {
		seeded(t, seed, 2, func(t *testing.T, h *story.Harness) {
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0, 1))
			eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
			won := 0
			for range 8 {
				h.Broker.Produce(story.Topic, 0, "rrrrr", "k")
				h.Broker.Produce(story.Topic, 1, "rrr", "k")
				time.Sleep(time.Duration(h.Chance.N(3000)) * time.Millisecond)
				from, end := h.Position(0), len(h.Broker.Kinds(story.Topic, 0))
				next := int64(h.Chance.N(end + 1))
				switch _, err := commit.Move(t.Context(), h.Operator(), moves(h, move(h, 0, from, next))); {
				case err == nil:
					won++
				case classify.Of(err) != classify.Fenced:
					t.Fatal(err)
				}
			}
			if won == 0 {
				t.Error("no move was won")
			}
			eventually(t, "end", h.AtEnd)
			// Each commit must start at the position that the commit before it has set.
			at, want := int64(-1), []int64(nil)
			for _, v := range h.Log.Versions() {
				for _, r := range v.Commit.Ranges {
					if r.Partition != 0 {
						continue
					}
					if r.From != at {
						t.Errorf("a commit starts at %d, the position was %d\n%s", r.From, at, history(h))
					}
					if v.Commit.Moved == nil {
						want = append(want, h.Want(0, r.From, r.Next)...)
					}
					at = r.Next
				}
			}
			wantRows(t, h, 0, want)
			wantRows(t, h, 1, h.Want(1, 0, 1<<40))
		})
	}
}

// TestRecheck_Requested moves the position of an idle or held claim. The member must continue at the new position
// within 5 s if an operator requests a check, otherwise within about a minute.
func TestRecheck_Requested(t *testing.T) {
	for name, asks := range map[string]bool{"asked": true, "not asked": false} {
		for _, state := range []string{"idle", "held"} {
			t.Run(name+"/"+state, func(t *testing.T) {
				scenario(t, 1, func(t *testing.T, h *story.Harness) {
					var asked atomic.Int64
					h.Asked = func(connector.Partition) int64 { return asked.Load() }
					h.Broker.Produce(story.Topic, 0, "rrrr", "k")
					p := h.Begin(t.Context())
					p.Member.Assign(joined(h, 0))
					eventually(t, "end", h.AtEnd)
					if state == "held" {
						h.Broker.Change(story.Topic, 0, 6, -1)
						h.Broker.Produce(story.Topic, 0, "rrrr", "k")
						eventually(t, "it is held", func() bool { return holdOfClaim(p, 0) != nil })
					}
					time.Sleep(90 * time.Second) // after this time only the check each minute can find a move
					from, next := h.Position(0), int64(2)
					if state == "held" {
						next = 6
					}
					if _, err := commit.Move(t.Context(), h.Operator(), moves(h, move(h, 0, from, next))); err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					if asks {
						asked.Add(1)
					}
					eventually(t, "it goes on", h.AtEnd)
					if took := time.Since(began); asks != (took < 5*time.Second) || took > 70*time.Second {
						t.Errorf("it went on after %v", took)
					}
				})
			})
		}
	}
}

// TestMove_ComparesWhatWasShown expects a command's moves to be refused if one position, or the table, is not what the
// operator saw. Otherwise all moves must be in one commit.
func TestMove_ComparesWhatWasShown(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		h.Broker.Produce(story.Topic, 1, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		h.Stop(p)
		before := len(h.Log.Versions())
		for name, m := range map[string]*plan.Moves{
			"another position":      moves(h, move(h, 0, 4, 2), move(h, 1, 3, 2)),
			"no position":           moves(h, move(h, 0, 4, 2), move(h, 1, -1, 2)),
			"another table":         {Moved: connector.Moved{Command: "c"}, Pipeline: story.Pipeline, TableID: "table-0", Moves: []plan.Move{move(h, 0, 4, 2)}},
			"one that is not there": {Moved: connector.Moved{Command: "c"}, Pipeline: "other", TableID: "table-1", Moves: []plan.Move{move(h, 0, 4, 2)}},
		} {
			if _, err := commit.Move(t.Context(), h.Operator(), m); classify.Of(err) != classify.Fenced {
				t.Errorf("%s: %v, want a fence", name, err)
			}
		}
		if n := len(h.Log.Versions()); n != before {
			t.Errorf("%d versions were written", n-before)
		}
		s, err := commit.Move(t.Context(), h.Operator(), moves(h, move(h, 0, 4, 2), move(h, 1, 4, 0)))
		if err != nil || h.Position(0) != 2 || h.Position(1) != 0 {
			t.Fatal(s, err)
		}
		last := h.Log.Versions()[before]
		if c := last.Commit; c.Operation != "SLUICE OFFSETS" || c.Moved == nil || *c.Moved != (connector.Moved{Command: "offsets set", Operator: "operator", Reason: "a test"}) ||
			!slices.Equal(c.Ranges, []connector.Range{{Topic: story.Topic, Partition: 0, From: 4, Next: 2, Epoch: -1}, {Topic: story.Topic, Partition: 1, From: 4, Next: 0, Epoch: -1}}) {
			t.Errorf("%+v", c)
		}
	})
}

// TestMove_BesideInitialCommit runs an operator's move beside a member's initial commit. If the move commits first, the
// member must start at the positions of the move. Otherwise the move must be refused.
func TestMove_BesideInitialCommit(t *testing.T) {
	byOperator, byMember := 0, 0
	for seed := range uint64(40) {
		seeded(t, seed, 2, func(t *testing.T, h *story.Harness) {
			h.Broker.Produce(story.Topic, 0, "rrrr", "k")
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0, 1))
			time.Sleep(time.Duration(h.Chance.N(300)) * time.Millisecond)
			m := moves(h, move(h, 0, -1, 2), move(h, 1, -1, 0))
			m.Accept = true
			_, err := commit.Move(t.Context(), h.Operator(), m)
			eventually(t, "end", h.AtEnd)
			if !h.Marked("table-1") {
				t.Error("the table is not marked")
			}
			switch {
			case err == nil:
				byOperator++
				wantRows(t, h, 0, []int64{2, 3})
			case classify.Of(err) == classify.Fenced:
				byMember++
				wantRows(t, h, 0, []int64{0, 1, 2, 3})
			default:
				t.Error(err)
			}
		})
	}
	if byOperator == 0 || byMember == 0 {
		t.Errorf("the operator was first %d times, the member %d times: want both", byOperator, byMember)
	}
}

// TestMove_AcceptsReplacedTable expects a move in a replaced table to be refused unless it accepts the table. Then it
// must end the holds.
func TestMove_AcceptsReplacedTable(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		h.Log.Replace("table-2")
		wantHolds(t, p, map[int32]hold.Reason{0: hold.TableReplaced, 1: hold.TableReplaced})
		m := moves(h, move(h, 0, 4, 0), move(h, 1, 0, 0))
		m.TableID = "table-2"
		held := (*hold.Error)(nil)
		if _, err := commit.Move(t.Context(), h.Operator(), m); !errors.As(err, &held) || held.Reason != hold.TableReplaced {
			t.Fatalf("%v, want the hold table_replaced", err)
		}
		m.Accept = true
		if _, err := commit.Move(t.Context(), h.Operator(), m); err != nil {
			t.Fatal(err)
		}
		wantHolds(t, p, map[int32]hold.Reason{})
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 0, 1, 2, 3})
	})
}

// TestMove_StartOverHistory has a topic whose history forbids an initial commit. An operator must be able to start it
// by setting positions for this pipeline, cluster and topic id.
func TestMove_StartOverHistory(t *testing.T) {
	for name, past := range map[string]func(h *story.Harness, here connector.Partition) connector.Txn{
		"another pipeline": func(_ *story.Harness, p connector.Partition) connector.Txn {
			return connector.Txn{AppID: p.AppID("other"), Version: 2}
		},
		"another topic id": func(_ *story.Harness, p connector.Partition) connector.Txn {
			p.TopicID[15] = 9
			return connector.Txn{AppID: p.AppID(story.Pipeline), Version: 2}
		},
		"another cluster": func(_ *story.Harness, p connector.Partition) connector.Txn {
			p.Cluster = "elsewhere"
			return connector.Txn{AppID: p.AppID(story.Pipeline), Version: 2}
		},
		"a group offset": func(h *story.Harness, _ connector.Partition) connector.Txn {
			h.Broker.SetGroupOffset(story.Topic, 0, 1)
			return connector.Txn{AppID: "of another program", Version: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 2, func(t *testing.T, h *story.Harness) {
				h.Broker.Produce(story.Topic, 0, "rrrr", "k")
				h.Broker.Produce(story.Topic, 1, "rr", "k")
				txn := past(h, h.Broker.Partitions(story.Topic)[0])
				h.Log.Append(story.Version{Commit: connector.Commit{Txns: []connector.Txn{{AppID: idempotency.TableAppID(story.Pipeline, "table-1")}, txn}}})
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "both hold", func() bool { return len(p.Holds()) == 2 })
				m := moves(h, move(h, 0, -1, 3), move(h, 1, -1, 0))
				m.Accept = true
				if _, err := commit.Move(t.Context(), h.Operator(), m); err != nil {
					t.Fatal(err)
				}
				wantHolds(t, p, map[int32]hold.Reason{})
				eventually(t, "end", h.AtEnd)
				wantRows(t, h, 0, []int64{3})
				wantRows(t, h, 1, []int64{0, 1})
			})
		})
	}
}

// TestMove_UnknownOutcome cancels moves. A move that returns ErrUndecided may or may not take effect. A move that
// returns another error must have no effect.
func TestMove_UnknownOutcome(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		h.Stop(p)
		undecided := 0
		for range 30 {
			at := h.Position(0)
			next := 3 - at%2
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(h.Chance.N(700))*time.Millisecond)
			_, err := commit.Move(ctx, h.Operator(), moves(h, move(h, 0, at, next)))
			cancel()
			if errors.Is(err, connector.ErrUndecided) {
				undecided++
			}
			time.Sleep(time.Minute)
			if now := h.Position(0); err == nil && now != next || err != nil && !errors.Is(err, connector.ErrUndecided) && now != at {
				t.Fatalf("from %d to %d: %v, and the position is %d", at, next, err, now)
			}
		}
		if undecided == 0 {
			t.Error("every outcome was known")
		}
	})
}

// TestReplacedTable_TakesNoRows replaces a table and keeps its txns. The check of a single paused claim is the first to
// find the new table. The other claim must be held, too, before it commits rows.
func TestReplacedTable_TakesNoRows(t *testing.T) {
	for _, idle := range []bool{false, true} {
		scenario(t, 2, func(t *testing.T, h *story.Harness) {
			h.Every = 5 * time.Minute
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0, 1))
			eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
			h.Pauses.Pause(0) // the member checks only the paused claim each minute
			if !idle {
				h.Broker.Produce(story.Topic, 1, "r", "k")
			}
			time.Sleep(90 * time.Second)
			h.Log.Replace("table-2")
			versions := len(h.Log.Versions())
			time.Sleep(3 * time.Minute)
			if idle {
				h.Broker.Produce(story.Topic, 1, "r", "k")
			}
			wantHolds(t, p, map[int32]hold.Reason{0: hold.Paused, 1: hold.TableReplaced})
			if n := len(h.Log.Versions()); n != versions {
				t.Errorf("idle %v: %d versions of a table that no operator accepted\n%s", idle, n-versions, history(h))
			}
		})
	}
}
