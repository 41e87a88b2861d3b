package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/kafka"
	"sluice/health"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/schema"
)

// system is a connector with everything that it stands on. Its constructor, read top to bottom, is the picture of
// docs/architecture.md.
type system struct {
	config    *Config
	registry  *prometheus.Registry
	bucket    objstore.Store     // as opened, to close it
	store     objstore.Store     // the same, measured
	storing   *reliability.Guard // before the store
	asking    *reliability.Guard // before questions to Kafka
	client    *kafka.Client
	group     *kafka.Group
	log       *kafka.Log
	table     *delta.Table
	connector *connector.Connector
	refused   atomic.Pointer[connector.Hold] // why the store's self-test does not pass
}

// wireOptions are what tests and the demo say differently.
type wireOptions struct {
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
	untilCurrent bool
}

// wire builds a system. Nothing is connected yet; an error is a mistake in the configuration.
func wire(ctx context.Context, c *Config, o wireOptions, logger *slog.Logger) (*system, error) {
	s := &system{config: c, registry: prometheus.NewRegistry()}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	name, topic := c.Topic()

	// The table: a store, its guard, the schema, the Delta log on top.
	var err error
	if s.bucket, err = openStore(ctx, c, topic); err != nil {
		return nil, err
	}
	if s.store, err = objstore.Measured(s.bucket, s.registry); err != nil {
		return nil, fmt.Errorf("metrics of the store: %w", err)
	}
	s.storing = reliability.NewGuard("store", c.Guard(), logger, s.registry, objstore.ErrNotFound, objstore.ErrExists)
	columns, err := schema.ParseDDL(topic.Schema)
	if err != nil {
		return nil, fmt.Errorf("schema of topic %q: %w", name, err)
	}
	s.table, err = delta.Open(s.store, delta.Options{
		Pipeline: c.Pipeline, Engine: "sluice/" + readBuild().Version, Schema: columns, FileSize: topic.Commit.FileSize,
		Guard: s.storing, Logger: logger.With("table", topic.Table), Registerer: s.registry,
	})
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", topic.Table, err)
	}

	// Kafka: connections, membership, reading.
	s.client, err = kafka.NewClient(kafka.Config{Brokers: c.Kafka.Brokers, Session: c.Kafka.Session, Dial: o.dial})
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	s.asking = reliability.NewGuard("kafka", c.Guard(), logger, s.registry)
	s.group = kafka.NewGroup(s.client, kafka.GroupConfig{Group: c.Kafka.Group, Topics: []string{name}, Session: c.Kafka.Session}, logger, s.registry)
	s.log = kafka.NewLog(s.client, kafka.LogConfig{
		MaxBytes: int(c.Kafka.Fetch.MaxBytes), MaxWait: c.Kafka.Fetch.MaxWait, Rack: c.Kafka.Rack,
	}, logger, s.registry)

	// The story.
	s.connector = &connector.Connector{
		Config: connector.Config{
			Pipeline: c.Pipeline,
			Topics: []connector.TopicConfig{{
				Topic: name, Table: topic.Table, Start: topic.start(),
				Commit: connector.Limits{Every: topic.Commit.Every, Rows: topic.Commit.Rows, Bytes: topic.Commit.Bytes},
			}},
			Queue: connector.QueueConfig{
				PauseAt: int64(c.Queue.PauseAt), ResumeAt: int64(c.Queue.ResumeAt), PerKey: int64(c.Queue.PerKey),
			},
			OffsetCommitInterval: c.Kafka.OffsetCommitInterval,
			Drain:                c.Shutdown.Drain,
			UntilCurrent:         o.untilCurrent,
		},
		Group: s.group, Log: s.log, Kafka: s.asking, Standing: s.standing,
		Targets: map[string]connector.Target{topic.Table: {Table: s.table, Decoder: decode.JSON{}}},
		Logger:  logger, Metrics: s.registry,
	}
	return s, nil
}

// openStore opens the place of a topic's table.
func openStore(ctx context.Context, c *Config, topic TopicConfig) (objstore.Store, error) {
	s3 := c.Storage.S3
	o := objstore.S3Config{
		Endpoint: s3.Endpoint, Region: s3.Region, PathStyle: s3.PathStyle,
		AccessKey: string(s3.AccessKey), SecretKey: string(s3.SecretKey),
	}
	if s3.AccessKeyFile != "" {
		o.Keys = objstore.KeysFromFiles(s3.AccessKeyFile, s3.SecretKeyFile)
	}
	store, err := objstore.Open(ctx, c.TableURL(topic), o)
	if err != nil {
		return nil, fmt.Errorf("storage.url: %w", err)
	}
	return store, nil
}

