package kafka

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/idempotency"
)

func TestChanged(t *testing.T) {
	topic := func(cluster string, id byte, partitions ...int32) connector.Topic {
		return connector.Topic{Cluster: cluster, ID: idempotency.TopicID{id}, Partitions: partitions}
	}
	one := topic("c", 1, 0)
	for _, tt := range []struct {
		name      string
		base, now topics
		want      reason
		doubtful  bool
		newer     topics // the topics after the change
	}{
		{"same", topics{"t": one}, topics{"t": one}, nothing, false, topics{"t": one}},
		{"created", topics{"t": one}, topics{"t": one, "u": one}, topicsChanged, false, topics{"t": one, "u": one}},
		{"deleted", topics{"t": one, "u": one}, topics{"t": one}, topicsChanged, true, topics{"t": one, "u": one}},
		{"deleted and created", topics{"t": one}, topics{"u": one}, topicsChanged, true, topics{"t": one, "u": one}},
		{
			"created and created anew",
			topics{"t": one},
			topics{"t": topic("c", 2, 0), "u": one},
			topicCreatedAnew, true,
			topics{"t": topic("c", 2, 0), "u": one},
		},
		{"created, and partitions", topics{"t": one}, topics{"t": topic("c", 1, 0, 1), "u": one}, topicsChanged, false, topics{"t": topic("c", 1, 0, 1), "u": one}},
		{"partitions", topics{"t": one}, topics{"t": topic("c", 1, 0, 1)}, partitionsAdded, false, topics{"t": topic("c", 1, 0, 1)}},
		{"an old answer", topics{"t": topic("c", 1, 0, 1)}, topics{"t": one}, nothing, false, topics{"t": topic("c", 1, 0, 1)}},
		{"another id", topics{"t": topic("c", 1, 0, 1)}, topics{"t": topic("c", 2, 0)}, topicCreatedAnew, true, topics{"t": topic("c", 2, 0)}},
		{"another cluster", topics{"t": one}, topics{"t": topic("d", 1, 0)}, topicCreatedAnew, true, topics{"t": topic("d", 1, 0)}},
		{
			"several things",
			topics{"s": one, "t": one, "u": one},
			topics{"s": topic("c", 1, 0, 1), "t": topic("c", 2, 0), "u": topic("c", 1, 0, 1)},
			topicCreatedAnew, true,
			topics{"s": topic("c", 1, 0, 1), "t": topic("c", 2, 0), "u": topic("c", 1, 0, 1)},
		},
	} {
		why, doubtful := changed(tt.base, tt.now)
		if why != tt.want || doubtful != tt.doubtful {
			t.Errorf("%s: %q, doubtful %v; want %q, %v", tt.name, why, doubtful, tt.want, tt.doubtful)
		}
		if diff := cmp.Diff(tt.newer, newer(tt.base, tt.now)); diff != "" {
			t.Errorf("%s: known then (-want +got):\n%s", tt.name, diff)
		}
	}
}
