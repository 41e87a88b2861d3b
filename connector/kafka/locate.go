package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// errOldMetadata means that the metadata in a response are older than metadata that another broker sent before.
var errOldMetadata = errors.New("metadata of an older leader epoch")

// locating finds the leaders of the partitions whose leader must be looked up, and starts missing fetchers in g. It
// runs until ctx ends.
func (l *Log) locating(ctx context.Context, g *errgroup.Group) error {
	for failures := 0; ; {
		names, next := l.dueTopics(time.Now())
		if len(names) == 0 {
			if err := wait(ctx, l.locate, next); err != nil {
				return err
			}
			continue
		}
		m, err := l.client.metadata(ctx, names...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures = 0
			l.place(ctx, g, m)
			if err := reliability.Wait(ctx, metadataGap); err != nil {
				return err
			}
			continue
		}
		failures++
		l.metrics.failed(err)
		l.mu.Lock()
		l.trouble(troubleScope{broker: noBroker}, err)
		l.mu.Unlock()
		if err := reliability.Wait(ctx, retryPause(failures)); err != nil {
			return err
		}
	}
}

// dueTopics returns the topics of the partitions that need a leader now, and the time at which another partition needs
// one; the time is zero if none does.
func (l *Log) dueTopics(now time.Time) (names []string, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, c := range l.cursors {
		switch {
		case c.state != unlocated:
		case !c.retryAt.After(now):
			names = append(names, p.Topic)
		case next.IsZero() || c.retryAt.Before(next):
			next = c.retryAt
		}
	}
	slices.Sort(names)
	return slices.Compact(names), next
}

// place takes from m the leader of each partition whose leader must be looked up, and queues the partition for the
// fetcher of that broker. If a leader is not known, place schedules another lookup. If the partition is gone, that is a
// finding, which a second reading must confirm.
func (l *Log) place(ctx context.Context, g *errgroup.Group, m *clusterMetadata) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.endTrouble(troubleScope{broker: noBroker})
	for p, c := range l.cursors {
		t := m.topic(p.Topic)
		if c.state != unlocated || c.retryAt.After(now) || t == nil {
			continue
		}
		led, h, err := leaderOf(p, m, t)
		if err == nil && h == nil && !l.epochs.newest(p, led.Epoch) {
			err = errOldMetadata // a deposed leader would refuse the request again
		}
		switch {
		case h != nil:
			l.epochs.forget(p)
			l.conclude(c, h, noBounds(), l.relocate)
		case err != nil:
			l.metrics.failed(err)
			l.relocate(c, c.retry(err))
			l.troublePartition(c, err)
		default:
			c.leader, c.epoch = led.Leader, led.Epoch
			c.clear(hold.TopicMissing, hold.TopicRecreated, hold.ClusterChanged)
			if id := c.source(); l.fetchers[id] == nil {
				l.start(ctx, g, id)
			}
			l.enqueue(c)
		}
	}
	l.prune()
}

// leaderEpochs are the newest leader epochs seen in metadata, for partitions that exist.
type leaderEpochs struct {
	mu sync.Mutex
	of map[connector.Partition]int32
}

// newest records the leader epoch that metadata name for a partition, and returns true. If other metadata have named a
// newer epoch before, it returns false: the broker that sent these is not up to date, and the leader that it names no
// longer leads the partition.
func (e *leaderEpochs) newest(p connector.Partition, epoch int32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seen, ok := e.of[p]; ok && epoch < seen {
		return false
	}
	e.of[p] = epoch
	return true
}

// forget drops what is known of a partition that no longer exists.
func (e *leaderEpochs) forget(p connector.Partition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of, p)
}

// leaderOf returns a partition as the metadata m and t of its topic show it. If it is not there any more, h is the
// finding that says so; a second reading must confirm it, because the broker may have old metadata. If only the leader
// is not known now, err is a transient error.
func leaderOf(p connector.Partition, m *clusterMetadata, t *topicMetadata) (led partitionMetadata, h, err error) {
	switch {
	case p.Cluster != "" && m.Cluster != p.Cluster:
		return led, hold.New(hold.ClusterChanged,
			fmt.Sprintf("the brokers belong to cluster %s, the position to cluster %s", m.Cluster, p.Cluster), nil), nil
	case t.missing():
		return led, hold.New(hold.TopicMissing,
			fmt.Sprintf("cluster %s has no topic %s any more", m.Cluster, p.Topic), nil), nil
	case t.Err != 0:
		return led, nil, t.Err
	case t.ID != p.TopicID:
		return led, hold.New(hold.TopicRecreated,
			fmt.Sprintf("topic %s has the id %v, the position belongs to %v: it was deleted and created again",
				p.Topic, t.ID, p.TopicID), nil), nil
	}
	at := t.partition(p.ID)
	switch {
	case at == nil:
		return led, hold.New(hold.TopicMissing,
			fmt.Sprintf("topic %s has no partition %d", p.Topic, p.ID), nil), nil
	case at.Leader < 0:
		return led, nil, kafka.LeaderNotAvailable
	}
	return *at, nil, nil
}
