package story_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// scenario runs a test in virtual time, under the schedule of seed 7. It closes the harness and fails the test if a
// loop of a member got stuck.
func scenario(t *testing.T, partitions int, play func(t *testing.T, h *story.Harness)) {
	t.Helper()
	seeded(t, 7, partitions, play)
}

// seeded is scenario under the schedule of a seed.
func seeded(t *testing.T, seed uint64, partitions int, play func(t *testing.T, h *story.Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := story.NewHarness(seed, partitions)
		defer func() {
			h.Close()
			for _, s := range h.Stalls() {
				t.Error(s)
			}
		}()
		play(t, h)
	})
}

func joined(h *story.Harness, ids ...int) connector.Assignment {
	a := connector.Assignment{Joined: true}
	for _, id := range ids {
		a.Partitions = append(a.Partitions, h.Broker.Partitions(story.Topic)[id])
	}
	return a
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 1800 {
		if cond() {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("half an hour and not yet: %s", what)
}

func wantRows(t *testing.T, h *story.Harness, id int32, want []int64) {
	t.Helper()
	if got := h.Rows(id); !slices.Equal(got, want) {
		t.Errorf("partition %d has rows %v, want %v\n%s", id, got, want, history(h))
	}
}

func wantHolds(t *testing.T, p *story.Process, want map[int32]hold.Reason) {
	t.Helper()
	eventually(t, "holds as they should be", func() bool { return maps.Equal(p.Holds(), want) })
}

func TestStart_OneCommit(t *testing.T) {
	scenario(t, 3, func(t *testing.T, h *story.Harness) {
		for id := range int32(3) {
			h.Broker.Produce(story.Topic, id, "rrr", "k")
		}
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 1)) // the initial commit must have set the positions of the other partitions, too
		eventually(t, "partition 1 at its end", func() bool { return h.Position(1) == 3 })
		if got, want := h.Started(), map[int32]int64{0: 0, 1: 0, 2: 0}; !maps.Equal(got, want) {
			t.Errorf("started %v, want %v", got, want)
		}
	})
}

func TestStart_Latest(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Start = connector.Start{Policy: connector.StartLatest}
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		h.Broker.Produce(story.Topic, 1, "r", "k")
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{3, 4})
		wantRows(t, h, 1, []int64{0})
	})
}

func TestStart_TwoMembers(t *testing.T) {
	scenario(t, 4, func(t *testing.T, h *story.Harness) {
		h.Start = connector.Start{Policy: connector.StartLatest}
		a, b := h.Begin(t.Context()), h.Begin(t.Context())
		a.Member.Assign(joined(h, 0, 1))
		b.Member.Assign(joined(h, 2, 3))
		for range 20 { // the end of the log moves while the members read it
			h.Broker.Produce(story.Topic, int32(h.Chance.N(4)), "r", "k")
			time.Sleep(20 * time.Millisecond)
		}
		eventually(t, "end", h.AtEnd)
		starts := 0
		for _, v := range h.Log.Versions() {
			if v.Commit.Operation == "SLUICE START" {
				starts++
			}
		}
		if starts != 1 {
			t.Errorf("%d START commits, want 1\n%s", starts, history(h))
		}
		for id, from := range h.Started() {
			wantRows(t, h, id, h.Want(id, from, 1<<40))
		}
	})
}

func TestStart_AddedPartition(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Start = connector.Start{Policy: connector.StartLatest}
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
		h.Broker.Create(story.Topic, 1, 2) // creates the topic with the same id and one more partition
		h.Broker.Produce(story.Topic, 1, "rrr", "k")
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 1, []int64{0, 1, 2})
	})
}

