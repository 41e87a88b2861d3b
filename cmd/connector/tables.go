package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/schema"
)

// writtenTable is a table with its own guard: what one table's store answers says nothing about the others'.
type writtenTable struct {
	*delta.Table
	path    string // below storage.url
	storing *reliability.Guard
	decoder connector.Decoder
}

// tables are those that are open, by path. Any goroutine may look.
type tables struct {
	mu     sync.Mutex
	byPath map[string]*writtenTable
}

// get returns an open table, nil if there is none of this path.
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

// open opens the table that a topic feeds, once for all topics that share it: they agree on what is asked of it. Nothing
// is read yet.
func (s *system) open(topic TopicConfig) (*writtenTable, error) {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	if t := s.tables.byPath[topic.Table]; t != nil {
		return t, nil
	}
	columns, err := schema.ParseDDL(topic.Schema)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	t := &writtenTable{path: topic.Table, decoder: decode.JSON{}}
	t.storing = s.guard("store", t.path, objstore.ErrNotFound, objstore.ErrExists)
	t.Table, err = delta.Open(objstore.Sub(s.store, t.path), delta.Options{
		Pipeline: s.config.Pipeline, Engine: "sluice/" + readBuild().Version, Schema: columns, FileSize: topic.Commit.FileSize,
		Guard: t.storing, Logger: s.logger.With("table", t.path),
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"table": t.path}, s.registry),
	})
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", t.path, err)
	}
	if s.tables.byPath == nil {
		s.tables.byPath = map[string]*writtenTable{}
	}
	s.tables.byPath[t.path] = t
	return t, nil
}

// route says which table a topic feeds. It opens the table if it is the first topic to do so.
func (s *system) route(name string) (connector.TopicConfig, connector.Target, bool) {
	topic, ok := s.config.Topics[name]
	if !ok {
		return connector.TopicConfig{}, connector.Target{}, false
	}
	t, err := s.open(topic)
	if err != nil { // the configuration was checked: only a mistake of ours is left
		s.logger.Error("the table of a topic cannot be opened", "topic", name, "err", err)
		return connector.TopicConfig{}, connector.Target{}, false
	}
	return connector.TopicConfig{
		Topic: name, Table: topic.Table, Start: topic.start(),
		Commit: connector.Limits{Every: topic.Commit.Every, Rows: topic.Commit.Rows, Bytes: topic.Commit.Bytes},
	}, connector.Target{Table: t, Decoder: t.decoder}, true
}
