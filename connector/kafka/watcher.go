package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// topics are topics that exist, by name.
type topics map[string]connector.Topic

// reason says why a generation ended.
type reason string

const (
	rebalanced       reason = "rebalance"          // the coordinator ended it, or was lost
	topicsChanged    reason = "topics"             // one came or went
	topicsOutgrown   reason = "topics_outgrown"    // so many came that the subscription has no room for them
	partitionsAdded  reason = "partitions_added"   // nobody reads them yet
	topicCreatedAnew reason = "topic_created_anew" // the claims are of a topic that is gone
	nothing          reason = ""
)

// changed compares what a generation was built on with what is there now. doubtful says that a broker with old
// metadata could have made us believe it.
func changed(base, now topics) (why reason, doubtful bool) {
	for name := range base {
		if _, still := now[name]; !still {
			return topicsChanged, true
		}
	}
	why = nothing
	for name, is := range now {
		was, known := base[name]
		switch {
		case !known && why != topicCreatedAnew:
			why = topicsChanged
		case !known:
		case was.ID != is.ID || was.Cluster != is.Cluster:
			why, doubtful = topicCreatedAnew, true
		case len(is.Partitions) > len(was.Partitions) && why == nothing:
			why = partitionsAdded
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

// sight is what the cluster shows of the topics that we want.
type sight struct {
	topics  topics
	refused map[string]error  // a hold.Error for each topic that may not be read
	beyond  map[string]string // why, for each topic that matches and is too many; not in topics
}

// Absent is a topic that is meant and not read, since it is not there, is refused to us, or is one too many.
type Absent struct {
	Topic  string
	Reason hold.Reason
	Detail string
	Since  time.Time
}

// poll returns what there is of the configured topics, and remembers what is absent. An error that is Fatal is a hold:
// nothing can be read.
func (g *Group) poll(ctx context.Context) (sight, error) {
	names := g.names()
	seen, err := g.client.wanted(ctx, names, g.cfg.Matches)
	if err == nil {
		err = g.limit(ctx, &seen)
	}
	if err != nil {
		return sight{}, err
	}
	var absent []Absent
	var refusal error
	for _, name := range names {
		_, listed := slices.BinarySearch(g.cfg.Topics, name)
		if _, ok := seen.topics[name]; ok || !listed && seen.refused[name] == nil {
			continue
		}
		a := Absent{Topic: name, Reason: hold.TopicMissing, Detail: "the cluster has no topic of this name", Since: time.Now()}
		if err := seen.refused[name]; err != nil {
			refusal = err
			a.Reason, a.Detail = hold.KafkaDenied, err.Error()
			if h, ok := errors.AsType[*hold.Error](err); ok {
				a.Reason = h.Reason
			}
		}
		absent = append(absent, a)
	}
	g.note(ctx, seen, append(absent, seen.held()...))
	if len(seen.topics) == 0 && refusal != nil {
		return sight{}, refusal
	}
	return seen, nil
}

// names are the topics to ask for by name.
func (g *Group) names() []string {
	if g.cfg.Optional == nil {
		return g.cfg.Topics
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(g.cfg.Topics, g.cfg.Optional()))))
}

// note remembers a look, and says what has changed.
func (g *Group) note(ctx context.Context, seen sight, absent []Absent) {
	g.metrics.missing.Set(float64(len(absent) - len(seen.held()) + len(seen.beyond)))
	g.mu.Lock()
	before := g.absent
	for i := range absent {
		was := slices.IndexFunc(before, func(b Absent) bool { return b.Topic == absent[i].Topic && b.Reason == absent[i].Reason })
		if was >= 0 {
			absent[i].Since = before[was].Since
		}
	}
	g.absent, g.within = absent, map[string]bool{}
	for name := range seen.topics {
		g.within[name] = true
	}
	if g.first == nil {
		g.first = map[string]bool{}
		for name := range seen.topics {
			g.first[name] = true
		}
		for name := range seen.refused {
			g.first[name] = true
		}
	}
	if !slices.EqualFunc(before, absent, func(a, b Absent) bool { return a.Topic == b.Topic && a.Reason == b.Reason }) {
		g.absentFailing = map[string]*reliability.FailureLog{}
	}
	g.mu.Unlock()
	if missing := namesOf(absent, hold.TopicMissing); len(missing) > 0 {
		g.failing("missing").Failed(ctx, g.logger, slog.LevelWarn, "topics do not exist; waiting for them", "topics", missing)
	}
	g.sayBeyond(ctx, seen)
	for _, a := range absent {
		if a.Reason != hold.TopicMissing && a.Reason != hold.TooManyTopics {
			g.failing("refused "+a.Topic).Failed(ctx, g.logger, slog.LevelError, "access to a topic refused; waiting for it",
				"topic", a.Topic, "reason", string(a.Reason), "err", seen.refused[a.Topic])
		}
	}
	if len(absent) == 0 && len(before) > 0 {
		g.logger.InfoContext(ctx, "topics exist now", "topics", namesOf(before, ""))
	}
}

// failing returns the log lines about topics that are absent for one cause.
func (g *Group) failing(cause string) *reliability.FailureLog {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.absentFailing[cause] == nil {
		g.absentFailing[cause] = &reliability.FailureLog{}
	}
	return g.absentFailing[cause]
}

// namesOf returns the names of absent topics, of one reason or of all.
func namesOf(absent []Absent, reason hold.Reason) (names []string) {
	for _, a := range absent {
		if reason == "" || a.Reason == reason {
			names = append(names, a.Topic)
		}
	}
	return names
}

// wanted asks for topics by name and, unless matches is nil, for all others whose names match. Kafka's internal topics
// never match.
func (c *Client) wanted(ctx context.Context, names []string, matches func(string) bool) (sight, error) {
	if matches == nil {
		return c.topics(ctx, names)
	}
	m, err := c.requestMetadata(ctx, anyBroker, everyTopic, nil)
	if err != nil {
		return sight{}, AsHold("reading the metadata of all topics", fmt.Errorf("metadata: %w", err))
	}
	seen, err := m.sight(func(t *topicMetadata) bool { return slices.Contains(names, t.Name) || !t.Internal && matches(t.Name) })
	if err != nil {
		return sight{}, err
	}
	var unseen []string // absent or refused: only a question by name tells
	for _, name := range names {
		if _, ok := seen.topics[name]; !ok {
			unseen = append(unseen, name)
		}
	}
	if len(unseen) == 0 {
		return seen, nil
	}
	rest, err := c.topics(ctx, unseen)
	maps.Copy(seen.topics, rest.topics)
	seen.refused = rest.refused
	return seen, err
}

// topics asks for topics by name. It never creates one.
func (c *Client) topics(ctx context.Context, names []string) (sight, error) {
	m, err := c.metadata(ctx, names...)
	if err != nil {
		return sight{}, AsHold("reading the metadata of topics", err)
	}
	return m.sight(func(*topicMetadata) bool { return true })
}

// sight returns those of the topics that are wanted and exist.
func (m *clusterMetadata) sight(want func(*topicMetadata) bool) (sight, error) {
	seen := sight{topics: topics{}, refused: map[string]error{}}
	for i := range m.Topics {
		t := &m.Topics[i]
		if !want(t) || t.missing() {
			continue
		}
		if t.Err != 0 {
			err := AsHold("reading the metadata of topic "+t.Name, fmt.Errorf("topic %s: %w", t.Name, t.Err))
			if classify.Of(err) != classify.Fatal {
				return sight{}, err
			}
			seen.refused[t.Name] = err
			continue
		}
		topic := connector.Topic{Cluster: m.Cluster, Name: t.Name, ID: t.ID}
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, p.ID)
		}
		seen.topics[t.Name] = topic
	}
	return seen, nil
}

// watch waits for the end of a generation, and brings it about if the topics change. It returns why it ended, or anything
// if ctx ended. A generation that ended because of ctx or [topicsOutgrown] goes on until the group is left.
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
		case topicsOutgrown:
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
		seen, err := m.group.poll(ctx)
		if err != nil {
			if ctx.Err() == nil {
				m.group.pollFailing.Failed(ctx, m.group.logger, slog.LevelWarn, "failed to check for changed topics", "err", err)
			}
			return nothing
		}
		m.group.pollFailing.Over(ctx, m.group.logger, "topics are readable again")
		base := m.known()
		for name := range seen.refused { // its claims stand by themselves, until we are let in again
			if t, ours := base[name]; ours {
				seen.topics[name] = t
			}
		}
		why, doubtful := changed(base, seen.topics)
		if !doubtful || second {
			if why == topicsChanged && !m.resubscribe(seen.topics) {
				why = topicsOutgrown
			}
			return why
		}
		if reliability.Wait(ctx, m.group.cfg.Confirm) != nil {
			return nothing
		}
	}
}
