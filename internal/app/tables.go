package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

// writtenTable is an open table. It has a guard of its own, so that failing requests to one table do not open the
// breaker of another.
type writtenTable struct {
	*delta.Table
	path       string // the path below storage.url
	storeGuard *reliability.Guard
	letters    *letterWriter
	decoder    connector.Decoder
	duplicates *connector.Duplicates // nil if the topics of the table declare no identity
	metrics    *revocable
}

// revocable is a registerer that can unregister all its collectors together.
type revocable struct {
	prometheus.Registerer
	registered []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (r *revocable) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.registered = append(r.registered, c)
	}
	return err
}

// MustRegister implements prometheus.Registerer.
func (r *revocable) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *revocable) revoke() {
	for _, c := range r.registered {
		r.Unregister(c)
	}
	r.registered = nil
}

// tables holds the open tables by path. Any goroutine may use it.
type tables struct {
	mu     sync.Mutex
	byPath map[string]*writtenTable
}

// get returns the open table of a path, or nil.
func (t *tables) get(path string) *writtenTable {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byPath[path]
}

// all returns the tables in the order of their paths.
func (t *tables) all() []*writtenTable {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byPath), func(a, b *writtenTable) int {
		if a.path < b.path {
			return -1
		}
		return 1
	})
}

// open returns the table that a topic feeds. It opens the table when the first topic needs it, and does not read the
// store then. The settings of all topics of a table agree, which the validation of the configuration has checked.
func (s *Member) open(topic config.Topic) (*writtenTable, error) {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	if t := s.tables.byPath[topic.Table]; t != nil {
		return t, nil
	}
	columns, err := topic.Columns()
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	t := &writtenTable{path: topic.Table, duplicates: s.duplicates(topic), decoder: topic.Decoder(s.pools.Batch), metrics: &revocable{Registerer: s.labelled(topic.Table)}}
	logger := s.logger.With("table", t.path)
	t.storeGuard = reliability.NewGuard("store", s.config.Guard(), logger, t.metrics, objstore.ErrNotFound, objstore.ErrExists)
	t.Table, err = delta.Open(objstore.Sub(s.store, t.path), delta.Options{
		Pipeline: s.config.Pipeline, Engine: "sluice/" + s.version, Schema: columns, Comment: topic.TableComment, Properties: topic.TableProperties, FileSize: topic.Commit.FileSize,
		NoStatistics: topic.NoStatistics(), TempDir: s.config.TempDir,
		Retention: func() time.Duration { return s.retention(topic.Table) },
		Encoders:  s.encoders, Guard: t.storeGuard, Logger: logger, Registerer: t.metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", t.path, err)
	}
	t.letters = s.letterWriter(t, logger)
	if s.tables.byPath == nil {
		s.tables.byPath = map[string]*writtenTable{}
	}
	s.tables.byPath[t.path] = t
	if n, room := len(s.tables.byPath), s.config.Budget.Tables(); n == room+1 {
		s.logger.Warn("more tables are open than memory.limit has room for", "tables", n, "room", room)
	}
	return t, nil
}

// retention returns how long Kafka keeps the records of the topics that feed a table, as [delta.Options.Retention]
// requires. It considers only topics of which this member has claims.
func (s *Member) retention(table string) time.Duration {
	if s.losses == nil {
		return 0
	}
	return s.losses.longest(func(name string) bool {
		topic, meant, err := s.config.Route(name)
		return meant && err == nil && topic.Table == table
	})
}

// retire removes a table and its metrics from this member. The caller calls closed when the table's writer has ended.
func (s *Member) retire(path string) (closed func()) {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	t := s.tables.byPath[path]
	delete(s.tables.byPath, path)
	t.metrics.revoke()
	return t.Close
}

// matches reports whether this member reads a topic. In a run until current these are the topics that fix has found at
// the start; otherwise, those that the configuration covers.
func (s *Member) matches(topic string) bool {
	if names := s.fixed.Load(); names != nil {
		return (*names)[topic]
	}
	_, meant, err := s.config.Route(topic)
	if err != nil {
		s.logger.Error("failed to name the table of a topic that matches a pattern; not reading the topic", "topic", topic, "err", err)
	}
	return meant && err == nil
}

// beyond returns the names that exceed max_topics of their pattern, each with the reason. In a run until current, it
// returns those of the names that exceeded it at the start.
func (s *Member) beyond(names []string) map[string]string {
	over := s.over.Load()
	if over == nil {
		return s.config.Beyond(names)
	}
	found := map[string]string{}
	for _, name := range names {
		if detail, held := (*over)[name]; held {
			found[name] = detail
		}
	}
	return found
}

// laterTopics returns the topics that may be missing until their first record: dead-letter topics and the canary topic.
// In a run until current, it returns only those that existed at the start.
func (s *Member) laterTopics() []string {
	names := s.config.LaterTopics()
	if fixed := s.fixed.Load(); fixed != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !(*fixed)[name] })
	}
	return names
}

// fix finds and stores the topics of a run until current: those with an entry, which must exist, those that match a
// pattern now, and the dead-letter topics that exist.
func (s *Member) fix(ctx context.Context) error {
	var there []string
	var beyond []kafka.Absent
	err := s.kafkaGuard.Do(ctx, func(ctx context.Context) (err error) {
		there, beyond, err = s.group.Survey(ctx)
		return err
	})
	if err != nil {
		if _, held := errors.AsType[*hold.Error](err); held {
			return fail.Found(err)
		}
		return err
	}
	for _, name := range s.config.TopicNames() {
		if !slices.Contains(there, name) {
			return fail.Found(fmt.Errorf("%s: topic %s does not exist: create it, or correct the name", hold.TopicMissing, name))
		}
	}
	if len(there) == 0 {
		return fail.Found(errors.New("no topic matches a pattern now"))
	}
	fixed := make(map[string]bool, len(there))
	for _, name := range there {
		fixed[name] = true
	}
	over := make(map[string]string, len(beyond))
	for _, a := range beyond { // topics above the limit are held until the run ends
		fixed[a.Topic], over[a.Topic] = true, a.Detail
	}
	s.over.Store(&over)
	s.fixed.Store(&fixed)
	s.pipeline.Topics = there
	return nil
}

// route returns the settings of a topic, and its table. It opens the table if this is the first topic that feeds it. It
// returns false if the configuration does not cover the topic, or if the table cannot be opened.
func (s *Member) route(name string) (connector.TopicConfig, connector.Target, bool) {
	topic, meant, err := s.config.Route(name)
	var t *writtenTable
	if meant && err == nil {
		t, err = s.open(topic)
	}
	if err != nil { // the configuration is valid, so this is a bug of Sluice
		s.logger.Error("failed to open the table of a topic", "topic", name, "err", err)
	}
	if t == nil {
		return connector.TopicConfig{}, connector.Target{}, false
	}
	return connector.TopicConfig{
		Topic: name, Table: topic.Table, Start: topic.ReadFrom(), Refuse: topic.Refusals(), Letters: topic.Rules(), Rare: topic.IsLetters(),
		Retry:         s.config.RecordRetry(topic),
		Commit:        connector.Limits{Every: topic.Commit.Every, Rows: topic.Commit.Rows, Bytes: topic.Commit.Bytes},
		HealthRecords: s.secrets.of(topic), OriginKeys: s.originsOf(topic),
	}, connector.Target{Table: t, Decoder: t.decoder, Letters: t.letters, Duplicates: t.duplicates}, true
}
