package kafka

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// cluster is a Kafka cluster, real or in-process, with members of one consumer group.
type cluster struct {
	t      *testing.T
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	addrs  []string
	prefix string // begins the names of the group and of the topics
	tune   func(*Config, *GroupConfig)
	fake   *kfake.Cluster // nil for a real cluster
	admin  *kadm.Client
	stir   chan struct{} // receives a value after each delivery of an assignment

	members []*member // all members that start has started
}

// inBubble runs a test with an in-process cluster in virtual time. The bubble fails if a goroutine outlives the test.
func inBubble(t *testing.T, test func(t *testing.T, s *cluster), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		opts := append([]kfake.Opt{kfake.Ports(9092, 9093), kfake.ListenFn(network.Listen)}, opts...)
		fake, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer fake.Close()
		s := newScene(t, []string{"localhost:9092", "localhost:9093"}, network.DialContext)
		s.fake = fake
		test(t, s)
	})
}

func newScene(t *testing.T, addrs []string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *cluster {
	t.Helper()
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...), kgo.Dialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return &cluster{t: t, dial: dial, addrs: addrs, admin: admin, stir: make(chan struct{}, 1), tune: func(*Config, *GroupConfig) {}}
}

// until waits for a condition. It checks the condition after each delivery, and at intervals, because some conditions
// change without a delivery.
func (s *cluster) until(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-s.stir:
		case <-look.C:
		case <-deadline.C:
			for i, m := range s.members {
				s.t.Logf("member %d:\n%s", i, m.logs)
			}
			s.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// member is a running Group.
type member struct {
	*Group
	cluster *cluster
	client  *Client
	logs    *logBuffer
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error // what Run returned; set before ended is closed

	registry *prometheus.Registry

	mute  atomic.Bool  // true while its connections are silenced, see mutable
	black atomic.Bool  // true while its dials get no answer
	slow  atomic.Int64 // how long a delivery takes

	mu    sync.Mutex
	trace []string // deliveries since the last call of told or forget
	last  connector.Assignment
}

// start runs a member until it is stopped or the test ends.
func (s *cluster) start(change func(*Config, *GroupConfig), topics ...string) *member {
	s.t.Helper()
	m := &member{cluster: s, ended: make(chan struct{}), logs: &logBuffer{}}
	s.members = append(s.members, m)
	cfg := Config{Brokers: s.addrs, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if m.black.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := s.dial(ctx, network, address)
		return &mutable{Conn: conn, mute: &m.mute}, err
	}}
	gcfg := GroupConfig{Group: s.prefix + "g"}
	for _, name := range topics {
		gcfg.Topics = append(gcfg.Topics, s.prefix+name)
	}
	s.tune(&cfg, &gcfg)
	if change != nil {
		change(&cfg, &gcfg)
	}
	var err error
	if m.client, err = NewClient(cfg); err != nil {
		s.t.Fatal(err)
	}
	m.registry = prometheus.NewRegistry()
	m.Group = NewGroup(m.client, gcfg, slog.New(slog.NewTextHandler(m.logs, nil)), m.registry)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.ended)
		m.err = m.Run(ctx, func(a connector.Assignment) { m.deliver(ctx, a) })
	}()
	s.t.Cleanup(func() { m.stop() })
	return m
}

// rerun calls Run of a member again after it has ended. The returned function stops it.
func (s *cluster) rerun(m *member) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx, func(a connector.Assignment) { m.deliver(ctx, a) }) }()
	return func() {
		s.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("the second run: %v", err)
		}
	}
}

func (m *member) deliver(ctx context.Context, a connector.Assignment) {
	slow := time.Duration(m.slow.Load())
	line := "apart"
	if a.Joined {
		line = "joined"
	}
	for _, p := range a.Partitions {
		line += " " + strings.TrimPrefix(p.String(), m.cluster.prefix)
	}
	m.mu.Lock()
	m.trace = append(m.trace, line)
	m.last = a
	m.mu.Unlock()
	select {
	case m.cluster.stir <- struct{}{}:
	default:
	}
	if slow > 0 {
		_ = reliability.Wait(ctx, slow)
	}
}

// stop ends the member and returns how long it took to leave.
func (m *member) stop() time.Duration {
	began := time.Now()
	m.cancel()
	<-m.ended
	took := time.Since(began)
	m.client.Close()
	return took
}

// now returns the assignment that was delivered last.
func (m *member) now() connector.Assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// has returns a condition for until: the member has joined and has this many partitions.
func (m *member) has(partitions int) func() bool {
	return func() bool {
		a := m.now()
		return a.Joined && len(a.Partitions) == partitions
	}
}

// missing returns the topics that the member reports as missing.
func (m *member) missing() []string { return namesOf(m.Absent(), hold.TopicMissing) }

// told waits until the member has got the wanted deliveries, and compares them with all deliveries since its last call.
// It waits because a member joins a generation before its Run delivers it, so other members may see the generation
// first.
func (m *member) told(want ...string) {
	m.cluster.t.Helper()
	m.cluster.until("a member is told of "+strings.Join(want, ", "), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.trace) >= len(want)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if diff := cmp.Diff(want, m.trace); diff != "" {
		m.cluster.t.Errorf("told (-want +got):\n%s\nlog:\n%s", diff, m.logs)
	}
	m.trace = nil
}

// metricValues returns the values of counters and gauges by name and labels.
func (m *member) metricValues() map[string]float64 {
	m.cluster.t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		m.cluster.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, l := range metric.GetLabel() {
				name += "{" + l.GetName() + "=" + l.GetValue() + "}"
			}
			values[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return values
}

// forget drops the deliveries that the member got so far.
func (m *member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trace = nil
}

func (s *cluster) create(topic string, partitions int32) idempotency.TopicID {
	s.t.Helper()
	for { // a real cluster takes a moment to forget a deleted topic
		r, err := s.admin.CreateTopic(s.t.Context(), partitions, -1, nil, s.prefix+topic)
		if err == nil {
			return idempotency.TopicID(r.ID)
		}
		if !errors.Is(err, kerr.TopicAlreadyExists) {
			s.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *cluster) delete(topic string) {
	s.t.Helper()
	if _, err := s.admin.DeleteTopic(s.t.Context(), s.prefix+topic); err != nil {
		s.t.Fatal(err)
	}
}

func (s *cluster) exists(topic string) bool {
	s.t.Helper()
	topics, err := s.admin.ListTopics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.Contains(topics.Names(), s.prefix+topic)
}

// mutable is a connection that the test can silence. A silent connection drops what is written to it, and its reads
// return nothing.
type mutable struct {
	net.Conn
	mute *atomic.Bool
}

func (c *mutable) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// logBuffer keeps the log of a member.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) count(text string) int { return strings.Count(l.String(), text) }
