package story_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/test/story"
)

func TestStart_Timestamp(t *testing.T) {
	for name, start := range map[string]func(since time.Time) connector.Start{
		"a time": func(since time.Time) connector.Start {
			return connector.Start{Policy: connector.StartTimestamp, At: since}
		},
		"a while back": func(time.Time) connector.Start {
			return connector.Start{Policy: connector.StartTimestamp, Back: 30 * time.Minute}
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 3, func(t *testing.T, h *story.Harness) {
				h.Broker.Produce(story.Topic, 0, "rrr", "k")
				h.Broker.Produce(story.Topic, 1, "r", "k")
				time.Sleep(time.Hour)
				since := time.Now()
				h.Broker.Produce(story.Topic, 0, "rr", "k")
				time.Sleep(10 * time.Minute)
				h.Start = start(since)
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1, 2))
				eventually(t, "initial commit", func() bool { return len(h.Started()) == 3 })
				if got, want := h.Started(), map[int32]int64{0: 3, 1: 1, 2: 0}; !maps.Equal(got, want) {
					t.Errorf("started %v, want %v", got, want)
				}
				h.Broker.Produce(story.Topic, 1, "rr", "k")
				eventually(t, "end", h.AtEnd)
				wantRows(t, h, 0, []int64{3, 4})
				wantRows(t, h, 1, []int64{1, 2})
			})
		})
	}
}

// TestStart_AtOffsets has two members of a topic that starts at given offsets. One initial commit must have all
// partitions. A partition that is added later must begin at its first record.
func TestStart_AtOffsets(t *testing.T) {
	scenario(t, 3, func(t *testing.T, h *story.Harness) {
		for id := range int32(3) {
			h.Broker.Produce(story.Topic, id, "rrrr", "k")
		}
		h.Start = connector.Start{Policy: connector.StartExplicit, Offsets: map[int32]int64{0: 3, 1: 1}, Others: connector.StartLatest}
		a, b := h.Begin(t.Context()), h.Begin(t.Context())
		a.Member.Assign(joined(h, 0))
		b.Member.Assign(joined(h, 1, 2))
		eventually(t, "end", h.AtEnd)
		if got, want := h.Started(), map[int32]int64{0: 3, 1: 1, 2: 4}; !maps.Equal(got, want) {
			t.Errorf("started %v, want %v", got, want)
		}
		starts := 0
		for _, v := range h.Log.Versions() {
			if v.Commit.Operation == "SLUICE START" {
				starts++
			}
		}
		if starts != 1 || !h.Marked("table-1") {
			t.Errorf("%d START commits, want 1; table marked: %v\n%s", starts, h.Marked("table-1"), history(h))
		}
		wantRows(t, h, 0, []int64{3})
		wantRows(t, h, 1, []int64{1, 2, 3})
		wantRows(t, h, 2, nil)

		h.Broker.Grow(story.Topic, 4) // the first records are produced before a member knows of the new partition
		h.Broker.Produce(story.Topic, 3, "rr", "k")
		b.Member.Assign(joined(h, 1, 2, 3))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 3, []int64{0, 1})
	})
}

func TestStart_OutsideLog(t *testing.T) {
	for name, c := range map[string]struct {
		offsets map[int32]int64
		reason  hold.Reason
		detail  string
	}{
		"before it": {map[int32]int64{0: 1, 1: 0}, hold.BehindLogStart, "[2, 5]"},
		"beyond it": {map[int32]int64{0: 6, 1: 0}, hold.AheadOfLogEnd, "[2, 5]"},
		"elsewhere": {map[int32]int64{2: 0}, hold.AheadOfLogEnd, "2 partitions"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, 2, func(t *testing.T, h *story.Harness) {
				h.Broker.Produce(story.Topic, 0, "rrrrr", "k")
				h.Broker.Change(story.Topic, 0, 2, -1)
				h.Start = connector.Start{Policy: connector.StartExplicit, Offsets: c.offsets}
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				wantHolds(t, p, map[int32]hold.Reason{0: c.reason, 1: c.reason})
				time.Sleep(5 * time.Minute)
				if n := len(h.Started()); n > 0 {
					t.Errorf("%d partitions were started\n%s", n, history(h))
				}
				for _, claim := range p.Connector.Status().Claims {
					if claim.Hold == nil || !strings.Contains(claim.Hold.Detail, c.detail) {
						t.Errorf("the hold of %v does not name the bounds %s: %+v", claim.Partition, c.detail, claim.Hold)
					}
				}
				if name == "beyond it" { // once the log has grown to the offset, the claims start
					h.Broker.Produce(story.Topic, 0, "rr", "k")
					eventually(t, "end", h.AtEnd)
					wantRows(t, h, 0, []int64{6})
				}
			})
		})
	}
}

// TestStart_OffsetsBeforeSnapshot expects a member to read the committed offsets before the snapshot. While the member
// requests the offsets, another member makes the initial commit and commits offsets. If the member had read the
// snapshot first, it would see an offset but no txn, and hold the claim.
func TestStart_OffsetsBeforeSnapshot(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		here := h.Broker.Partitions(story.Topic)[0]
		first := true
		h.Broker.OnOffsets = func() {
			if !first {
				return
			}
			first = false
			h.Log.Append(story.Version{Commit: connector.Commit{
				Operation: "SLUICE START",
				Txns:      []connector.Txn{{AppID: idempotency.TableAppID(story.Pipeline, "table-1")}, {AppID: here.AppID(story.Pipeline), Version: 2}},
				Ranges:    []connector.Range{{Topic: story.Topic, From: -1, Next: 2}},
			}})
			h.Broker.SetGroupOffset(story.Topic, 0, 2)
		}
		p := h.Begin(t.Context())
		held := false
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", func() bool {
			held = held || len(p.Holds()) > 0
			return h.AtEnd()
		})
		if held {
			t.Error("held for a history that is its own")
		}
		wantRows(t, h, 0, []int64{2})
	})
}

// TestLateStart_PartitionWithoutLeader adds two partitions to a topic. The partition with a leader must begin. The
// partition without a leader must be held until it has one.
func TestLateStart_PartitionWithoutLeader(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "r", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		eventually(t, "end", h.AtEnd)
		h.Broker.Grow(story.Topic, 3)
		h.Broker.Lock(func() { h.Broker.Silent = map[int32]bool{1: true} })
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		h.Broker.Produce(story.Topic, 2, "rrr", "k")
		p.Member.Assign(joined(h, 0, 1, 2))
		eventually(t, "the partition with a leader at its end", func() bool { return h.Position(2) == 3 })
		wantHolds(t, p, map[int32]hold.Reason{1: hold.KafkaDown})
		h.Broker.Lock(func() { h.Broker.Silent = nil })
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 1, []int64{0, 1})
	})
}
