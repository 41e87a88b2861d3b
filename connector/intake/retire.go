package intake

import (
	"slices"
	"time"
)

// vacancy is how long a table keeps its writer without a claim. Claims come and go with members, topics that match a
// pattern for good.
const vacancy = 10 * time.Minute

// retire ends the work for a table that no claim has fed for a while. Those of topics that were known before any
// assignment stay. Should a topic of it be assigned again, Route is asked again.
func (r *Reader) retire(t *tableState) {
	now := time.Now()
	switch {
	case len(t.claims) > 0 || t.cutting != nil || t.looking || t.measuring:
		t.vacant = time.Time{}
		return
	case t.vacant.IsZero():
		t.vacant = now
		return
	case now.Sub(t.vacant) < vacancy || slices.ContainsFunc(r.Topics, func(topic string) bool { return r.byTopic[topic] == t }):
		return
	}
	var topics []string
	for topic, of := range r.byTopic {
		if of == t {
			delete(r.byTopic, topic)
			delete(r.feeding, topic)
			delete(r.health, topic)
			r.Metrics.leaves(topic)
			r.Lanes.Metrics.Leaves(topic)
			topics = append(topics, topic)
		}
	}
	r.tables = slices.DeleteFunc(r.tables, func(o *tableState) bool { return o == t })
	r.chunk.Set(r.Pools.Batch.Size(), len(r.lanes), r.sharing())
	r.dropOpen(t)
	t.writer.Retire(topics, r.Tables.Retire(t.name))
	r.Logger.Info("table retired: no partition has fed it for a while", "table", t.name)
}
