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

// GroupConfig says which group to join and how patient to be. Durations that are zero take their defaults.
type GroupConfig struct {
	// Group is the group's id.
	Group string
	// Topics are subscribed to as far as they exist. The others are waited for.
	Topics []string
	// Optional are topics that are subscribed to once they exist, and not missed before. It is asked at each look and may
	// be nil.
	Optional func() []string
	// Matches says which topics are subscribed to besides, those that are created later included. Kafka's internal ones
	// are never asked about. nil: none, and only Topics are looked at.
	Matches func(topic string) bool
	// Beyond returns which of the topics are too many, and why. Of topics that share a limit the first ones in names stay.
	// nil: none.
	Beyond func(names []string) map[string]string
	// Session is how long the coordinator waits for a silent member: 30 s, or the client's. Heartbeats come ten times as
	// often; an exchange with the coordinator may take half of it.
	Session time.Duration
	// Rebalance is how long the coordinator waits for the members to join a generation: 60 s.
	Rebalance time.Duration
	// WatchEvery is how often topics are looked at: 30 s. Confirm is after what time a finding that a broker with old
	// metadata can produce must show again: 5 s, and not longer than WatchEvery.
	WatchEvery, Confirm time.Duration
	// Leave bounds how long leaving may take, whatever the brokers do: 5 s.
	Leave time.Duration
}

const (
	defaultRebalance  = 60 * time.Second
	defaultWatchEvery = 30 * time.Second
	defaultConfirm    = 5 * time.Second
	defaultLeave      = 5 * time.Second
)

// Group is this member's part in a consumer group. It implements [connector.Group].
//
//	waiting ─▶ joining ─▶ joined ─▶ ended ─▶ joining …
//	   ▲          ▲                   │
//	   └──────────┴── topics changed ─┘
//
// waiting: none of the topics exists. ended: the generation is over; its claims go on.
type Group struct {
	client  *Client
	cfg     GroupConfig
	logger  *slog.Logger
	metrics *groupMetrics
	backoff reliability.Backoff

	joinFailing, pollFailing reliability.FailureLog

	mu            sync.Mutex
	absent        []Absent
	absentFailing map[string]*reliability.FailureLog // by cause, for as long as the same topics are absent
	first         map[string]bool                    // the topics that were there at the first look
	within        map[string]bool                    // the topics of the last look that are read
	last          generation                         // the newest one, be it over
	trouble       *Trouble                           // since the last generation or look that worked
}

var _ connector.Group = (*Group)(nil)

// generation is what this member was given in one generation of the group.
type generation struct {
	id     int32
	member string // empty: none yet, or the group was left
	claims []connector.Partition
}

// NewGroup returns a member that joins when it is run. reg may be nil.
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
		// Well within a session: a new coordinator gives every member one, and expels those that have not joined by then.
		backoff:       reliability.Backoff{Initial: 200 * time.Millisecond, Max: cfg.Session / 6, Jitter: 0.25},
		absentFailing: map[string]*reliability.FailureLog{},
	}
}

// Absent returns the topics that are meant and not read, as last seen by Run. They are held.
func (g *Group) Absent() []Absent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.absent)
}

// appeared returns those topics of claims that did not exist when Run looked for the first time.
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

// Trouble returns what keeps this member out of the group, or its topics unknown.
func (g *Group) Trouble() (Trouble, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble == nil {
		return Trouble{}, false
	}
	return *g.trouble, true
}

// troubles notes a failure, nil a success.
func (g *Group) troubles(err error) {
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

// Run joins the group, delivers each new assignment and leaves when ctx ends; then it returns nil. When a generation ends
// its claims are delivered again, not joined; while there are no topics nothing is, not joined. It returns only for a
// Fatal error besides: a [hold.Error] with hold.KafkaDenied or hold.KafkaDown. It may be called again then,
// but not twice at a time. While our certificate or credentials are refused and come from files, it returns a minute
// later, and not if the files have changed by then.
func (g *Group) Run(ctx context.Context, deliver func(connector.Assignment)) error {
	for ctx.Err() == nil {
		if err := g.serve(ctx, deliver); err != nil && ctx.Err() == nil {
			g.troubles(err)
			if untrusted(err) && g.client.dialer.Renewed(ctx, retryDenied) {
				continue
			}
			return err
		}
	}
	return nil
}

// serve is one turn of Run: until the topics change, ctx ends or a Fatal error.
func (g *Group) serve(ctx context.Context, deliver func(connector.Assignment)) error {
	topics, err := g.awaitTopics(ctx, deliver)
	if err != nil {
		return err
	}
	return g.belong(ctx, topics, deliver)
}

// awaitTopics returns the topics to subscribe to as soon as there is one.
func (g *Group) awaitTopics(ctx context.Context, deliver func(connector.Assignment)) (topics, error) {
	told, failures := false, 0
	for {
		seen, err := g.poll(ctx)
		pause := g.pause()
		switch {
		case err != nil:
			if classify.Of(err) == classify.Fatal || ctx.Err() != nil {
				return nil, err
			}
			failures++
			g.troubles(err)
			pause = g.backoff.Pause(failures)
			g.pollFailing.Failed(ctx, g.logger, slog.LevelWarn, "failed to read the topics; retrying", "err", err, "pause", pause)
		case len(seen.topics) > 0:
			g.pollFailing.Over(ctx, g.logger, "topics are readable again")
			return seen.topics, nil
		case !told:
			g.troubles(nil)
			told, failures = true, 0
			g.logger.InfoContext(ctx, "no topic exists yet; waiting for the first one")
			deliver(connector.Assignment{})
		}
		if err := reliability.Wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// belong is a member of the group, through all its generations, for as long as the set of topics stays.
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

// begin makes a generation the newest one.
func (g *Group) begin(id int32, member string, claims []connector.Partition) []connector.Partition {
	g.metrics.generations.Inc()
	g.troubles(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = generation{id, member, claims}
	return slices.Clone(claims)
}

// left forgets the membership, but not the claims, which the balancer should give back.
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

// owned is what the newest generation gave us, for the balancer.
func (g *Group) owned() owned {
	last := g.newest()
	o := owned{generation: last.id, partitions: make(map[string][]int32)}
	for _, p := range last.claims {
		o.partitions[p.Topic] = append(o.partitions[p.Topic], p.ID)
	}
	return o
}

// pause is the time until topics are looked at again. Members do not look in step.
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
			Name: "sluice_group_rejoins_total", Help: "Generations that ended, by what ended them.",
		}, []string{"reason"}),
		joined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_group_joined", Help: "1 while this member is part of a generation.",
		}),
		missing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_group_missing_topics", Help: "Topics that are meant and not read: they do not exist, are refused, or lie beyond max_topics.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.generations, m.joinFailures, m.rejoins, m.joined, m.missing)
	}
	return m
}
