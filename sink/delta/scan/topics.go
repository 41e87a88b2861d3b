package scan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/schema"
)

// topicBytes bounds what [TopicsIn] holds in memory of data files.
const topicBytes = 16 << 20

// TopicsIn returns which of the topics have rows in the table as of state. If it is thorough it reads the column of topics
// of those files whose statistics leave that open, up to the first row of each topic. Otherwise it reads no data file, and
// finds the topics that have a file of their own. Errors are those of [Run].
func TopicsIn(ctx context.Context, store objstore.Store, state *deltalog.State, topics []string, thorough bool) (map[string]bool, error) {
	if thorough {
		return readTopics(ctx, store, state, topics)
	}
	found := map[string]bool{}
	filter := newFilter(Query{}, state.Metadata)
	for f, err := range deltalog.Files(ctx, store, state) {
		if err != nil {
			return nil, fmt.Errorf("look for topics in the statistics: %w", err)
		}
		if b := filter.boundsOf(f.Add); b.topicKnown && b.topicLow == b.topicHigh && slices.Contains(topics, b.topicLow) {
			found[b.topicLow] = true
			if len(found) == len(topics) {
				break
			}
		}
	}
	return found, nil
}

func readTopics(ctx context.Context, store objstore.Store, state *deltalog.State, topics []string) (map[string]bool, error) {
	q := Query{Columns: [][]string{{schema.KafkaTopic}}, Bytes: topicBytes}
	for _, topic := range topics {
		q.Where = append(q.Where, Where{Topic: topic, Partition: AnyPartition, From: math.MinInt64, Next: math.MaxInt64})
	}
	found, all := map[string]bool{}, errors.New("all topics are found")
	err := Run(ctx, store, state, q, func(r Rows) error {
		column := r.Batch.Column(0)
		for i := range column.Len() {
			if column.IsNull(i) {
				continue
			}
			if topic := column.ValueStr(i); !found[topic] && slices.Contains(topics, topic) {
				found[topic] = true
			}
		}
		if len(found) == len(topics) {
			return all
		}
		return nil
	})
	if err != nil && !errors.Is(err, all) {
		return nil, err
	}
	return found, nil
}
