package story_test

import (
	"testing"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// TestRowsWithoutAPosition has a table with rows of a topic, but no txn and no committed offset. The claims must be
// held, until an operator sets positions. A partition that is added later and has no rows must begin by itself. The
// table must be searched once an hour, not at each check.
func TestRowsWithoutAPosition(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Log.Append(story.Version{Rows: []story.Source{{Topic: story.Topic, TopicID: 7, Offset: 90}}})
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		held := map[int32]hold.Reason{0: hold.UnknownHistory, 1: hold.UnknownHistory}
		wantHolds(t, p, held)
		time.Sleep(50 * time.Minute)
		wantHolds(t, p, held)
		if n := h.Log.Searches(); n != 1 {
			t.Errorf("the table was searched %d times within an hour", n)
		}
		time.Sleep(time.Hour)
		if n := h.Log.Searches(); n != 2 {
			t.Errorf("the table was searched %d times within two hours", n)
		}

		commit := connector.Commit{Operation: "SLUICE START", Txns: []connector.Txn{{AppID: idempotency.TableAppID(story.Pipeline, "table-1")}}}
		for _, here := range h.Broker.Partitions(story.Topic) {
			commit.Txns = append(commit.Txns, connector.Txn{AppID: here.AppID(story.Pipeline), Version: 1 - int64(here.ID)})
		}
		h.Log.Append(story.Version{Commit: commit})
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		h.Broker.Grow(story.Topic, 3)
		h.Broker.Produce(story.Topic, 2, "rr", "k")
		p.Member.Assign(joined(h, 0, 1, 2))
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 2, []int64{0, 1})
		if n := h.Log.Searches(); n != 3 {
			t.Errorf("the table was searched %d times, want a third one for the partition that was added", n)
		}
	})
}

// TestRowsWithoutAPosition_BesidePositions has a topic with three partitions, of which one has a txn. Of the two
// without a txn, the partition with rows must be held, and the new partition must begin. The table must be searched
// once for both.
func TestRowsWithoutAPosition_BesidePositions(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 1, "rr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		eventually(t, "end", h.AtEnd)
		h.Stop(p)
		h.Log.Expire(h.Broker.Partitions(story.Topic)[1])
		h.Broker.ForgetGroup(story.Topic)
		h.Broker.Grow(story.Topic, 3)
		h.Broker.Produce(story.Topic, 0, "r", "k")
		h.Broker.Produce(story.Topic, 2, "rrrr", "k")
		before := h.Log.Searches()

		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1, 2))
		wantHolds(t, p, map[int32]hold.Reason{1: hold.UnknownHistory})
		eventually(t, "the partition that was added at its end", func() bool { return h.Position(2) == 4 })
		time.Sleep(50 * time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{1: hold.UnknownHistory})
		wantRows(t, h, 0, []int64{0, 1, 2, 3})
		wantRows(t, h, 1, []int64{0, 1})
		wantRows(t, h, 2, []int64{0, 1, 2, 3})
		if n := h.Log.Searches() - before; n != 1 {
			t.Errorf("the table was searched %d times within an hour", n)
		}

		h.Log.Append(story.Version{Commit: connector.Commit{Operation: "SLUICE START", Txns: []connector.Txn{{AppID: h.Broker.Partitions(story.Topic)[1].AppID(story.Pipeline), Version: 2}}}})
		h.Broker.Produce(story.Topic, 1, "r", "k")
		eventually(t, "end", h.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 1, []int64{0, 1, 2})
	})
}
