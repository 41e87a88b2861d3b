package intake

import (
	"maps"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
)

// assignment is which partitions are claims of this member, and which tables they feed.
type assignment struct {
	*base

	holds   *holds
	batcher *batcher

	byTopic map[string]*tableState           // nil for a topic that feeds none
	feeding map[string]connector.TopicConfig // by topic, of those that feed a table
	health  map[string]*lane.HealthFilter    // by topic
	running func(*commit.Writer)             // starts a writer; nil before the run, which starts those that are there
}

func newAssignment(of *base, h *holds, b *batcher) *assignment {
	return &assignment{
		base: of, holds: h, batcher: b,
		byTopic: map[string]*tableState{}, feeding: map[string]connector.TopicConfig{}, health: map[string]*lane.HealthFilter{},
	}
}

// assign takes over what this member should work on. Claims that stay are left alone; the end of a generation changes
// nothing: the table's log is the fence.
func (as *assignment) assign(a connector.Assignment) {
	as.joined = a.Joined
	if !a.Joined {
		as.Offsets.soon()
		return
	}
	if as.UntilCurrent && !as.assigned {
		for _, t := range as.tables {
			t.measure() // so that the ends are those of the start
		}
	}
	as.assigned = true
	for p, c := range as.claims {
		if !slices.Contains(a.Partitions, p) {
			as.lose(c)
		}
	}
	for _, topic := range a.Appeared {
		if t := as.feeds(topic); t != nil {
			conf := as.feeding[topic]
			conf.Start = conf.Start.ForNewTopic()
			t.writer.Requests.Follow(conf)
		}
	}
	fresh := map[*tableState][]*claim{}
	for _, p := range a.Partitions {
		if _, have := as.claims[p]; have {
			continue
		}
		t := as.feeds(p.Topic)
		if t == nil {
			continue
		}
		conf := as.feeding[p.Topic]
		c := &claim{
			Partition: p, since: time.Now(), table: t, lane: as.leastLoaded(), position: -1, target: -1,
			treatment: treatment{conf.Refuse, as.health[p.Topic], conf.Letters != nil},
		}
		as.holds.endSession(c) // gives it its first session
		as.claims[p], t.claims[p] = c, c
		fresh[t] = append(fresh[t], c)
	}
	as.order = slices.SortedFunc(maps.Values(as.claims), func(a, b *claim) int { return a.Compare(b.Partition) })
	for t, claims := range fresh {
		as.holds.requestResume(t, claims...)
	}
	as.Logger.Info("assigned", "claims", len(as.claims))
}

// feeds returns the table of a topic, with a writer at work. nil if the topic feeds none: a leader that is configured in
// another way assigned it.
func (as *assignment) feeds(topic string) *tableState {
	if t, known := as.byTopic[topic]; known {
		return t
	}
	conf, target, ok := as.Tables.Open(topic)
	if !ok {
		as.byTopic[topic] = nil
		as.Logger.Error("a topic was assigned that is not configured here: all members of a group need the same topics", "topic", topic)
		return nil
	}
	i := slices.IndexFunc(as.tables, func(t *tableState) bool { return t.name == conf.Table })
	if i < 0 {
		t := &tableState{Table: lane.Table{Decoder: decoderOf(&target), Nulls: target.Nulls}, name: conf.Table, rare: conf.Rare, limits: conf.Commit, claims: map[connector.Partition]*claim{}}
		t.writer = commit.New(as.Writers, conf.Table, target, &t.Table)
		i, as.tables = len(as.tables), append(as.tables, t)
		as.chunk.Set(as.Pools.Batch.Size(), len(as.lanes), as.holds.room.sharing())
		if as.running != nil {
			as.running(t.writer)
		}
	}
	t := as.tables[i]
	if target.Letters == nil {
		conf.Letters = nil // nobody would take them
	}
	t.writer.Requests.Follow(conf)
	as.Metrics.keyWaits.WithLabelValues(topic)
	as.byTopic[topic], as.feeding[topic] = t, conf
	as.health[topic] = lane.NewHealthFilter(topic, conf.HealthRecords, as.Logger, as.Lanes.Metrics)
	return t
}

// lose forgets a claim. Its rows in the batch that fills are masked at the cut, because its session is not in it.
func (as *assignment) lose(c *claim) {
	as.holds.endSession(c)
	as.holds.enter(c, lost)
	c.table.writer.Requests.Lose(c.Partition, c.session)
	delete(as.claims, c.Partition)
	delete(c.table.claims, c.Partition)
	as.holds.forgetFailedCommits(c.table)
	as.order = slices.DeleteFunc(as.order, func(o *claim) bool { return o == c })
}

// tableOf returns the table of a writer, nil if it was retired.
func (as *assignment) tableOf(w *commit.Writer) *tableState {
	i := slices.IndexFunc(as.tables, func(t *tableState) bool { return t.writer == w })
	if i < 0 {
		return nil
	}
	return as.tables[i]
}

func (as *assignment) leastLoaded() *lane.Lane {
	load := make([]int, len(as.lanes))
	for _, c := range as.claims {
		load[c.lane.ID]++
	}
	return as.lanes[slices.Index(load, slices.Min(load))]
}

// vacancy is how long a table keeps its writer without a claim. Claims come and go with members, topics that match a
// pattern for good.
const vacancy = 10 * time.Minute

// retire ends the work for a table that no claim has fed for a while. Those of topics that were known before any
// assignment stay. Should a topic of it be assigned again, Route is asked again.
func (as *assignment) retire(t *tableState) {
	now := time.Now()
	switch {
	case len(t.claims) > 0 || t.sealed != nil || t.comparing || t.measuring:
		t.vacant = time.Time{}
		return
	case t.vacant.IsZero():
		t.vacant = now
		return
	case now.Sub(t.vacant) < vacancy || slices.ContainsFunc(as.Topics, func(topic string) bool { return as.byTopic[topic] == t }):
		return
	}
	var topics []string
	for topic, of := range as.byTopic {
		if of == t {
			delete(as.byTopic, topic)
			delete(as.feeding, topic)
			delete(as.health, topic)
			as.Metrics.leaves(topic)
			as.Lanes.Metrics.Leaves(topic)
			topics = append(topics, topic)
		}
	}
	as.tables = slices.DeleteFunc(as.tables, func(o *tableState) bool { return o == t })
	as.chunk.Set(as.Pools.Batch.Size(), len(as.lanes), as.holds.room.sharing())
	as.batcher.dropOpen(t)
	t.writer.Retire(topics, as.Tables.Retire(t.name))
	as.Logger.Info("table retired: no partition has fed it for a while", "table", t.name)
}
