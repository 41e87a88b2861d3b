package story_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// rowsOf returns the offsets of a topic's rows in a table, by partition.
func rowsOf(log *story.TableLog, topic string) map[int32][]int64 {
	rows := map[int32][]int64{}
	for _, v := range log.Versions() {
		for _, r := range v.Rows {
			if r.Topic == topic {
				rows[r.ID] = append(rows[r.ID], r.Offset)
			}
		}
	}
	return rows
}

func startsOf(log *story.TableLog) (starts []string) {
	for _, v := range log.Versions() {
		if v.Commit.Operation == "SLUICE START" {
			starts = append(starts, fmt.Sprintf("%s from %d, %d partitions", v.Commit.Ranges[0].Topic, v.Commit.Ranges[0].Next, len(v.Commit.Ranges)))
		}
	}
	return starts
}

// TestTopic_ByAssignment assigns a topic that was unknown at the start. The topic must feed the table that is
// configured for it: its own, or that of another topic. An assigned topic without configuration must feed no table.
func TestTopic_ByAssignment(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			scenario(t, 2, func(t *testing.T, h *story.Harness) {
				log := story.NewTableLog("table-2")
				if shared {
					log = h.Log
				}
				h.Others = map[string]*story.TableLog{"late": log}
				p := h.Begin(t.Context())
				h.Broker.Produce(story.Topic, 0, "rr", "k")
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "end", h.AtEnd)

				h.Broker.Create("late", 2, 2)
				h.Broker.Create("stranger", 3, 1)
				h.Broker.Produce("late", 0, "rrr", "k")
				h.Broker.Produce("late", 1, "rt", "k")
				a := joined(h, 0, 1)
				a.Partitions = slices.Concat(a.Partitions, h.Broker.Partitions("late"), h.Broker.Partitions("stranger"))
				p.Member.Assign(a)
				want := map[int32][]int64{0: {0, 1, 2}, 1: {0}}
				eventually(t, "rows of the late topic", func() bool { return maps.EqualFunc(rowsOf(log, "late"), want, slices.Equal) })
				h.Broker.Produce(story.Topic, 1, "r", "k")
				eventually(t, "the first topic goes on", h.AtEnd)
				wantHolds(t, p, map[int32]hold.Reason{})
				if claims := len(p.Connector.Status().Claims); claims != 4 {
					t.Errorf("%d claims, want 4: the stranger feeds nothing", claims)
				}
				for _, c := range p.Connector.Status().Claims {
					if own := c.Table == "late"; own != (c.Partition.Topic == "late" && !shared) {
						t.Errorf("%v is said to feed %s", c.Partition, c.Table)
					}
				}

				p.Member.Assign(joined(h, 0, 1)) // the late topic was deleted
				eventually(t, "its claims are gone", func() bool { return len(p.Connector.Status().Claims) == 2 })
				h.Broker.Produce(story.Topic, 1, "r", "k")
				eventually(t, "the first topic goes on", h.AtEnd)
			})
		})
	}
}

// TestTopic_Appeared assigns two topics with start latest. The topic that existed before must start at its end. The
// topic that the assignment names as appeared must start at its first record.
func TestTopic_Appeared(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		old, appeared := story.NewTableLog("table-2"), story.NewTableLog("table-3")
		h.Others = map[string]*story.TableLog{"old": old, "appeared": appeared}
		h.Start = connector.Start{Policy: connector.StartLatest}
		for i, topic := range []string{"old", "appeared"} {
			h.Broker.Create(topic, byte(2+i), 2)
			h.Broker.Produce(topic, 0, "rrr", "k")
		}
		p := h.Begin(t.Context())
		a := connector.Assignment{
			Joined: true, Partitions: slices.Concat(h.Broker.Partitions("old"), h.Broker.Partitions("appeared")), Appeared: []string{"appeared"},
		}
		p.Member.Assign(a)
		eventually(t, "START of both", func() bool { return len(startsOf(old)) == 1 && len(startsOf(appeared)) == 1 })
		if got := strings.Join(startsOf(old), ""); got != "old from 3, 2 partitions" {
			t.Error(got)
		}
		if got := strings.Join(startsOf(appeared), ""); got != "appeared from 0, 2 partitions" {
			t.Error(got)
		}
		h.Broker.Produce("old", 1, "r", "k")
		eventually(t, "rows", func() bool {
			return len(rowsOf(old, "old")[1]) == 1 && slices.Equal(rowsOf(appeared, "appeared")[0], []int64{0, 1, 2})
		})
		if rows := rowsOf(old, "old"); len(rows) != 1 {
			t.Errorf("rows from before the START: %v", rows)
		}
	})
}

