package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/idempotency"
)

// scene is a cluster with members of a group, in virtual time if the cluster is the in-process one.
type scene struct {
	t     *testing.T
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	addrs []string
	group string
	fake  *kfake.Cluster // nil for a real one
	admin *kadm.Client
	trace *trace
}

// inBubble runs a test with an in-process cluster in virtual time. The bubble fails if a goroutine outlives the test.
func inBubble(t *testing.T, test func(t *testing.T, w *scene), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		opts := append([]kfake.Opt{kfake.Ports(9092, 9093), kfake.ListenFn(network.Listen)}, opts...)
		fake, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer fake.Close()
		w := newScene(t, []string{"localhost:9092", "localhost:9093"}, network.DialContext, "g")
		defer w.admin.Close()
		w.fake = fake
		test(t, w)
	})
}

func newScene(t *testing.T, addrs []string, dial func(ctx context.Context, network, address string) (net.Conn, error), group string) *scene {
	t.Helper()
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...), kgo.Dialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	return &scene{t: t, dial: dial, addrs: addrs, group: group, admin: admin, trace: &trace{}}
}

// trace is what members were told, in order.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (tr *trace) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last call.
func (tr *trace) take() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	defer func() { tr.lines = nil }()
	return strings.Join(tr.lines, "\n")
}

// member is a running Group.
type member struct {
	*Group
	name   string
	client *Client
	leave  context.CancelFunc
	ended  chan struct{}
	err    error // of Run, after ended
	logs   *logBuffer

	mu  sync.Mutex
	got []connector.Assignment
}

// start runs a member until the test ends or it is stopped.
func (w *scene) start(name string, change func(*Config, *GroupConfig), topics ...string) *member {
	w.t.Helper()
	cfg := Config{Brokers: w.addrs, Dial: w.dial}
	gcfg := GroupConfig{Group: w.group, Topics: topics}
	if change != nil {
		change(&cfg, &gcfg)
	}
	client, err := NewClient(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{name: name, client: client, ended: make(chan struct{}), logs: &logBuffer{}}
	m.Group = NewGroup(client, gcfg, slog.New(slog.NewTextHandler(m.logs, nil)), prometheus.NewRegistry())
	ctx, leave := context.WithCancel(context.Background())
	m.leave = leave
	go func() {
		defer close(m.ended)
		m.err = m.Run(ctx, func(a connector.Assignment) {
			m.mu.Lock()
			m.got = append(m.got, a)
			m.mu.Unlock()
			w.trace.add("%s %s", name, show(a))
		})
	}()
	w.t.Cleanup(func() { w.stop(m) })
	return m
}

// stop ends a member and waits for it. It returns how long that took.
func (w *scene) stop(m *member) time.Duration {
	began := time.Now()
	m.leave()
	<-m.ended
	m.client.Close()
	return time.Since(began)
}

func show(a connector.Assignment) string {
	var b strings.Builder
	if a.Joined {
		b.WriteString("joined")
	} else {
		b.WriteString("apart ")
	}
	for _, p := range a.Partitions {
		b.WriteString(" " + p.String())
	}
	return b.String()
}

// now is the newest assignment of a member.
func (m *member) now() connector.Assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.got) == 0 {
		return connector.Assignment{}
	}
	return m.got[len(m.got)-1]
}

func (w *scene) create(topic string, partitions int32) idempotency.TopicID {
	w.t.Helper()
	r, err := w.admin.CreateTopic(w.t.Context(), partitions, -1, nil, topic)
	if err != nil {
		w.t.Fatal(err)
	}
	return idempotency.TopicID(r.ID)
}

func (w *scene) delete(topic string) {
	w.t.Helper()
	if _, err := w.admin.DeleteTopic(w.t.Context(), topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		w.t.Fatal(err)
	}
}

func (w *scene) topics() []string {
	w.t.Helper()
	topics, err := w.admin.ListTopics(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.Sorted(slices.Values(topics.Names()))
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
