package main

import (
	"sluice/idempotency"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
)

// What the command and the watch over letters need to ask a table which records have rows.

// apart is how far two letters must be from each other so that what lies between them is not read.
const apart = 100_000

// wherever adds an offset to what is read of a table. They come in order.
func wherever(all []scan.Where, topic string, partition int32, offset int64) []scan.Where {
	if n := len(all); n > 0 && all[n-1].Partition == partition && offset-all[n-1].Next < apart {
		all[n-1].Next = max(all[n-1].Next, offset+1)
		return all
	}
	return append(all, scan.Where{Topic: topic, Partition: partition, From: offset, Next: offset + 1})
}

// topicIDs counts the topics of a name that a table has positions of.
func topicIDs(state *deltalog.State, topic string) int {
	ids := map[idempotency.TopicID]bool{}
	for appID := range state.Txns {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.TableID == "" && id.Partition.Topic == topic {
			ids[id.Partition.TopicID] = true
		}
	}
	return len(ids)
}