// TestNoTxnIsNotFirstStart has claims without a txn of this table, and a history that forbids an initial commit. The
// claims must be held with the reason that fits the history.
func TestNoTxnIsNotFirstStart(t *testing.T) {
	here := func(h *story.Harness) connector.Partition { return h.Broker.Partitions(story.Topic)[0] }
	txn := func(pipeline string, p connector.Partition) func(h *story.Harness) {
		return func(h *story.Harness) {
			h.Log.Append(story.Version{Commit: connector.Commit{Txns: []connector.Txn{
				{AppID: idempotency.TableAppID(pipeline, "table-1")}, {AppID: p.AppID(pipeline), Version: 2},
			}}})
		}
	}
	for name, c := range map[string]struct {
		past   func(h *story.Harness)
		reason hold.Reason
	}{
		"a group offset": {func(h *story.Harness) { h.Broker.SetGroupOffset(story.Topic, 1, 5) }, hold.UnknownHistory},
		"another pipeline": {func(h *story.Harness) {
			txn("other", here(h))(h)
		}, hold.UnknownHistory},
		"another topic id": {func(h *story.Harness) {
			p := here(h)
			p.TopicID[15] = 9
			txn(story.Pipeline, p)(h)
		}, hold.TopicRecreated},
		"another cluster": {func(h *story.Harness) {
			p := here(h)
			p.Cluster = "elsewhere"
			txn(story.Pipeline, p)(h)
		}, hold.ClusterChanged},
		"another table": {func(h *story.Harness) {
			h.Log.Append(story.Version{Commit: connector.Commit{Txns: []connector.Txn{
				{AppID: idempotency.TableAppID(story.Pipeline, "table-0")}, {AppID: here(h).AppID(story.Pipeline), Version: 1},
			}}})
		}, hold.TableReplaced},
		"rows": {func(h *story.Harness) {
			h.Log.Append(story.Version{Rows: []story.Source{{Topic: story.Topic, TopicID: 7, ID: 1, Offset: 40}}})
		}, hold.UnknownHistory},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 2, func(t *testing.T, h *story.Harness) {
				h.Broker.Produce(story.Topic, 0, "rrr", "k")
				c.past(h)
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				wantHolds(t, p, map[int32]hold.Reason{0: c.reason, 1: c.reason})
				time.Sleep(10 * time.Minute)
				wantHolds(t, p, map[int32]hold.Reason{0: c.reason, 1: c.reason})
				wantRows(t, h, 0, nil)
			})
		})
	}
}

func TestHold_PositionOutsideLog(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *story.Harness)
		reason hold.Reason
	}{
		"behind its start": {func(h *story.Harness) { h.Broker.Change(story.Topic, 0, 3, -1) }, hold.BehindLogStart},
		"ahead of its end": {func(h *story.Harness) { h.Log.Append(story.Version{Commit: h.Forged(0, 99)}) }, hold.AheadOfLogEnd},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 2, func(t *testing.T, h *story.Harness) {
				h.Broker.Produce(story.Topic, 0, "r", "k")
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "end", h.AtEnd)
				h.Stop(p)
				h.Broker.Produce(story.Topic, 0, "rrrrr", "k")
				h.Broker.Produce(story.Topic, 1, "rr", "k")
				c.change(h)
				p = h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				wantHolds(t, p, map[int32]hold.Reason{0: c.reason})
				eventually(t, "the other partition at its end", func() bool { return h.Position(1) == 2 })
				wantRows(t, h, 0, []int64{0})
				// An operator ends the hold by setting a position that is in the log.
				h.Log.Append(story.Version{Commit: h.Forged(0, 3)})
				eventually(t, "end", func() bool { return h.Position(0) == 6 })
				wantHolds(t, p, map[int32]hold.Reason{})
				wantRows(t, h, 0, []int64{0, 3, 4, 5})
			})
		})
	}
}

func TestMove_RunningClaimResumes(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		// An operator moves the position back, so two records become rows twice.
		h.Log.Append(story.Version{Commit: h.Forged(0, 2)})
		eventually(t, "end again", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 2, 3})
	})
}

