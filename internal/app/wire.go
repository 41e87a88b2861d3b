// Package app runs one member: it builds the pipeline and its dependencies, starts them in order, watches them, and
// reports the member's health.
package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/connector/pipeline"
	"sluice/health/canary"
	"sluice/health/lettercount"
	"sluice/health/liveness"
	"sluice/health/membership"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
	"sluice/reliability/origin"
	"sluice/reliability/pulse"
	"sluice/secure/reload"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
	"sluice/sink/opslog/mirror"
)

// Member is a pipeline with all its dependencies and watchers. [New] builds them without connecting; [Member.Run]
// starts them.
type Member struct {
	config           *config.Config
	logger           *slog.Logger
	version          string // the version of this program
	untilCurrent     bool
	healthListens    func(net.Addr)
	registry         *prometheus.Registry
	frontEnd         FrontEnd           // nil if there is none
	bucket           objstore.Store     // the store as it was opened, to be closed at the end
	store            objstore.Store     // bucket with metrics; all tables are in it
	kafkaGuard       *reliability.Guard // for requests to Kafka
	operationsGuard  *reliability.Guard // for requests for the operations log
	client           *kafka.Client
	group            *kafka.Group
	log              *kafka.Log
	pools            connector.Pools
	encoders         *datafile.Shares
	fingerprints     *idempotency.Memory // the fingerprints in this process; empty if Postgres stores them
	remembering      idempotency.Store
	fingerprintGuard *reliability.Guard        // for requests to Postgres; nil if it is not used
	forget           func()                    // closes the connections to Postgres; may be nil
	secrets          heldSecrets               // the secrets of health-check records
	originKeys       *reload.File[origin.Keys] // the keys of replays through the topic; nil if none are configured
	tables           tables
	// fixed has the topics of a run until current; nil until fix has found them, and in other runs. Only fix stores it,
	// once, and the map does not change afterwards: the group, and the watchers that start before fix, read it at any
	// time.
	fixed atomic.Pointer[map[string]bool]
	// over has the topics of fixed that exceed max_topics of their pattern, with the reason. fix stores it before
	// fixed.
	over       atomic.Pointer[map[string]string]
	operations *opslog.Follower
	mirror     *mirror.Mirror // copies the operations log to Postgres; nil if it is not configured
	canary     *canary.Canary // nil if there is none
	pipeline   *pipeline.Pipeline
	// registrations is the store of registrations; nil if the configuration has none.
	registrations membership.Store
	keeper        *membership.Keeper
	advertiser    *advertiser
	letters       atomic.Pointer[letterWatch] // nil while this member does not count dead letters
	letterRate    lettercount.Rate            // the rate of dead letters that this member writes
	loops         pulse.Loops
	watchdog      *liveness.Watchdog
	losses        *lossWatch
	lags          *lagWatch                 // nil if health is turned off
	refused       atomic.Pointer[hold.Hold] // the hold after a failed self-test of the store; nil before, and once it passes
	tested        atomic.Bool               // true once the self-test of the store has passed
}

// Options holds the settings of a member that are not part of the configuration file.
type Options struct {
	Version string // the version of this program
	// True if the member must end once the tables have all records up to the end offsets at its start.
	UntilCurrent bool
	WatchEvery   time.Duration // the pause between two polls of the topics; 0 for the default
	Stderr       io.Writer     // receives dumps of goroutines; may be nil
	Exit         func()        // ends the process if a shutdown takes too long; may be nil

	// FrontEnd returns a server that runs beside the member, such as the ops API; nil for none. It may use the methods
	// of the member at any time.
	FrontEnd func(ctx context.Context, m *Member) (FrontEnd, error)

	// HealthListens, if not nil, gets the address of the health server as soon as it listens, before FrontEnd listens.
	HealthListens func(net.Addr)

	// In tests:
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	store func(objstore.Store) objstore.Store // wraps the store; may be nil
	// fingerprints returns the store of fingerprints in place of Postgres, whose guard it gets; may be nil.
	fingerprints func(*reliability.Guard) idempotency.Store
}

// FrontEnd is a server that a member runs.
type FrontEnd interface {
	// Listen binds the address, so that an address in use is known before anything else starts.
	Listen(ctx context.Context) (net.Addr, error)
	// Run serves until ctx ends. Work that no request waits for ends once draining is closed.
	Run(ctx context.Context, draining <-chan struct{}) error
}

