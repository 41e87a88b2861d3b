package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
)

// membership is one kafka-go ConsumerGroup, from joining to leaving, through any number of generations.
type membership struct {
	group *Group
	// names are the subscribed topics. The slice has room for more: its unused elements repeat the first name.
	//
	// onJoin rewrites the slice before each join. This works because kafka-go asks the balancer for its user data and
	// then reads this very slice, on the same goroutine. The alternative is to leave the group and join it again with
	// another subscription, but then this member would lose its claims meanwhile.
	names []string
	conns *groupConns
	inner *kafka.ConsumerGroup

	joining context.Context // the context of the balancer's requests, which run on kafka-go's goroutine
	stop    context.CancelFunc

	mu   sync.Mutex
	base topics // see known; the leader of the group may have assigned partitions that are newer than these topics

	// live is true during a generation. If it is false, kafka-go may close its group without leaving, so leave must
	// remove this member itself.
	live atomic.Bool

	// stale is a member id that kafka-go no longer uses but for which the coordinator may still wait; "" if there is
	// none.
	stale string
}

// join starts to join the group. The caller must call leave on the result.
func (g *Group) join(ctx context.Context, topics topics) (*membership, error) {
	m := &membership{group: g, base: topics}
	more := 0
	for _, name := range g.names() {
		if _, there := topics[name]; !there {
			more++
		}
	}
	if g.cfg.Matches != nil {
		more += roomToMatch
	}
	m.names = make([]string, len(topics)+more)
	m.fill()
	m.joining, m.stop = context.WithCancel(ctx)
	m.conns = newGroupConns(context.WithoutCancel(ctx), g.client)
	brokers := slices.Clone(g.client.cfg.Brokers)
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] }) // kafka-go begins with the first broker, so members begin with different ones
	var err error
	m.inner, err = kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                g.cfg.Group,
		Brokers:           brokers,
		Dialer:            m.conns.dialer,
		Topics:            m.names,
		GroupBalancers:    []kafka.GroupBalancer{&sticky{join: m.onJoin, lookup: m.lookup}},
		HeartbeatInterval: g.cfg.Session / 10,
		SessionTimeout:    g.cfg.Session,
		RebalanceTimeout:  g.cfg.Rebalance,
		JoinGroupBackoff:  g.backoff.Pause(1), // longer pauses are made by next
		Timeout:           g.cfg.Session / 2,  // if this were shorter, one slow response would cost the membership
	})
	if err != nil {
		m.stop()
		m.conns.abort()
		return nil, classify.Mark(fmt.Errorf("group %s: %w", g.cfg.Group, err), classify.Fatal)
	}
	return m, nil
}

// roomToMatch is the number of unused elements in a new subscription. If more topics than that begin to match the
// configured pattern, this member must leave the group and join it again.
const roomToMatch = 8

// fill writes the names of the topics in base into names, the subscription.
func (m *membership) fill() {
	wanted := slices.Sorted(maps.Keys(m.known()))
	copy(m.names, wanted)
	for i := len(wanted); i < len(m.names); i++ {
		m.names[i] = wanted[0]
	}
}

// resubscribe sets the topics that the next join subscribes to, and returns true. It returns false and changes nothing
// if there are no topics, or if the subscription has no room for all of them. Then this member must leave the group and
// join it again.
func (m *membership) resubscribe(seen topics) bool {
	if len(seen) == 0 || len(seen) > len(m.names) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := topics{}
	for name, t := range m.base {
		if _, still := seen[name]; still {
			kept[name] = t
		}
	}
	m.base = newer(kept, seen)
	return true
}

// onJoin runs before each join. It polls the topics, writes them into the subscription, and returns the last claims of
// this member. An error ends the attempt to join.
//
// The leader assigns the partitions a little later than this poll. So if a partition is added in between, the watcher
// of this member still sees it as new.
//
// New topics must be in the subscription already at this join, because the join of one member makes all members join.
// If only the watcher subscribed to them, the member that notices them first would be their only subscriber. It would
// get all their partitions, and would lose other claims for balance.
func (m *membership) onJoin() (owned, error) {
	ctx, cancel := context.WithTimeout(m.joining, m.group.client.timeout())
	defer cancel()
	if seen, err := m.group.poll(ctx); err == nil { // if the poll fails, the topics of the last poll are used, which are older
		m.mu.Lock()
		if len(newer(m.base, seen.topics)) > len(m.names) { // there is no room for all new topics, so the watcher will make this member leave and join again
			maps.DeleteFunc(seen.topics, func(name string, _ connector.Topic) bool { _, known := m.base[name]; return !known })
		}
		m.base = newer(m.base, seen.topics)
		m.mu.Unlock()
	}
	m.fill()
	return m.group.owned(), m.joining.Err() // after ctx has ended, this error keeps kafka-go from joining again and waiting for the other members before it leaves
}