// TestTable_Retired expects the writer of a table to end ten minutes after the member lost the table's last claim, and
// another writer to begin if a claim comes back. The table of a topic that the configuration names must stay open.
func TestTable_Retired(t *testing.T) {
	scenario(t, 2, func(t *testing.T, h *story.Harness) {
		log := story.NewTableLog("table-2")
		h.Others = map[string]*story.TableLog{"late": log}
		p := h.Begin(t.Context())
		h.Broker.Create("late", 2, 1)
		h.Broker.Produce("late", 0, "rr", "k")
		late := h.Broker.Partitions("late")
		p.Member.Assign(connector.Assignment{Joined: true, Partitions: late})
		eventually(t, "rows", func() bool { return len(rowsOf(log, "late")[0]) == 2 })

		p.Member.Assign(connector.Assignment{Joined: true})
		time.Sleep(9 * time.Minute)
		if got := p.Retired(); len(got) > 0 {
			t.Errorf("too soon: %v", got)
		}
		p.Member.Assign(connector.Assignment{Joined: true, Partitions: late})
		time.Sleep(30 * time.Minute)
		if got := p.Retired(); len(got) > 0 {
			t.Errorf("while it has a claim: %v", got)
		}
		p.Member.Assign(connector.Assignment{Joined: true})
		time.Sleep(11 * time.Minute)
		if got := p.Retired(); !slices.Equal(got, []string{"retired late", "closed late"}) {
			t.Errorf("retired: %v", got)
		}

		h.Broker.Produce("late", 0, "rrr", "k")
		h.Broker.Produce(story.Topic, 0, "r", "k")
		a := joined(h, 0, 1)
		a.Partitions = append(a.Partitions, late...)
		p.Member.Assign(a)
		eventually(t, "rows again", func() bool { return len(rowsOf(log, "late")[0]) == 5 && h.AtEnd() })
	})
}

// TestTable_BusyDoesNotSealIdle has two tables. The open batch of one has no rows and is due only after ten minutes.
// Commits of the other table must not make a member seal this batch earlier.
func TestTable_BusyDoesNotSealIdle(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		idle := story.NewTableLog("table-2")
		h.Others = map[string]*story.TableLog{"idle": idle}
		h.Broker.Create("idle", 2, 1)
		p := h.Begin(t.Context())
		a := joined(h, 0)
		a.Partitions = append(a.Partitions, h.Broker.Partitions("idle")...)
		p.Member.Assign(a)
		eventually(t, "START of both", func() bool { return len(startsOf(h.Log)) == 1 && len(startsOf(idle)) == 1 })
		versions := len(idle.Versions())
		h.Broker.Produce("idle", 0, "t", "k")
		for range 30 {
			h.Broker.Produce(story.Topic, 0, strings.Repeat("r", 30), "k")
			eventually(t, "end", h.AtEnd)
		}
		if more := len(idle.Versions()) - versions; more != 0 {
			t.Errorf("%d versions of the idle table", more)
		}
	})
}

// TestTopics_WaitTogether expects a commit to wait for about one timeout, not for one timeout for each of 30 topics,
// while requests for committed offsets get no response.
func TestTopics_WaitTogether(t *testing.T) {
	scenario(t, 1, func(t *testing.T, h *story.Harness) {
		h.Others = map[string]*story.TableLog{}
		all := joined(h, 0)
		for i := range 30 {
			topic := fmt.Sprint("topic-", i)
			h.Others[topic] = h.Log
			h.Broker.Create(topic, byte(2+i), 1)
			all.Partitions = append(all.Partitions, h.Broker.Partitions(topic)...)
		}
		p := h.Begin(t.Context())
		p.Member.Assign(all)
		eventually(t, "START of all", func() bool { return len(startsOf(h.Log)) == 31 })
		wantHolds(t, p, map[int32]hold.Reason{})
		p.Member.Assign(joined(h, 0))
		time.Sleep(time.Second)
		h.Broker.Hung.Store(true)
		p.Member.Assign(all)
		time.Sleep(time.Second)
		h.Broker.Produce(story.Topic, 0, "rrr", "k")
		time.Sleep(30 * time.Second)
		if at := h.Position(0); at != 3 {
			t.Errorf("the position is %d, 3 were produced half a minute ago", at)
		}
		h.Broker.Hung.Store(false)
		eventually(t, "all are read", func() bool {
			return !slices.ContainsFunc(p.Connector.Status().Claims, func(c connector.ClaimStatus) bool { return c.State != "reading" })
		})
	})
}