// New builds a member. It does not connect yet; an error means a mistake in the configuration.
func New(ctx context.Context, c *config.Config, o Options, logger *slog.Logger) (*Member, error) {
	s := &Member{
		config: c, logger: logger, version: o.Version, untilCurrent: o.UntilCurrent, healthListens: o.HealthListens, registry: prometheus.NewRegistry(),
		pools:    c.Budget.Pools(),
		encoders: datafile.NewShares(c.Budget.Encoders(runtime.GOMAXPROCS(0))),
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	s.watchdog = liveness.NewWatchdog(&s.loops, liveness.NewFile(c.Health.LivenessFile), o.Stderr, logger)
	// The live heap shows growth that other metrics hide: heap and resident memory rise and fall with each garbage
	// collection.
	live := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}
	s.registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(live)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	// The store of fingerprints, which the tables need.
	if err := s.remember(ctx, o.fingerprints); err != nil {
		return nil, err
	}

	// The Kafka client; tables also use it for their dead letters.
	var err error
	c.WarnPlaintext(logger)
	if s.client, err = open.Kafka(c, o.dial, logger, s.registry); err != nil {
		return nil, err
	}

	// The store, and the tables in it that the configuration names.
	if s.bucket, err = open.Store(ctx, c); err != nil {
		return nil, err
	}
	store := s.bucket
	if o.store != nil {
		store = o.store(store)
	}
	if s.store, err = objstore.Measured(store, s.registry); err != nil {
		return nil, fmt.Errorf("metrics of the store: %w", err)
	}
	if s.secrets, err = openSecrets(ctx, c, logger); err != nil {
		return nil, err
	}
	if err := s.openOrigins(ctx); err != nil {
		return nil, err
	}
	for _, name := range c.TopicNames() {
		if _, err := s.open(c.Topics[name]); err != nil {
			return nil, fmt.Errorf("topic %q: %w", name, err)
		}
	}
	if err := s.follow(); err != nil {
		return nil, err
	}

	// The Kafka group and fetching.
	s.kafkaGuard = s.guard("kafka")
	group := kafka.GroupConfig{
		Group: c.Kafka.Group, Topics: c.TopicNames(), Optional: s.laterTopics, Session: c.Kafka.Session, WatchEvery: o.WatchEvery,
	}
	if len(c.Patterns) > 0 {
		group.Matches, group.Beyond = s.matches, s.beyond
	}
	s.group = kafka.NewGroup(s.client, group, logger, s.registry)
	s.registry.MustRegister(bytepool.Collector(map[string]*bytepool.Pool{"fetch": s.pools.Fetch, "batch": s.pools.Batch}))
	s.log = kafka.NewLog(s.client, kafka.LogConfig{
		Memory:   s.pools.Fetch,
		MaxBytes: int(c.Kafka.Fetch.MaxBytes), MaxWait: c.Kafka.Fetch.MaxWait, Rack: c.Kafka.Rack,
		Loops: &s.loops,
	}, logger, s.registry)

	// The pipeline.
	s.pipeline = &pipeline.Pipeline{
		Config: pipeline.Config{
			Pipeline: c.Pipeline,
			Topics:   c.TopicNames(),
			Queue: connector.QueueConfig{
				PauseAt: int64(c.Queue.PauseAt), ResumeAt: int64(c.Queue.ResumeAt), PerKey: int64(c.Queue.PerKey),
			},
			OffsetCommitInterval: c.Kafka.OffsetCommitInterval,
			Drain:                c.Shutdown.Drain,
			UntilCurrent:         o.UntilCurrent,
			Member:               memberName(),
		},
		Group: s.group, Log: s.log, Kafka: s.kafkaGuard, Pools: s.pools, Tables: feeds{s}, Decisions: decisions{s},
		Logger: logger, Metrics: s.registry, Loops: &s.loops,
	}
	s.losses = newLossWatch(s)
	if c.Health.Enabled {
		s.lags = newLagWatch(s)
	}
	if c.Health.Canary.Topic != "" && !o.UntilCurrent {
		if s.canary, err = s.newCanary(); err != nil {
			return nil, err
		}
	}
	if err := s.register(ctx); err != nil {
		return nil, err
	}
	if o.FrontEnd != nil {
		if s.frontEnd, err = o.FrontEnd(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Registry returns the metrics of the member.
func (s *Member) Registry() *prometheus.Registry { return s.registry }

// Name returns the name of the member, which no other process has; see memberName.
func (s *Member) Name() string { return s.pipeline.Member }

// memberName returns a unique name of this process: host and process id for people, and a random part for containers,
// whose processes all have id 1.
func memberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32())
}

// guard returns the guard of a dependency that all tables share. Errors in answers count as responses of the
// dependency, not as failures of it.
func (s *Member) guard(dependency string, answers ...error) *reliability.Guard {
	return reliability.NewGuard(dependency, s.config.Guard(), s.logger, s.labelled(""), answers...)
}

// labelled returns the registerer for the metrics of a table. Metrics of one name must have the same labels, so for the
// metrics of shared dependencies it sets the label table to "".
func (s *Member) labelled(table string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"table": table}, s.registry)
}

// Close cancels the checkpoints that are being written, waits for their goroutines, and closes the connections.
func (s *Member) Close() {
	for _, t := range s.tables.all() {
		t.Close()
	}
	s.client.Close()
	if s.forget != nil {
		s.forget()
	}
	if s.registrations != nil {
		_ = s.registrations.Close() // Close can lose no data, so its error does not matter
	}
	if c, ok := s.bucket.(io.Closer); ok {
		_ = c.Close() // Close can lose no data, so its error does not matter
	}
}