func TestHold_PoisonTruncatesClaim(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrprrrp", "k")
		h.Broker.Produce(story.Topic, 1, "rrtrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "good partition at its end", func() bool { return h.Position(1) == 5 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
		wantRows(t, h, 0, []int64{0, 1})
		wantRows(t, h, 1, []int64{0, 1, 3, 4})
		if at := h.Position(0); at != 2 {
			t.Errorf("held at %d, want 2", at)
		}
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		eventually(t, "good partition goes on", func() bool { return h.Position(1) == 7 })
		h.Log.Append(story.Version{Commit: h.Forged(0, 3)}) // the operator skips the bad record
		eventually(t, "up to the next bad record", func() bool { return h.Position(0) == 6 })
		wantRows(t, h, 0, []int64{0, 1, 3, 4, 5})
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
	})
}

// TestHold_RecordsReadBehindIt reads records into the open batch while the sealed batch has a bad record, which then
// holds the claim. The operator skips the bad record before the open batch is sealed, so the records after the bad one
// are read into the open batch again. They must become rows once.
func TestHold_RecordsReadBehindIt(t *testing.T) {
	for seed := range uint64(10) {
		seeded(t, seed, 2, func(t *testing.T, h *story.Harness) {
			h.Every, h.CommitRows = time.Hour, 4
			var slow atomic.Bool
			h.Broken = func(step string) error {
				if step == "stage" && slow.CompareAndSwap(true, false) {
					time.Sleep(10 * time.Second)
				}
				return nil
			}
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0, 1))
			eventually(t, "initial commit", func() bool { return len(h.Started()) == 2 })
			slow.Store(true)
			h.Broker.Produce(story.Topic, 0, "rrrp", "k")
			time.Sleep(5 * time.Second)
			h.Broker.Produce(story.Topic, 0, "rr", "k") // these are read into the open batch
			time.Sleep(2 * time.Second)
			if c := p.Connector.Status().Claims[0]; c.Next != 6 || c.Position != 0 {
				t.Fatalf("seed %d: read to %d, the position is %d", seed, c.Next, c.Position)
			}
			wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
			h.Log.Append(story.Version{Commit: h.Forged(0, 4)}) // the operator skips the bad record
			wantHolds(t, p, map[int32]hold.Reason{})
			eventually(t, "end", h.AtEnd)
			wantRows(t, h, 0, []int64{0, 1, 2, 4, 5})
		})
	}
}

// TestHealthRecords_Counted expects each commit to count the health-check records that it passes. Health-check records
// after a bad record that holds the claim must be counted only once an operator has skipped the bad record.
func TestHealthRecords_Counted(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "hrhphhr", "k")
		h.Broker.Produce(story.Topic, 1, "hhhh", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "up to the bad record", func() bool { return h.Position(0) == 3 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
		h.Log.Append(story.Version{Commit: h.Forged(0, 4)}) // the operator skips the bad record
		eventually(t, "end", func() bool { return h.Position(0) == 7 && h.Position(1) == 4 })
		wantRows(t, h, 0, []int64{1, 6})
		wantRows(t, h, 1, nil)
		if wrong := unexplained(h); wrong != "" {
			t.Errorf("%s\n%s", wrong, history(h))
		}
		if n := p.Counted("sluice_health_records_total"); n != 8 {
			t.Errorf("counted %v, want 8", n)
		}
	})
}

func TestHold_DamagedBatch(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Change(story.Topic, 0, 0, 3)
		h.Broker.Produce(story.Topic, 0, "rrrrr", "k")
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.CorruptBatch})
		eventually(t, "all before it", func() bool { return h.Position(0) == 3 && h.Position(1) == 2 })
		wantRows(t, h, 0, []int64{0, 1, 2})
		h.Broker.Change(story.Topic, 0, 0, -1)
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 4})
	})
}

func TestTableDown_HoldsClaims(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		var mended atomic.Bool
		h.Broken = func(step string) error {
			if !mended.Load() && step == "refresh" {
				return hold.New(hold.TableUnsupported, "a feature", nil)
			}
			return nil
		}
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.TableUnsupported, 1: hold.TableUnsupported})
		mended.Store(true)
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1, 2})
	})
}