// lookup is called by the leader of the group. It returns the partitions of topics from the cluster's metadata or, if
// they cannot be read, from the last poll.
func (m *membership) lookup(names []string) map[string][]int32 {
	ctx, cancel := context.WithTimeout(m.joining, m.group.client.timeout())
	defer cancel()
	found, err := m.group.client.topics(ctx, names)
	base := m.known()
	partitions := make(map[string][]int32)
	for _, name := range names {
		t, ok := found.topics[name]
		if err != nil || found.refused[name] != nil {
			t, ok = base[name]
		}
		if ok {
			partitions[name] = t.Partitions
		}
	}
	return partitions
}

// known returns the topics that this member knew when the newest generation began.
func (m *membership) known() topics {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.base
}

// claims returns the partitions of a generation with the ids of their topics, in order.
func (m *membership) claims(gen *kafka.Generation) []connector.Partition {
	base := m.known()
	var claims []connector.Partition
	for name, assigned := range gen.Assignments {
		t, ok := base[name]
		if !ok {
			continue // this topic is not subscribed, because another program leads the group
		}
		for _, p := range assigned {
			id := int32(p.ID) //nolint:gosec // kafka-go widens Kafka's int32
			claims = append(claims, connector.Partition{Cluster: t.Cluster, Topic: name, TopicID: t.ID, ID: id})
		}
	}
	slices.SortFunc(claims, func(a, b connector.Partition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.ID) - int(b.ID)
	})
	return claims
}

// next returns the next generation. It retries until there is one, until ctx ends, or until the error is Fatal.
func (m *membership) next(ctx context.Context) (*kafka.Generation, error) {
	for failures := 0; ; {
		gen, err := m.receive(ctx)
		switch {
		case err == nil:
			m.stale = ""
			return gen, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, kafka.RebalanceInProgress):
			continue // no pause is needed, because the next join waits at the coordinator
		}
		if err := AsHold("joining the group "+m.group.cfg.Group, err); classify.Of(err) == classify.Fatal {
			return nil, err
		}
		m.stale = m.group.newest().member
		failures++
		m.group.metrics.joinFailures.Inc()
		m.group.noteTrouble(err)
		pause := m.group.backoff.Pause(failures)
		m.group.joinFailing.Failed(ctx, m.group.logger, slog.LevelWarn, "failed to join the group; retrying", "err", err, "pause", pause)
		if err := reliability.Wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// receive returns the next generation from kafka-go. If the coordinator still has a member id that kafka-go no longer
// uses (the field stale), it would wait for that member until its session expires; so receive removes that member
// meanwhile.
func (m *membership) receive(ctx context.Context) (*kafka.Generation, error) {
	for m.stale != "" {
		short, cancel := context.WithTimeout(ctx, m.group.cfg.Session/30)
		gen, err := m.inner.Next(short)
		enough := short.Err() != nil
		cancel()
		if err == nil || !enough || ctx.Err() != nil {
			return gen, err
		}
		if m.group.remove(ctx, m.stale) == nil {
			m.stale = ""
		}
	}
	return m.inner.Next(ctx)
}

// leave leaves the group, within the configured time even if the coordinator does not answer. In that case the
// coordinator removes the member later, when its session expires.
func (m *membership) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.group.cfg.Leave)
	defer cancel()
	m.stop()
	member, left := m.group.newest().member, m.live.Load()
	m.group.left()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = m.inner.Close() // does not fail, but can take long
	}()
	patience := time.NewTimer(m.group.cfg.Leave * 4 / 5)
	defer patience.Stop()
	select {
	case <-closed:
	case <-patience.C:
		m.group.logger.WarnContext(ctx, "group coordinator does not answer; leaving without it")
		m.conns.abort()
		<-closed // returns soon once its connections are closed
		left = false
	}
	m.conns.abort()
	if !left && member != "" {
		_ = m.group.remove(ctx, member) // if this fails, the coordinator removes the member when its session expires
	}
}
