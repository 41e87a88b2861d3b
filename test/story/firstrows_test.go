package story_test

import (
	"testing"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// TestRowsWithoutAPosition: a topic with rows and without a txn or a committed offset is held, after the txns were
// dropped from the table and the group was deleted. An operator's positions end the hold. A partition that is added
// later, without rows in the table, begins by itself. The table is not searched at each check.
func TestRowsWithoutAPosition(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		w.Log.Append(story.Version{Rows: []story.Source{{Topic: story.Topic, TopicID: 7, Offset: 90}}})
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		held := map[int32]hold.Reason{0: hold.UnknownHistory, 1: hold.UnknownHistory}
		wantHolds(t, p, held)
		time.Sleep(50 * time.Minute)
		wantHolds(t, p, held)
		if n := w.Log.Searches(); n != 1 {
			t.Errorf("the table was searched %d times within an hour", n)
		}
		time.Sleep(time.Hour)
		if n := w.Log.Searches(); n != 2 {
			t.Errorf("the table was searched %d times within two hours", n)
		}

		commit := connector.Commit{Operation: "SLUICE START", Txns: []connector.Txn{{AppID: idempotency.TableAppID(story.Pipeline, "table-1")}}}
		for _, here := range w.Broker.Partitions(story.Topic) {
			commit.Txns = append(commit.Txns, connector.Txn{AppID: here.AppID(story.Pipeline), Version: 1 - int64(here.ID)})
		}
		w.Log.Append(story.Version{Commit: commit})
		eventually(t, "end", w.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		w.Broker.Grow(story.Topic, 3)
		w.Broker.Produce(story.Topic, 2, "rr", "k")
		p.Member.Assign(joined(w, 0, 1, 2))
		eventually(t, "end", w.AtEnd)
		wantRows(t, w, 2, []int64{0, 1})
		if n := w.Log.Searches(); n != 3 {
			t.Errorf("the table was searched %d times, want a third one for the partition that was added", n)
		}
	})
}

// TestRowsWithoutAPosition_BesidePositions: partitions without a txn are judged by their own rows, independently of
// the topic's other partitions: one whose txn was dropped is held, one that was added begins. One search covers
// both.
func TestRowsWithoutAPosition_BesidePositions(t *testing.T) {
	scene(t, 2, func(t *testing.T, w *story.World) {
		w.Broker.Produce(story.Topic, 0, "rrr", "k")
		w.Broker.Produce(story.Topic, 1, "rr", "k")
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		eventually(t, "end", w.AtEnd)
		w.Stop(p)
		w.Log.Expire(w.Broker.Partitions(story.Topic)[1])
		w.Broker.ForgetGroup(story.Topic)
		w.Broker.Grow(story.Topic, 3)
		w.Broker.Produce(story.Topic, 0, "r", "k")
		w.Broker.Produce(story.Topic, 2, "rrrr", "k")
		before := w.Log.Searches()

		p = w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1, 2))
		wantHolds(t, p, map[int32]hold.Reason{1: hold.UnknownHistory})
		eventually(t, "the partition that was added at its end", func() bool { return w.Position(2) == 4 })
		time.Sleep(50 * time.Minute)
		wantHolds(t, p, map[int32]hold.Reason{1: hold.UnknownHistory})
		wantRows(t, w, 0, []int64{0, 1, 2, 3})
		wantRows(t, w, 1, []int64{0, 1})
		wantRows(t, w, 2, []int64{0, 1, 2, 3})
		if n := w.Log.Searches() - before; n != 1 {
			t.Errorf("the table was searched %d times within an hour", n)
		}

		w.Log.Append(story.Version{Commit: connector.Commit{Operation: "SLUICE START", Txns: []connector.Txn{{AppID: w.Broker.Partitions(story.Topic)[1].AppID(story.Pipeline), Version: 2}}}})
		w.Broker.Produce(story.Topic, 1, "r", "k")
		eventually(t, "end", w.AtEnd)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, w, 1, []int64{0, 1, 2})
	})
}