// standing says why a claim stands still while somebody tries for it, or nil.
func (s *system) standing(_ string, p connector.Partition) *connector.Hold {
	if h, undecided := s.table.Undecided(); undecided {
		return &h
	}
	if h := waiting(s.storing, connector.ReasonStoreDown); h != nil {
		return h
	}
	if h := waiting(s.asking, connector.ReasonKafkaDown); h != nil {
		return h
	}
	if trouble, ok := s.log.TroubleOf(p); ok && time.Since(trouble.Since) >= troubling {
		return &connector.Hold{Reason: trouble.Reason, Detail: trouble.Err.Error(), Since: trouble.Since}
	}
	return nil
}

// waiting is the hold of everything behind an open breaker, or nil.
func waiting(g *reliability.Guard, reason connector.Reason) *connector.Hold {
	st := g.Status()
	if !st.Open {
		return nil
	}
	h := &connector.Hold{Reason: reason, Detail: "the circuit breaker is open", Since: st.Failing}
	if st.Err != nil {
		h.Detail = st.Err.Error()
	}
	return h
}

// troubling is how long a broker may not answer before its claims are said to stand: a leader that moves takes less.
const troubling = 30 * time.Second

// report is what health shows: the story's status in health's words.
func (s *system) report() health.Report {
	st := s.connector.Status()
	r := health.Report{Pipeline: s.config.Pipeline, Group: s.config.Kafka.Group, Joined: st.Joined, Resumed: st.Resumed, Draining: st.Draining}
	for _, c := range st.Claims {
		r.Partitions = append(r.Partitions, health.Partition{Topic: c.Partition.Topic, ID: c.Partition.ID, Position: c.Position, End: c.End})
		if h := c.Hold; h != nil {
			r.Holds = append(r.Holds, health.Hold{
				Topic: c.Partition.Topic, Partition: c.Partition.ID, Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Offset: h.Offset,
			})
		}
	}
	for _, topic := range s.group.Missing() {
		r.Holds = append(r.Holds, health.Hold{
			Topic: topic, Partition: -1, Reason: string(connector.ReasonTopicMissing), Detail: "the cluster has no topic of this name", Offset: -1,
		})
	}
	if h := s.refused.Load(); h != nil {
		r.Holds = append(r.Holds, health.Hold{Partition: -1, Reason: string(h.Reason), Detail: h.Detail, Since: h.Since, Offset: -1})
	}
	if trouble, ok := s.group.Trouble(); ok && len(st.Claims) == 0 { // with claims, each says for itself why it stands
		r.Holds = append(r.Holds, health.Hold{
			Partition: -1, Reason: string(trouble.Reason), Detail: trouble.Err.Error(), Since: trouble.Since, Offset: -1,
		})
	}
	r.Dependencies = s.dependencies()
	return r
}

func (s *system) dependencies() (all []health.Dependency) {
	for _, g := range []*reliability.Guard{s.storing, s.asking} {
		st := g.Status()
		d := health.Dependency{Name: st.Name, Open: st.Open}
		if st.Err != nil {
			d.Failing, d.Error = &st.Failing, st.Err.Error()
		}
		all = append(all, d)
	}
	failing := func(name string, t kafka.Trouble) {
		all = append(all, health.Dependency{Name: name, Failing: &t.Since, Error: t.Err.Error()})
	}
	if trouble, ok := s.group.Trouble(); ok {
		failing("kafka group", trouble)
	}
	for _, trouble := range s.log.Status() {
		name := "kafka"
		switch {
		case trouble.Broker >= 0:
			name = fmt.Sprintf("kafka broker %d", trouble.Broker)
		case trouble.Partition.Topic != "":
			name = "kafka " + trouble.Partition.String()
		}
		failing(name, trouble)
	}
	return all
}

// live says why the process should be restarted: its reader does not turn any more.
func (s *system) live() error {
	st := s.connector.Status()
	if st.At.IsZero() { // not started yet
		return nil
	}
	return health.Live(time.Now(), health.Loop{Name: "reader", Working: true, Tick: st.At})
}

// close ends the connections and what still writes a checkpoint.
func (s *system) close() {
	s.table.Close()
	s.client.Close()
	if c, ok := s.bucket.(io.Closer); ok {
		_ = c.Close() // nothing is written behind it
	}
}
