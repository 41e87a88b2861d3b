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
	"sluice/reliability/pulse"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// Member is a pipeline with all its dependencies and watchers. [New] builds them without connecting; [Member.Run]
// starts them.
type Member struct {
	config           *config.Config
	logger           *slog.Logger
	version          string // of this program
	untilCurrent     bool
	registry         *prometheus.Registry
	frontEnd         FrontEnd           // nil without one
	bucket           objstore.Store     // the store as opened; Close closes it
	store            objstore.Store     // bucket with metrics; contains all tables
	kafkaGuard       *reliability.Guard // of requests to Kafka
	operationsGuard  *reliability.Guard // of the operations log
	client           *kafka.Client
	group            *kafka.Group
	log              *kafka.Log
	pools            connector.Pools
	encoders         *datafile.Shares
	fingerprints     *idempotency.Memory // in this process; empty if Postgres stores them
	remembering      idempotency.Store
	fingerprintGuard *reliability.Guard // of Postgres; nil without it
	forget           func()             // closes the connections to Postgres; may be nil
	secrets          heldSecrets        // of health-check records
	tables           tables
	// fixed has the topics of a run until current; nil until fix has found them, and in other runs. Only fix stores it,
	// once, and the map does not change afterwards: the group, and the watchers that start before fix, read it at any
	// time.
	fixed atomic.Pointer[map[string]bool]
	// over has the topics of fixed that exceed max_topics of their pattern, with the reason. fix stores it before
	// fixed.
	over       atomic.Pointer[map[string]string]
	operations *opslog.Follower
	canary     *canary.Canary // nil without a canary
	pipeline   *pipeline.Pipeline
	// Registrations of members; nil if the configuration has none.
	registrations membership.Store
	keeper        *membership.Keeper
	letters       atomic.Pointer[letterWatch] // nil while this member does not count dead letters
	letterRate    lettercount.Rate            // of the dead letters that this member writes
	loops         pulse.Loops
	watchdog      *liveness.Watchdog
	losses        *lossWatch
	lags          *lagWatch                 // nil without health
	refused       atomic.Pointer[hold.Hold] // the hold after a failed self-test of the store; nil before, and once it passes
	tested        atomic.Bool               // the self-test passed
}

// Options holds the settings of a member that are not part of the configuration file.
type Options struct {
	Version      string        // of this program
	UntilCurrent bool          // end once the tables have all records up to the end offsets at the start
	WatchEvery   time.Duration // how often topics are polled; 0 for the default
	Stderr       io.Writer     // receives dumps of goroutines; may be nil
	Exit         func()        // ends the process if a shutdown takes too long; may be nil

	// FrontEnd returns a server that runs beside the member, such as the ops API; nil for none. It may use the methods
	// of the member at any time.
	FrontEnd func(ctx context.Context, m *Member) (FrontEnd, error)

	// In tests:
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	store func(objstore.Store) objstore.Store // wraps the store; may be nil
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
		config: c, logger: logger, version: o.Version, untilCurrent: o.UntilCurrent, registry: prometheus.NewRegistry(),
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

	// The store of fingerprints.
	if err := s.remember(ctx); err != nil {
		return nil, err
	}

	// The Kafka client; tables use it for their dead letters, too.
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

// guard returns the guard of a dependency that all tables share. The guard counts the errors in answers as responses of
// the dependency, not as failures.
func (s *Member) guard(dependency string, answers ...error) *reliability.Guard {
	return reliability.NewGuard(dependency, s.config.Guard(), s.logger, s.labelled(""), answers...)
}

// labelled returns the registerer for the metrics of a table. Metrics of dependencies that all tables share get an
// empty label, because metrics of one name need the same labels.
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
		_ = s.registrations.Close() // it keeps no unwritten data
	}
	if c, ok := s.bucket.(io.Closer); ok {
		_ = c.Close() // it keeps no unwritten data
	}
}
