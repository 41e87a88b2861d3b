package kafka

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// GroupConfig configures a [Group]. Durations of zero take their defaults.
type GroupConfig struct {
	// Group is the id of the consumer group.
	Group string
	// Topics are the subscribed topics. The group subscribes to a missing one as soon as it exists.
	Topics []string
	// Optional returns the names of topics that the group subscribes to once they exist. Until then they do not count
	// as missing. It is called at each poll; nil means that there are none.
	Optional func() []string
	// Matches reports whether the group subscribes to a topic that neither Topics nor Optional name, also if the topic
	// is created later. It is not called for Kafka's internal topics. With nil, no further topics are subscribed.
	Matches func(topic string) bool
	// Beyond returns the topics in names that exceed a limit, each with the reason; these are not read. If several
	// topics share a limit, the first ones in names are within it. With nil there is no limit.
	Beyond func(names []string) map[string]string
	// Session is the time after which the coordinator expels a member that sends no heartbeats; if zero, Session of the
	// client. The member sends ten heartbeats in this time. An exchange with the coordinator may take half of it.
	Session time.Duration
	// Rebalance is how long the coordinator waits for members to join a new generation; 60 s if zero.
	Rebalance time.Duration
	// WatchEvery is the interval at which the member polls the topics; 30 s if zero. If a change could come from a
	// broker with old metadata, the member polls again after Confirm, and the change counts only if it is still there.
	// Confirm is 5 s if zero, and at most WatchEvery.
	WatchEvery, Confirm time.Duration
	// Leave is the most time that leaving the group may take, even if no broker answers; 5 s if zero.
	Leave time.Duration
}

const (
	defaultRebalance  = 60 * time.Second
	defaultWatchEvery = 30 * time.Second
	defaultConfirm    = 5 * time.Second
	defaultLeave      = 5 * time.Second
)

// Group is the membership of this process in a consumer group. It implements [connector.Group].
//
//	waiting ─▶ joining ─▶ joined ─▶ ended ─▶ joining …
//	   ▲          ▲                   │
//	   └──────────┴── topics changed ─┘
//
// waiting: no topic exists. ended: the generation is over, but its claims stay in use.
type Group struct {
	client  *Client
	cfg     GroupConfig
	logger  *slog.Logger
	metrics *groupMetrics
	backoff reliability.Backoff

	joinFailing, pollFailing reliability.FailureLog

	mu            sync.Mutex
	absent        []Absent
	absentFailing map[string]*reliability.FailureLog // the failure log of each cause for which topics are absent
	first         map[string]bool                    // the topics that existed at the first poll
	within        map[string]bool                    // the topics of the last poll that are within the limits
	last          generation                         // the newest generation, even if it has ended
	trouble       *Trouble                           // nil once a generation began or a poll succeeded
}

var _ connector.Group = (*Group)(nil)

// generation is the assignment of this member in one generation of the group.
type generation struct {
	id     int32
	member string // the member id; "" before the first join and after leaving
	claims []connector.Partition
}

// NewGroup returns a member that joins when [Group.Run] is called. reg may be nil.
func NewGroup(client *Client, cfg GroupConfig, logger *slog.Logger, reg prometheus.Registerer) *Group {
	cfg.Topics = slices.Compact(slices.Sorted(slices.Values(cfg.Topics)))
	cfg.Session = cmp.Or(cfg.Session, client.cfg.Session)
	cfg.Rebalance = cmp.Or(cfg.Rebalance, defaultRebalance)
	cfg.WatchEvery = cmp.Or(cfg.WatchEvery, defaultWatchEvery)
	cfg.Confirm = min(cmp.Or(cfg.Confirm, defaultConfirm), cfg.WatchEvery)
	cfg.Leave = cmp.Or(cfg.Leave, defaultLeave)
	return &Group{
		client:  client,
		cfg:     cfg,
		logger:  logger.With("group", cfg.Group),
		metrics: newGroupMetrics(reg),
		// The longest pause is well below a session, because a new coordinator expels a member that does not join
		// within one session.
		backoff:       reliability.Backoff{Initial: 200 * time.Millisecond, Max: cfg.Session / 6, Jitter: 0.25},
		absentFailing: map[string]*reliability.FailureLog{},
	}
}

// Absent returns the topics that should be read and are not, as of the last poll in Run. Each is shown as a hold.
func (g *Group) Absent() []Absent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.absent)
}

// appeared returns the topics of these claims that did not exist yet when Run polled the topics for the first time.
func (g *Group) appeared(claims []connector.Partition) (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range claims {
		if !g.first[p.Topic] && !slices.Contains(names, p.Topic) {
			names = append(names, p.Topic)
		}
	}
	return names
}

// Trouble returns why this member cannot join the group or read the topics' metadata. It returns false if it can.
func (g *Group) Trouble() (Trouble, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble == nil {
		return Trouble{}, false
	}
	return *g.trouble, true
}

// noteTrouble stores err as the current trouble; Since stays the time of the first error of the trouble. A nil err ends
// the trouble.
func (g *Group) noteTrouble(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.trouble = nil
		return
	}
	if g.trouble == nil {
		g.trouble = &Trouble{Broker: noBroker, Since: time.Now()}
	}
	g.trouble.Err, g.trouble.Reason = err, hold.KafkaDown
	if h, ok := errors.AsType[*hold.Error](err); ok {
		g.trouble.Reason = h.Reason
	}
}

