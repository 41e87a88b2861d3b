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

// reason is why a generation ended.
type reason string

const (
	rebalanced       reason = "rebalance"          // the coordinator ended it, or this member lost the coordinator
	topicsChanged    reason = "topics"             // a topic was created or deleted
	topicsOutgrown   reason = "topics_outgrown"    // the subscription has no room for all new topics
	partitionsAdded  reason = "partitions_added"   // a topic has new partitions, which no member reads yet
	topicCreatedAnew reason = "topic_created_anew" // a topic was created again, so its claims belong to a deleted topic
	nothing          reason = ""
)

// changed compares the topics base, on which a generation is built, with those that a poll found now. It returns why
// the generation must end, "" if it need not. doubtful is true if a broker with old metadata could cause the
// difference.
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

// newer returns the topics that are known after a poll: those of base, with the changes that the poll shows. A topic
// that only base has stays. If the poll shows fewer partitions of a topic, the broker may have old metadata, so the
// partitions of base stay. But if the topic was created again, it gets the partitions of the poll.
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

// pollResult is what one poll found out about the topics that this member is to read.
type pollResult struct {
	topics  topics
	refused map[string]error  // a hold.Error for each topic that must not be read
	beyond  map[string]string // the reason for each matching topic that exceeds a limit; field topics does not have these
}

// Absent is a configured topic that is not read: it does not exist, is refused, or exceeds a limit.
type Absent struct {
	Topic  string
	Reason hold.Reason
	Detail string
	Since  time.Time
}

// poll returns the state of the configured topics and records the absent ones. A Fatal error is a hold: no topic can
// be read.
func (g *Group) poll(ctx context.Context) (pollResult, error) {
	names := g.names()
	seen, err := g.client.wanted(ctx, names, g.cfg.Matches)
	if err == nil {
		err = g.limit(ctx, &seen)
	}
	if err != nil {
		return pollResult{}, err
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
		return pollResult{}, refusal
	}
	return seen, nil
}

// names returns the topics to request by name.
func (g *Group) names() []string {
	if g.cfg.Optional == nil {
		return g.cfg.Topics
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(g.cfg.Topics, g.cfg.Optional()))))
}

// note stores the result of a poll and the absent topics. It logs why topics are absent, again and again but at the
// limited rate of a failure log for each cause. When no topic is absent any more, it logs that once.
func (g *Group) note(ctx context.Context, seen pollResult, absent []Absent) {
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
	g.logBeyond(ctx, seen)
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

// failing returns the failure log for one cause of absent topics, which limits how often this cause is logged.
func (g *Group) failing(cause string) *reliability.FailureLog {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.absentFailing[cause] == nil {
		g.absentFailing[cause] = &reliability.FailureLog{}
	}
	return g.absentFailing[cause]
}

// namesOf returns the names of the absent topics with this reason; of all absent topics if reason is "".
func namesOf(absent []Absent, reason hold.Reason) (names []string) {
	for _, a := range absent {
		if reason == "" || a.Reason == reason {
			names = append(names, a.Topic)
		}
	}
	return names
}

// wanted returns the state of the topics with these names and, unless matches is nil, of all others whose name matches.
// Kafka's internal topics do not match.
func (c *Client) wanted(ctx context.Context, names []string, matches func(string) bool) (pollResult, error) {
	if matches == nil {
		return c.topics(ctx, names)
	}
	m, err := c.requestMetadata(ctx, anyBroker, everyTopic, nil)
	if err != nil {
		return pollResult{}, AsHold("reading the metadata of all topics", fmt.Errorf("metadata: %w", err))
	}
	seen, err := m.selectTopics(func(t *topicMetadata) bool { return slices.Contains(names, t.Name) || !t.Internal && matches(t.Name) })
	if err != nil {
		return pollResult{}, err
	}
	var unseen []string // these are absent or refused, and only a request by name shows which
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

// topics requests topics by name. It never creates one.
func (c *Client) topics(ctx context.Context, names []string) (pollResult, error) {
	m, err := c.metadata(ctx, names...)
	if err != nil {
		return pollResult{}, AsHold("reading the metadata of topics", err)
	}
	return m.selectTopics(func(*topicMetadata) bool { return true })
}

// selectTopics returns the topics that exist and for which want returns true. A topic whose metadata Kafka denies is in
// refused. If one topic has a transient error, selectTopics returns that error.
func (m *clusterMetadata) selectTopics(want func(*topicMetadata) bool) (pollResult, error) {
	seen := pollResult{topics: topics{}, refused: map[string]error{}}
	for i := range m.Topics {
		t := &m.Topics[i]
		if !want(t) || t.missing() {
			continue
		}
		if t.Err != 0 {
			err := AsHold("reading the metadata of topic "+t.Name, fmt.Errorf("topic %s: %w", t.Name, t.Err))
			if classify.Of(err) != classify.Fatal {
				return pollResult{}, err
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

// watch waits until the generation ends, and returns the reason. It ends the generation itself if the topics change.
// There are two cases in which it returns although the generation continues until the caller leaves the group: ctx has
// ended, and then the reason means nothing; or the reason is [topicsOutgrown].
func (m *membership) watch(ctx context.Context, gen *kafka.Generation) reason {
	live, over := context.WithCancel(ctx)
	again := make(chan struct{})
	// kafka-go joins again only after every function started here has returned, so this function returns when the
	// generation ends. If it returned when ctx ends, kafka-go would join once more before it leaves the group.
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

// check compares the current topics with those of the generation and returns why the generation must end, "" if it need
// not. If a topic seems to be gone or created again, check polls a second time before it believes this.
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
		for name := range seen.refused { // the claims of these topics get a hold, and stay until access is granted again
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
