package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// compareTopics reads the topics of a table from their start to the table's positions and compares records with rows. It
// reads as any reader of committed records and leaves no trace: no group, no offsets. An answer may take as long as
// within.
func (v *verification) compareTopics(ctx context.Context, o *opened, checks map[source]*rowCheck, within time.Duration) error {
	v.withKafka = true
	r, end, err := newTopicReader(ctx, o.config, within)
	if err != nil {
		return err
	}
	defer end()
	for _, name := range o.topics {
		if err := v.compareTopic(ctx, o, name, checks, r); err != nil {
			return fail.Dependency(fmt.Errorf("compare with topic %s: %w", name, err))
		}
	}
	return nil
}

func (v *verification) compareTopic(ctx context.Context, o *opened, name string, checks map[source]*rowCheck, r *topicReader) error {
	var topic connector.Topic
	if err := r.ask(func(ctx context.Context) (err error) { topic, err = r.log.Topic(ctx, name); return err }); err != nil {
		return err
	}
	var settings kafka.TopicSettings
	if err := r.ask(func(ctx context.Context) (err error) { settings, err = r.client.TopicSettings(ctx, name); return err }); err != nil {
		v.note("whether the topic is compacted is unknown, so a row without a record counts as a finding: %v", err)
	} else if settings.Compact {
		v.note("topic %s is compacted: a row without a record is no finding", name)
	}
	for i := range v.Partitions {
		p := &v.Partitions[i]
		of := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: p.Partition}
		switch check := checks[source{p.Topic, p.Partition}]; {
		case p.Topic != topic.Name || p.Position == nil:
		case p.AppID != of.AppID(o.config.Pipeline):
			v.note("%s:%d: rows of %s are not compared: the topic is another one now, or another pipeline's", p.Topic, p.Partition, p.AppID)
		case len(check.chains) > 1:
			v.note("%s:%d: rows are not compared: several pipelines or topics of this name filled it", p.Topic, p.Partition)
		default:
			c, err := r.compare(ctx, of, *p.Position, check, o.table.IsLetters())
			if err != nil {
				return fmt.Errorf("%s:%d: %w", p.Topic, p.Partition, err)
			}
			if v.altered {
				if n := c.deleted(p.Committed - p.Rows); n > 0 {
					v.note("%v: %d records have no row: commits added %d rows, of which other programs deleted %d", of, n, p.Committed, p.Committed-p.Rows)
				}
			}
			p.Compared = &comparison{c.from, c.next, c.records, c.tombstones, c.health}
			v.Findings = append(v.Findings, c.findings(source{p.Topic, p.Partition}, settings.Compact)...)
		}
	}
	return nil
}

// comparison is what verify --kafka read of a partition: the records at [From, Next).
type comparison struct {
	From       int64 `json:"from"`
	Next       int64 `json:"next"`
	Records    int64 `json:"records"`
	Tombstones int64 `json:"tombstones"` // of Records, those without a value
	// HealthRecords are those of Records that have a value, the header HEALTHCHECK=TRUE, and no row.
	HealthRecords int64 `json:"health_records"`
}

// topicReader reads partitions one after the other.
type topicReader struct {
	client  *kafka.Client
	log     *kafka.Log
	ask     func(func(context.Context) error) error
	within  time.Duration
	session uint64
	block   [1000]connector.Record
}

// newTopicReader returns a reader that works until end is called. An answer may take as long as within.
func newTopicReader(ctx context.Context, c *config.Config, within time.Duration) (r *topicReader, end func(), err error) {
	client, err := open.Kafka(c, nil, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	size := int(c.Kafka.Fetch.MaxBytes)
	r, stop := readTopics(ctx, client, kafka.LogConfig{PartitionBytes: size, MaxBytes: size}, c.Guard(), within)
	return r, func() { stop(); client.Close() }, nil
}

// readTopics returns a reader that goes through a client of others and works until end is called.
func readTopics(ctx context.Context, client *kafka.Client, o kafka.LogConfig, patient reliability.Config, within time.Duration) (r *topicReader, end func()) {
	quiet := slog.New(slog.DiscardHandler) // what goes wrong comes back as an error
	log := kafka.NewLog(client, o, quiet, prometheus.NewRegistry())
	reading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(reading) }) // it ends with its context
	guard := reliability.NewGuard("kafka", patient, quiet, nil)
	r = &topicReader{client: client, log: log, within: within, ask: func(question func(context.Context) error) error {
		asking, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return patience(asking, guard)(question)
	}}
	return r, func() { stop(); running.Wait() }
}

