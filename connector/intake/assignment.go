package intake

import (
	"maps"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
)

// assignment maps the assigned partitions to claims, and topics to the tables that they feed.
type assignment struct {
	*base

	holds   *holds
	batcher *batcher

	byTopic     map[string]*tableState           // the table of each topic; nil if the topic is not configured here
	feeding     map[string]connector.TopicConfig // the configuration of each topic that feeds a table
	health      map[string]*lane.HealthFilter    // the filter for health checks of each topic
	origins     map[string]*lane.OriginReader    // the reader of origins of each topic
	beginWriter func(*commit.Writer)             // starts a writer; nil until Run, which starts the writers that exist then
}

func newAssignment(of *base, h *holds, b *batcher) *assignment {
	return &assignment{
		base: of, holds: h, batcher: b,
		byTopic: map[string]*tableState{}, feeding: map[string]connector.TopicConfig{}, health: map[string]*lane.HealthFilter{},
		origins: map[string]*lane.OriginReader{},
	}
}

// assign applies a new assignment. Claims that stay are not touched. The end of a generation (not Joined) changes no
// claim, because the table's log fences claims that other members take over; it only makes Offsets write the group's
// offsets soon.
func (as *assignment) assign(a connector.Assignment) {
	as.joined = a.Joined
	if !a.Joined {
		as.Offsets.soon()
		return
	}
	if as.UntilCurrent && !as.assigned {
		for _, t := range as.tables {
			t.measure() // requested now, because the first result sets the ends up to which this run reads
		}
	}
	as.assigned = true
	for p, c := range as.claims {
		if !slices.Contains(a.Partitions, p) {
			as.lose(c)
		}
	}
	for _, topic := range a.Appeared {
		if t := as.tableFor(topic); t != nil {
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
		t := as.tableFor(p.Topic)
		if t == nil {
			continue
		}
		conf := as.feeding[p.Topic]
		c := &claim{
			Partition: p, since: time.Now(), table: t, lane: as.leastLoaded(), position: -1, target: -1,
			recordRules: recordRules{conf.Refuse, as.health[p.Topic], as.origins[p.Topic], conf.Letters != nil},
			claimState:  claimState{flushesBefore: as.Decisions.Flushes(p)},
		}
		as.holds.endSession(c) // begins the first session of the claim
		as.claims[p], t.claims[p] = c, c
		fresh[t] = append(fresh[t], c)
	}
	as.order = slices.SortedFunc(maps.Values(as.claims), func(a, b *claim) int { return a.Compare(b.Partition) })
	for t, claims := range fresh {
		as.holds.requestResume(t, claims...)
	}
	as.Logger.Info("assigned", "claims", len(as.claims))
}

// tableFor returns the table that a topic feeds. It makes the table and its writer if the topic is the first to need
// them. It returns nil if the topic is not configured here, which means that the leader of the group has another
// configuration.
func (as *assignment) tableFor(topic string) *tableState {
	if t, known := as.byTopic[topic]; known {
		return t
	}
	conf, target, ok := as.Tables.Open(topic)
	if !ok {
		as.byTopic[topic] = nil
		as.Logger.Error("assigned topic is not configured here; give all members of the group the same topics", "topic", topic)
		return nil
	}
	i := slices.IndexFunc(as.tables, func(t *tableState) bool { return t.name == conf.Table })
	if i < 0 {
		t := &tableState{Table: lane.Table{Decoder: decoderOf(&target)}, name: conf.Table, rare: conf.Rare, limits: conf.Commit, claims: map[connector.Partition]*claim{}}
		t.writer = commit.New(as.Writers, conf.Table, target, &t.Table)
		i, as.tables = len(as.tables), append(as.tables, t)
		as.chunk.Set(as.Pools.Batch.Size(), len(as.lanes), as.holds.room.sharing())
		if as.beginWriter != nil {
			as.beginWriter(t.writer)
		}
	}
	t := as.tables[i]
	if target.Letters == nil {
		conf.Letters = nil // the target cannot write dead letters, so bad records hold their claims
	}
	t.writer.Requests.Follow(conf)
	as.Metrics.keyWaits.WithLabelValues(topic)
	as.byTopic[topic], as.feeding[topic] = t, conf
	as.health[topic] = lane.NewHealthFilter(topic, conf.HealthRecords, as.Logger, as.Lanes.Metrics)
	as.origins[topic] = lane.NewOriginReader(topic, as.Writers.Pipeline, conf.OriginKeys, as.Logger, as.Lanes.Metrics)
	return t
}

// lose gives up a claim that another member may work on now. Its rows in the open batch will not be committed: the
// claim will not be in the sealed batch, so Decide leaves its rows out.
func (as *assignment) lose(c *claim) {
	as.holds.endSession(c)
	as.holds.enter(c, lost)
	c.table.writer.Requests.Lose(c.Partition, c.session)
	delete(as.claims, c.Partition)
	delete(c.table.claims, c.Partition)
	as.holds.forgetFailedCommits(c.table)
	as.order = slices.DeleteFunc(as.order, func(o *claim) bool { return o == c })
}

// tableOf returns the table of a writer, nil if the table was retired.
func (as *assignment) tableOf(w *commit.Writer) *tableState {
	i := slices.IndexFunc(as.tables, func(t *tableState) bool { return t.writer == w })
	if i < 0 {
		return nil
	}
	return as.tables[i]
}

// leastLoaded returns the lane with the fewest claims.
func (as *assignment) leastLoaded() *lane.Lane {
	load := make([]int, len(as.lanes))
	for _, c := range as.claims {
		load[c.lane.ID]++
	}
	return as.lanes[slices.Index(load, slices.Min(load))]
}

// retireAfter is how long a table without claims keeps its writer. Claims come and go with members, but a topic that
// matches a pattern may have been deleted.
const retireAfter = 10 * time.Minute

// retire removes a table that no claim has fed for retireAfter, unless a topic of Config.Topics feeds it. The reader
// calls it for each table once per turn. If a topic of a removed table is assigned again, Tables.Open makes a new
// table.
func (as *assignment) retire(t *tableState) {
	now := time.Now()
	switch {
	case len(t.claims) > 0 || t.sealed != nil || t.comparing || t.measuring:
		t.vacant = time.Time{}
		return
	case t.vacant.IsZero():
		t.vacant = now
		return
	case now.Sub(t.vacant) < retireAfter || slices.ContainsFunc(as.Topics, func(topic string) bool { return as.byTopic[topic] == t }):
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
	as.Logger.Info("table retired; no partition feeds it", "table", t.name)
}