// Run joins the group, delivers each new assignment and leaves when ctx ends; then it returns nil. When a generation
// ends, Run delivers its claims again with Joined false. While no topic exists, it delivers an empty assignment with
// Joined false. It returns early only for a Fatal error: a [hold.Error] with hold.KafkaDenied or hold.KafkaDown. The
// caller may then call it again, but never twice at a time.
//
// If the cluster refuses our certificate or credentials and these come from files, Run waits up to a minute before it
// returns the error. If the files change in that time, it tries again instead.
func (g *Group) Run(ctx context.Context, deliver func(connector.Assignment)) error {
	for ctx.Err() == nil {
		if err := g.serve(ctx, deliver); err != nil && ctx.Err() == nil {
			g.noteTrouble(err)
			if untrusted(err) && g.client.dialer.Renewed(ctx, retryDenied) {
				continue
			}
			return err
		}
	}
	return nil
}

// serve waits until a topic exists, joins the group, and stays in it. It returns when new topics no longer fit the
// subscription, when ctx ends, or with a Fatal error.
func (g *Group) serve(ctx context.Context, deliver func(connector.Assignment)) error {
	topics, err := g.awaitTopics(ctx, deliver)
	if err != nil {
		return err
	}
	return g.belong(ctx, topics, deliver)
}

// awaitTopics waits until at least one topic exists, and returns the topics to subscribe to.
func (g *Group) awaitTopics(ctx context.Context, deliver func(connector.Assignment)) (topics, error) {
	logged, failures := false, 0
	for {
		seen, err := g.poll(ctx)
		pause := g.pause()
		switch {
		case err != nil:
			if classify.Of(err) == classify.Fatal || ctx.Err() != nil {
				return nil, err
			}
			failures++
			g.noteTrouble(err)
			pause = g.backoff.Pause(failures)
			g.pollFailing.Failed(ctx, g.logger, slog.LevelWarn, "failed to read the topics; retrying", "err", err, "pause", pause)
		case len(seen.topics) > 0:
			g.pollFailing.Over(ctx, g.logger, "topics are readable again")
			return seen.topics, nil
		case !logged:
			g.noteTrouble(nil)
			logged, failures = true, 0
			g.logger.InfoContext(ctx, "no topic exists yet; waiting for the first one")
			deliver(connector.Assignment{})
		}
		if err := reliability.Wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// belong stays a member of the group through all of its generations. It returns when new topics no longer fit the
// subscription, when ctx ends, or with a Fatal error.
func (g *Group) belong(ctx context.Context, topics topics, deliver func(connector.Assignment)) error {
	m, err := g.join(ctx, topics)
	if err != nil {
		return err
	}
	defer m.leave(ctx)
	for {
		gen, err := m.next(ctx)
		if err != nil {
			return err
		}
		claims := g.begin(gen.ID, gen.MemberID, m.claims(gen))
		g.metrics.joined.Set(1)
		g.joinFailing.Over(ctx, g.logger, "joining the group works again")
		g.logger.InfoContext(ctx, "joined", "generation", gen.ID, "member", gen.MemberID, "claims", len(claims))
		deliver(connector.Assignment{Joined: true, Partitions: claims, Appeared: g.appeared(claims)})

		why := m.watch(ctx, gen)
		g.metrics.joined.Set(0)
		if ctx.Err() != nil {
			return nil
		}
		g.metrics.rejoins.WithLabelValues(string(why)).Inc()
		g.logger.InfoContext(ctx, "generation ended; keeping the claims", "generation", gen.ID, "reason", string(why))
		deliver(connector.Assignment{Joined: false, Partitions: slices.Clone(claims)})
		if why == topicsOutgrown {
			return nil
		}
	}
}

// begin stores a generation as the newest one and ends the trouble. It returns a copy of the claims.
func (g *Group) begin(id int32, member string, claims []connector.Partition) []connector.Partition {
	g.metrics.generations.Inc()
	g.noteTrouble(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = generation{id, member, claims}
	return slices.Clone(claims)
}

// left records that this member has left the group: the newest generation has no member id any more. Its claims stay
// recorded, so that the next join reports them as owned and the balancer returns them.
func (g *Group) left() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last.member = ""
}

// newest returns the newest generation.
func (g *Group) newest() generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// owned returns the assignment of the newest generation, for the balancer.
func (g *Group) owned() owned {
	last := g.newest()
	o := owned{generation: last.id, partitions: make(map[string][]int32)}
	for _, p := range last.claims {
		o.partitions[p.Topic] = append(o.partitions[p.Topic], p.ID)
	}
	return o
}

// pause returns how long to wait until the next poll of the topics: WatchEvery with jitter, so that the members do not
// poll at the same time.
func (g *Group) pause() time.Duration {
	return reliability.Backoff{Initial: g.cfg.WatchEvery, Max: g.cfg.WatchEvery, Jitter: g.backoff.Jitter}.Pause(1)
}

type groupMetrics struct {
	generations, joinFailures prometheus.Counter
	rejoins                   *prometheus.CounterVec
	joined, missing           prometheus.Gauge
}

func newGroupMetrics(reg prometheus.Registerer) *groupMetrics {
	m := &groupMetrics{
		generations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_group_generations_total", Help: "Generations of the group that this member was part of.",
		}),
		joinFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_group_join_failures_total", Help: "Attempts to join the group that failed.",
		}),
		rejoins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_group_rejoins_total", Help: "Generations that ended, by the reason.",
		}, []string{"reason"}),
		joined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_group_joined", Help: "1 while this member is part of a generation.",
		}),
		missing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_group_missing_topics", Help: "Topics that are configured and not read: they do not exist, are refused, or lie beyond max_topics.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.generations, m.joinFailures, m.rejoins, m.joined, m.missing)
	}
	return m
}