func TestUnknownFailure_Resumes(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		var failures atomic.Int64
		h.Broken = func(step string) error {
			if step == "stage" && failures.Add(1) <= 2 {
				return errors.New("what is this")
			}
			return nil
		}
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2})
	})
}

func TestHold_Contested(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		var alone atomic.Bool
		var at atomic.Int64
		started := false
		h.Broken = func(step string) error { // needs no lock, because only one writer runs
			if step == "refresh" && started && !alone.Load() {
				h.Log.Append(story.Version{Commit: h.Forged(0, at.Add(1))})
			}
			started = started || step == "answer"
			return nil
		}
		h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 100), "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Contested})
		alone.Store(true)
		eventually(t, "end, once the position stood still", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, h.Want(0, at.Load(), 100))
	})
}

// TestFence_WhileRetrying fences a member while one of its held claims is being read again and its hold has not ended
// yet. Once the log of the claim can be read, the hold must end and every record must become a row.
func TestFence_WhileRetrying(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Change(story.Topic, 0, 0, 2)
		h.Broker.Lock(func() { h.Broker.Slow = 20 * time.Second })
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.CorruptBatch})
		eventually(t, "tried again", func() bool { return p.Connector.Status().Claims[0].State == "reading" })
		h.Log.Append(story.Version{Commit: h.Forged(1, 0)})
		h.Broker.Produce(story.Topic, 1, "r", "k")
		h.Log.Append(story.Version{Commit: h.Forged(1, 1)}) // fences the next commit
		time.Sleep(2 * time.Minute)
		h.Broker.Change(story.Topic, 0, 0, -1)
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1, 2, 3})
	})
}

// TestPartitionWithoutResponse expects a partition whose log ends cannot be read to stop no other partition, at the
// start of a member and later.
func TestPartitionWithoutResponse(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "r", "k")
		h.Broker.Produce(story.Topic, 1, "r", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		h.Stop(p)
		h.Broker.Lock(func() { h.Broker.Silent = map[int32]bool{0: true} })
		h.Broker.Produce(story.Topic, 0, "r", "k")
		h.Broker.Produce(story.Topic, 1, "r", "k")
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "the other partition at its end", func() bool { return h.Position(1) == 2 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.KafkaDown})
		h.Broker.Lock(func() { h.Broker.Silent = nil })
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1})
	})
}

// TestTableDown_HoldUntilCommit expects a hold that a failed commit began to end only with a successful commit, not
// when the table can be read.
func TestTableDown_HoldUntilCommit(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		var granted atomic.Bool
		granted.Store(true)
		h.Broken = func(step string) error {
			if step == "refresh" && !granted.Load() {
				return hold.New(hold.StoreDenied, "403", nil)
			}
			return nil
		}
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
		granted.Store(false)
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		wantHolds(t, p, map[int32]hold.Reason{0: hold.StoreDenied})
		since := p.Connector.Status().Claims[0].Hold.Since
		for range 600 {
			time.Sleep(time.Second)
			if h := p.Connector.Status().Claims[0].Hold; h == nil || h.Since != since {
				t.Fatalf("the hold came and went: %+v, since %v", h, since)
			}
		}
		granted.Store(true)
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0, 1, 2})
	})
}

// TestPartitionMissingInMetadata expects a claim to be held until the metadata show its partition.
func TestPartitionMissingInMetadata(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Lock(func() { h.Broker.Shown = 1 })
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		wantHolds(t, p, map[int32]hold.Reason{1: hold.KafkaDown})
		h.Broker.Lock(func() { h.Broker.Shown = 0 })
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 1, []int64{0, 1})
	})
}

