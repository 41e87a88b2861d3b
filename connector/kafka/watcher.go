package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/connector"
	"sluice/reliability"
)

// topics are the configured topics that exist, by name.
type topics map[string]connector.Topic

// reason says why a generation ended.
type reason string

const (
	rebalanced       reason = "rebalance"          // the coordinator ended it, or was lost
	topicsChanged    reason = "topics"             // one came or went: the subscription is another one now
	partitionsAdded  reason = "partitions_added"   // nobody reads them yet
	topicCreatedAnew reason = "topic_created_anew" // the claims are of a topic that is gone
	nothing          reason = ""
)

// changed compares what a generation was built on with what is there now. doubtful says that a broker with old
// metadata could have made us believe it.
func changed(base, now topics) (why reason, doubtful bool) {
	why = nothing
	for name, is := range now {
		was, known := base[name]
		switch {
		case !known:
			return topicsChanged, false
		case was.ID != is.ID || was.Cluster != is.Cluster:
			why, doubtful = topicCreatedAnew, true
		case len(is.Partitions) > len(was.Partitions) && why == nothing:
			why = partitionsAdded
		}
	}
	for name := range base {
		if _, still := now[name]; !still {
			return topicsChanged, true
		}
	}
	return why, doubtful
}

// newer returns what is known after a look: what was seen now, except that a broker with old metadata does not take
// partitions away.
func newer(base, now topics) topics {
	merged := maps.Clone(base)
	for name, is := range now {
		if was, known := base[name]; known && was.ID == is.ID && len(was.Partitions) > len(is.Partitions) {
			continue
		}
		merged[name] = is
	}
	return merged
}

// missingLogEvery is how often missing topics are mentioned in the log.
const missingLogEvery = time.Minute

// look returns those of the configured topics that exist, and remembers the others. A Fatal error is a hold.
func (g *Group) look(ctx context.Context) (topics, error) {
	found, err := g.client.topics(ctx, g.cfg.Topics)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range g.cfg.Topics {
		if _, ok := found[name]; !ok {
			missing = append(missing, name)
		}
	}
	g.mu.Lock()
	before := g.missing
	g.missing = missing
	say := len(missing) > 0 && (!slices.Equal(before, missing) || time.Since(g.missingSaid) >= missingLogEvery)
	if say {
		g.missingSaid = time.Now()
	}
	g.mu.Unlock()
	g.metrics.missing.Set(float64(len(missing)))
	switch {
	case say:
		g.logger.WarnContext(ctx, "topics do not exist, waiting for them", "topics", missing)
	case len(missing) == 0 && len(before) > 0:
		g.logger.InfoContext(ctx, "topics exist now", "topics", before)
	}
	return found, nil
}

// topics asks for topics by name and returns those that exist. It never creates one.
func (c *Client) topics(ctx context.Context, names []string) (topics, error) {
	m, err := c.metadata(ctx, names...)
	if err != nil {
		return nil, Held("reading the metadata of topics", err)
	}
	found := make(topics)
	for _, t := range m.Topics {
		switch {
		case t.missing():
		case t.Err != 0:
			return nil, Held("reading the metadata of topic "+t.Name, fmt.Errorf("topic %s: %w", t.Name, t.Err))
		default:
			topic := connector.Topic{Cluster: m.Cluster, Name: t.Name, ID: t.ID}
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions, p.ID)
			}
			found[t.Name] = topic
		}
	}
	return found, nil
}

// watch waits for the end of a generation, and brings it about if the topics change. It returns why it ended, or anything
// if ctx ended. A generation that ended because of ctx or [topicsChanged] goes on until the group is left.
func (m *membership) watch(ctx context.Context, gen *kafka.Generation) reason {
	live, over := context.WithCancel(ctx)
	again := make(chan struct{})
	// Whatever kafka-go starts it waits for before it joins again, so this ends at once. Were it to end with ctx, kafka-go
	// would join once more before it leaves.
	m.live.Store(true)
	gen.Start(func(ended context.Context) {
		defer over()
		defer m.live.Store(false)
		select {
		case <-ended.Done():
		case <-again:
		}
	})
	for reliability.Wait(live, m.group.pause()) == nil {
		switch why := m.check(live); why {
		case nothing:
		case topicsChanged:
			return why
		default:
			close(again)
			<-live.Done()
			return why
		}
	}
	return rebalanced
}

// check looks once whether the topics still are what the generation was built on, twice before it believes that
// something is gone.
func (m *membership) check(ctx context.Context) reason {
	for second := false; ; second = true {
		now, err := m.group.look(ctx)
		if err != nil {
			if ctx.Err() == nil {
				m.group.logger.WarnContext(ctx, "looking for changed topics failed", "err", err)
			}
			return nothing
		}
		why, doubtful := changed(m.known(), now)
		if !doubtful || second {
			return why
		}
		if reliability.Wait(ctx, m.group.cfg.Confirm) != nil {
			return nothing
		}
	}
}
