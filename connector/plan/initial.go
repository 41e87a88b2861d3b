package plan

import (
	"maps"
	"slices"

	"sluice/connector"
	"sluice/idempotency"
)

// Initial is the first positions of a topic, or of partitions that were added to it.
type Initial struct {
	Topic string
	// Added is true if the table has positions of other partitions of the topic.
	Added     bool
	Positions map[connector.Partition]int64
}

// Plan returns the commit that sets the positions, for a snapshot.
func (i *Initial) Plan(s *connector.Snapshot, pipeline string) *Plan {
	if i.Added {
		return planAdded(i.Positions, s, pipeline)
	}
	return planInitial(i.Topic, i.Positions, s, pipeline)
}

// planInitial plans the first commit of a topic. It sets the positions of all partitions, including those of other
// members. If the table has no mark of the pipeline yet, the commit also marks it.
func planInitial(topic string, starts map[connector.Partition]int64, s *connector.Snapshot, pipeline string) *Plan {
	p := &Plan{Next: map[connector.Partition]Span{}, tableID: s.TableID, initialTopic: topic, pipeline: pipeline, expects: map[string]int64{}}
	p.Commit.Operation = operationInitial
	mark := idempotency.TableAppID(pipeline, s.TableID)
	if _, marked := s.Positions[mark]; !marked {
		p.Commit.Txns = append(p.Commit.Txns, connector.Txn{AppID: mark, Version: 0})
	}
	for _, partition := range slices.SortedFunc(maps.Keys(starts), connector.Partition.Compare) {
		p.add(partition, -1, Span{From: starts[partition], Next: starts[partition], Epoch: -1}, 0, 0)
		p.Next[partition] = Span{From: -1, Next: starts[partition], Epoch: -1}
	}
	return p
}

// planAdded plans the first commit of partitions that were added to a topic. The table already has positions of
// that topic, so the plan has no initialTopic, and the precondition compares only the txns of the added partitions.
func planAdded(starts map[connector.Partition]int64, s *connector.Snapshot, pipeline string) *Plan {
	return planInitial("", starts, s, pipeline)
}
