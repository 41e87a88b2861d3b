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
	// names are the subscribed topics, with room for more: unused places repeat the first name. kafka-go reads this
	// very slice for each join, right after it has asked the balancer for its user data, on the same goroutine;
	// onJoin rewrites the slice there. Leaving the group to join with another subscription would give the claims away
	// meanwhile.
	names []string
	conns *groupConns
	inner *kafka.ConsumerGroup

	joining context.Context // context of the balancer's requests on kafka-go's goroutine
	stop    context.CancelFunc

	mu   sync.Mutex
	base topics // see known; the leader may have assigned partitions that are newer than these

	// live is true during a generation. Only then does kafka-go reliably leave the group.
	live atomic.Bool

	// stale is a member id that the coordinator may still wait for although kafka-go has forgotten it; "" if there is
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
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] }) // kafka-go asks the first one
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
		JoinGroupBackoff:  g.backoff.Pause(1), // next makes the longer pauses
		Timeout:           g.cfg.Session / 2,  // with a shorter one, one slow response would cost the membership
	})
	if err != nil {
		m.stop()
		m.conns.abort()
		return nil, classify.Mark(fmt.Errorf("group %s: %w", g.cfg.Group, err), classify.Fatal)
	}
	return m, nil
}

// roomToMatch is how many more topics may match before the group must be left and joined again.
const roomToMatch = 8

// fill writes the topics of base into the subscription.
func (m *membership) fill() {
	wanted := slices.Sorted(maps.Keys(m.known()))
	copy(m.names, wanted)
	for i := len(wanted); i < len(m.names); i++ {
		m.names[i] = wanted[0]
	}
}

// resubscribe stores the given topics as those that the next join subscribes to. It returns false and changes nothing
// if no topic is left, or if the subscription has no room for all of them: then this member must leave the group first.
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

// onJoin runs before each join: it polls the topics, writes them into the subscription and returns what this member
// owned last. An error ends the attempt.
//
// The poll is older than the leader's assignment, so the watcher sees a partition that is added in between as a new
// one. New topics are subscribed here, because a join of one member makes all members join. Otherwise only the first
// member to notice the topics would be subscribed to them, get all their partitions, and give claims away to keep the
// balance.
func (m *membership) onJoin() (owned, error) {
	ctx, cancel := context.WithTimeout(m.joining, m.group.client.timeout())
	defer cancel()
	if seen, err := m.group.poll(ctx); err == nil { // else the last poll counts, which is older still
		m.mu.Lock()
		if len(newer(m.base, seen.topics)) > len(m.names) { // too many new topics: the watcher will make this member leave for them
			maps.DeleteFunc(seen.topics, func(name string, _ connector.Topic) bool { _, known := m.base[name]; return !known })
		}
		m.base = newer(m.base, seen.topics)
		m.mu.Unlock()
	}
	m.fill()
	return m.group.owned(), m.joining.Err() // without this error, a leaving kafka-go would join once more and wait for the other members
}

// lookup serves the leader: it returns the partitions of topics, from the cluster's metadata or else from the last
// poll.
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

// known returns the topics that the newest generation was built on.
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
			continue // not subscribed: another program leads the group
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

// next returns the next generation. It retries until there is one, ctx ends, or the error is Fatal.
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
			continue // the next join waits at the coordinator
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

// receive calls kafka-go's Next. Meanwhile it removes the stale member from the group: otherwise the coordinator would
// make all others wait until that member's session expires.
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

// leave ends the membership within the configured bound. A coordinator that does not answer removes the member when
// its session expires.
func (m *membership) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.group.cfg.Leave)
	defer cancel()
	m.stop()
	member, left := m.group.newest().member, m.live.Load()
	m.group.left()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = m.inner.Close() // never fails, but can take long
	}()
	patience := time.NewTimer(m.group.cfg.Leave * 4 / 5)
	defer patience.Stop()
	select {
	case <-closed:
	case <-patience.C:
		m.group.logger.WarnContext(ctx, "group coordinator does not answer; leaving without it")
		m.conns.abort()
		<-closed // without connections it returns soon
		left = false
	}
	m.conns.abort()
	if !left && member != "" {
		_ = m.group.remove(ctx, member) // the session ends it otherwise
	}
}