// each calls do with every committed record of a partition, in order, until it returns an error, which is returned as it
// is. What retention takes away meanwhile is passed over.
func (r *topicReader) each(ctx context.Context, p connector.Partition, do func(*connector.Record) error) error {
	defer r.log.Forget(p)
	bounds, err := r.bounds(p)
	if err != nil {
		return err
	}
	return r.span(ctx, p, bounds.LogStart, bounds.LastStable, do, func(int64) error { return nil })
}

// span calls do with every committed record of [from, to) of a partition, in order, and passed with the offset up to which
// that is done, after each answer. An error of theirs ends it and is returned as it is.
func (r *topicReader) span(ctx context.Context, p connector.Partition, from, to int64, do func(*connector.Record) error, passed func(int64) error) error {
	defer r.log.Forget(p)
	for at := from; at < to; {
		f, err := r.fetch(ctx, p, at)
		if reasonOf(err) == hold.BehindLogStart {
			var bounds connector.Bounds
			if bounds, err = r.bounds(p); err == nil {
				at = max(at, bounds.LogStart)
				continue
			}
		}
		if err == nil {
			err = r.eachOf(&f, to, do)
		}
		if err == nil {
			at = f.Next
			err = passed(min(at, to))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachOf does it with the records of an answer before an offset.
func (r *topicReader) eachOf(f *connector.Fetched, end int64, do func(*connector.Record) error) error {
	defer release(f)
	for f.Records != nil {
		n, err := f.Records.Read(r.block[:])
		for i := range r.block[:n] {
			if r.block[i].Offset >= end {
				return nil
			}
			if err := do(&r.block[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare reads a partition from the start of its log to a position. nulls says that records without a value have rows.
func (r *topicReader) compare(ctx context.Context, p connector.Partition, position int64, rows *rowCheck, nulls bool) (*topicCheck, error) {
	defer r.log.Forget(p)
	bounds, err := r.bounds(p)
	if err != nil {
		return nil, err
	}
	c := newTopicCheck(rows, bounds.LogStart)
	c.nulls = nulls
	// Rows at or behind the last stable offset have no committed record. That is for the end of this to find.
	for at := bounds.LogStart; at < min(position, bounds.LastStable); {
		f, err := r.fetch(ctx, p, at)
		if reason := reasonOf(err); reason == hold.BehindLogStart { // retention went on meanwhile
			if bounds, err = r.bounds(p); err == nil {
				at = max(at, bounds.LogStart)
				c.skip(at)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err := r.records(&f, position, c); err != nil {
			return nil, err
		}
		at = f.Next
	}
	c.pass(position)
	return c, nil
}

func reasonOf(err error) hold.Reason {
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return held.Reason
	}
	return ""
}

func (r *topicReader) bounds(p connector.Partition) (connector.Bounds, error) {
	var all map[connector.Partition]connector.Bounds
	err := r.ask(func(ctx context.Context) (err error) {
		all, err = r.log.Bounds(ctx, []connector.Position{{Partition: p, Next: -1, Epoch: -1}})
		return err
	})
	b, there := all[p]
	if err == nil && !there {
		err = errors.New("the topic was deleted or created again meanwhile")
	}
	return b, err
}

// fetch waits for the next answer.
func (r *topicReader) fetch(ctx context.Context, p connector.Partition, at int64) (connector.Fetched, error) {
	r.session++
	r.log.Fetch(connector.FetchRequest{Position: connector.Position{Partition: p, Next: at, Epoch: -1}, Session: r.session})
	patience, look := time.NewTimer(r.within), time.NewTicker(time.Second)
	defer patience.Stop()
	defer look.Stop()
	for {
		select {
		case f := <-r.log.Fetched():
			if f.Partition == p && f.Session == r.session {
				return f, f.Err
			}
			release(&f)
		case <-look.C: // that a partition is refused does not pass by waiting
			if trouble, ok := r.log.TroubleOf(p); ok && trouble.Partition == p && trouble.Reason == hold.KafkaDenied {
				return connector.Fetched{}, trouble.Err
			}
		case <-patience.C:
			err := fmt.Errorf("no records from offset %d on within %v", at, r.within)
			if trouble, ok := r.log.TroubleOf(p); ok {
				err = fmt.Errorf("%w: %w", err, trouble.Err)
			}
			return connector.Fetched{}, err
		case <-ctx.Done():
			return connector.Fetched{}, context.Cause(ctx)
		}
	}
}

// release gives back the memory of an answer.
func release(f *connector.Fetched) {
	if f.Records != nil {
		f.Records.Release()
	}
}

// records compares what an answer holds before position.
func (r *topicReader) records(f *connector.Fetched, position int64, c *topicCheck) error {
	defer release(f)
	for f.Records != nil {
		n, err := f.Records.Read(r.block[:])
		for i := range r.block[:n] {
			if r.block[i].Offset < position {
				c.record(&r.block[i])
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	c.pass(min(f.Next, position))
	return nil
}