// TestClaims_OutliveGenerations expects a member to continue after its generation of the group ended. A fence while the
// member has no generation must release its claims.
func TestClaims_OutliveGenerations(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "initial commit", func() bool { return len(h.Started()) == 1 })
		p.Member.Assign(connector.Assignment{Joined: false})
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		eventually(t, "end", h.AtEnd)
		h.Log.Append(story.Version{Commit: h.Forged(0, 1)})
		eventually(t, "no claims", func() bool { return len(p.Connector.Status().Claims) == 0 })
		p.Member.Assign(joined(h, 0))
		eventually(t, "end again", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2, 1, 2})
	})
}

func TestCommittedOffsets_FollowTable(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		eventually(t, "group offsets", func() bool { return maps.Equal(h.Offsets(), map[int32]int64{0: 3, 1: 0}) })
		h.Stop(p)
		h.Broker.SetGroupOffset(story.Topic, 0, 1) // an old offset, as after a crash before offsets were committed
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "mended", func() bool { return maps.Equal(h.Offsets(), map[int32]int64{0: 3, 1: 0}) })
		wantRows(t, h, 0, []int64{0, 1, 2})
	})
}

func TestDrain_CommitsOpenBatch(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Every = time.Hour
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		h.Broker.Produce(story.Topic, 0, "rrrcc", "k")
		time.Sleep(10 * time.Second)
		if at := h.Position(0); at != 0 {
			t.Fatalf("committed up to %d before it was due", at)
		}
		h.Stop(p)
		if at := h.Position(0); at != 5 {
			t.Errorf("after the drain the position is %d, want 5", at)
		}
		if got := h.Offsets()[0]; got != 5 {
			t.Errorf("after the drain the group offset is %d, want 5", got)
		}
	})
}

func TestUntilCurrent_Ends(t *testing.T) {
	scenario(t, 3, func(t *testing.T, h *story.Harness) {
		h.Every, h.UntilCurrent = time.Hour, true
		h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 100), "k")
		h.Broker.Produce(story.Topic, 1, "rrrccc", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1, 2))
		h.Done(p)
		if !h.AtEnd() {
			t.Errorf("ended early\n%s", history(h))
		}
		h.Broker.Produce(story.Topic, 0, "p", "k")
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1, 2))
		h.Done(p)
		if got := p.Holds(); got[0] != hold.Poison {
			t.Errorf("ended with holds %v, want poison", got)
		}
	})
}

// TestUntilCurrent_OtherMembers gives a member one of two partitions, as when the owner of the other one has just died.
// A run until current must not end while the other partition has records that are not in the table. It must end once
// the member owns both partitions and both are current.
func TestUntilCurrent_OtherMembers(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.UntilCurrent = true
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 1, "rrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		time.Sleep(time.Minute)
		if p.Connector.Status().Draining {
			t.Fatal("ended without the other partition")
		}
		p.Member.Assign(joined(h, 0, 1))
		h.Done(p)
		if !h.AtEnd() {
			t.Errorf("ended early\n%s", history(h))
		}
	})
}

// TestBackpressure_HotKey has a key with many more records than may be queued. No more than 12 records may be queued at
// a time, and every partition must reach its end.
func TestBackpressure_HotKey(t *testing.T) {
	scenario(t, 4, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 200), "hot")
		for id := int32(1); id < 4; id++ {
			for range 20 {
				h.Broker.Produce(story.Topic, id, "r", string(rune('a'+h.Chance.N(26))))
			}
		}
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1, 2, 3))
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			if q := p.Connector.Status().Queued; q > 12 {
				t.Fatalf("%d queued, backpressure starts at 12", q)
			}
		}
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, h.Want(0, 0, 200))
	})
}

// TestMemory_BadRecordAlone gives a lane only a bad record. The lane must release the buffers of its builder although
// there is no row to seal.
func TestMemory_BadRecordAlone(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "p", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		wantHolds(t, p, map[int32]hold.Reason{0: hold.Poison})
		time.Sleep(time.Minute)
		if n := p.Connector.Pools.Batch.Used(); n != 0 {
			t.Errorf("%d bytes are taken while nothing is open", n)
		}
	})
}
