package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/connector"
)

// OffsetsAt implements [connector.Log]. It sends each request once. Timestamps of records have milliseconds, and come
// from producers or brokers. A later record may have a smaller timestamp, so records before at may follow the offset
// (KIP-79).
func (q *questions) OffsetsAt(ctx context.Context, partitions []connector.Partition, at time.Time) (map[connector.Partition]int64, error) {
	var names []string
	for _, p := range partitions {
		names = append(names, p.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	failed := func(err error) error {
		q.metrics.failed(err)
		return AsHold("reading the offsets of a time", fmt.Errorf("offsets of a time: %w", err))
	}
	before, err := q.client.metadata(ctx, names...)
	if err != nil {
		return nil, failed(err)
	}
	byLeader := map[int32][]ledPartition{}
	known := map[connector.Partition]bool{}
	byName := map[string]connector.Partition{}
	for _, p := range partitions {
		led, r := placed(connector.Position{Partition: p}, before)
		if r.err != nil {
			return nil, failed(fmt.Errorf("%v: %w", p, r.err))
		}
		if r.gone {
			continue
		}
		byLeader[led.Leader] = append(byLeader[led.Leader], ledPartition{p.Topic, p.ID, led.Epoch})
		known[p], byName[p.String()] = true, p
	}
	which := end{timestamp: at.UnixMilli(), committed: true}
	if at.Nanosecond()%int(time.Millisecond) != 0 { // rounds up to the next whole millisecond
		which.timestamp++
	}
	which.timestamp = max(which.timestamp, 0) // negative timestamps stand for the ends of the log
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	offsets := map[connector.Partition]int64{}
	for leader, parts := range byLeader {
		slices.SortFunc(parts, func(a, b ledPartition) int {
			return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
		})
		wg.Go(func() {
			answers, err := q.client.listOffsets(ctx, leader, which, parts)
			mu.Lock()
			defer mu.Unlock()
			for i, a := range answers {
				p := byName[connector.Partition{Topic: parts[i].topic, ID: parts[i].id}.String()]
				if a.err != 0 {
					err = cmp.Or(err, fmt.Errorf("%v: %w", p, a.err))
				} else if a.offset >= 0 {
					offsets[p] = a.offset
				}
			}
			first = cmp.Or(first, err)
		})
	}
	wg.Wait()
	if first != nil {
		return nil, failed(first)
	}
	// The offsets were requested by topic name, so the topic ids are compared again.
	after, err := q.client.metadata(ctx, names...)
	if err != nil {
		return nil, failed(err)
	}
	for p := range known {
		if _, r := placed(connector.Position{Partition: p}, after); r.gone {
			delete(offsets, p)
		} else if r.err != nil {
			return nil, failed(fmt.Errorf("%v: %w", p, r.err))
		}
	}
	return offsets, nil
}
