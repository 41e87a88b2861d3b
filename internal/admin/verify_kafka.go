package admin

import (
	"context"
	"fmt"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
)

// compareTopics reads the topics of a table from their start to the table's positions and compares records with rows.
// It uses no consumer group and commits no offsets. Each request to Kafka may take as long as within.
func (v *Verification) compareTopics(ctx context.Context, o *Table, checks map[source]*rowCheck, within time.Duration) error {
	r, end, err := lookup.NewReader(ctx, o.config, within)
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

func (v *Verification) compareTopic(ctx context.Context, o *Table, name string, checks map[source]*rowCheck, r *lookup.Reader) error {
	topic, err := r.Topic(name)
	if err != nil {
		return err
	}
	var settings kafka.TopicSettings
	if err := r.Ask(func(ctx context.Context) (err error) { settings, err = r.Client.TopicSettings(ctx, name); return err }); err != nil {
		v.note("whether the topic is compacted is unknown, so a row without a record counts as a finding: %v", err)
	} else if settings.Compact {
		v.note("topic %s is compacted: a row without a record is no finding", name)
	}
	var done, total int64
	for _, p := range v.Partitions {
		if p.Topic == topic.Name && p.Position != nil {
			total += *p.Position
		}
	}
	for i := range v.Partitions {
		p := &v.Partitions[i]
		of := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: p.Partition}
		switch check := checks[source{p.Topic, p.Partition}].of(topic.ID.String()); {
		case p.Topic != topic.Name || p.Position == nil:
		case p.AppID != of.AppID(o.config.Pipeline):
			v.note("%s:%d: rows of %s are not compared: the topic is another one now, or another pipeline's", p.Topic, p.Partition, p.AppID)
		case check == nil || len(check.chains) > 1:
			v.note("%s:%d: rows are not compared: several pipelines or topics of this name filled it", p.Topic, p.Partition)
		default:
			c, err := compareRecords(ctx, r, of, *p.Position, check, nullsOf(o.config, name), func(at int64) { o.passed(done+at, total) })
			done += *p.Position
			if err != nil {
				return fmt.Errorf("%s:%d: %w", p.Topic, p.Partition, err)
			}
			if v.altered {
				if n := c.deleted(p.Committed - p.Rows); n > 0 {
					v.note("%v: %d records have no row: commits added %d rows, of which other programs deleted %d", of, n, p.Committed, p.Committed-p.Rows)
				}
			}
			p.Compared = &Comparison{c.from, c.next, c.records, c.tombstones, c.health}
			v.Findings = append(v.Findings, c.findings(source{p.Topic, p.Partition}, settings.Compact)...)
		}
	}
	return nil
}

// Comparison counts the records at [From, Next) of a partition, which verify --kafka read.
type Comparison struct {
	From       int64 `json:"from"`
	Next       int64 `json:"next"`
	Records    int64 `json:"records"`
	Tombstones int64 `json:"tombstones"` // the number of Records that have no value
	// HealthRecords are those of Records that have a value, the header HEALTHCHECK=TRUE, and no row.
	HealthRecords int64 `json:"health_records"`
}

// nullsOf returns what the table of a topic has of the topic's records without a value.
func nullsOf(cfg *config.Config, topic string) nulls {
	t, _, _ := cfg.Route(topic) // the table was opened for the topic, so there is a route
	switch {
	case t.IsLetters():
		return nullsHaveRows
	case t.Refusals().Tombstones == connector.TombstoneRows:
		return nullsMayHaveRows
	}
	return nullsHaveNone
}

// compareRecords compares the records of a partition, from the start of its log to a position, with the rows.
func compareRecords(ctx context.Context, r *lookup.Reader, p connector.Partition, position int64, rows *rowCheck, nulls nulls, passed func(int64)) (*topicCheck, error) {
	defer r.Log.Forget(p)
	bounds, err := r.Bounds(p)
	if err != nil {
		return nil, err
	}
	c := newTopicCheck(rows, bounds.LogStart)
	c.nulls = nulls
	// If a row is at or after the last stable offset, no committed record exists for it: the last call of pass counts
	// such rows.
	for at := bounds.LogStart; at < min(position, bounds.LastStable); {
		f, err := r.Fetch(ctx, p, at)
		// Retention has deleted these records during the comparison.
		if reason := lookup.ReasonOf(err); reason == hold.BehindLogStart {
			if bounds, err = r.Bounds(p); err == nil {
				at = max(at, bounds.LogStart)
				c.skip(at)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err := r.EachIn(&f, position, func(record *connector.Record) error { c.record(record); return nil }); err != nil {
			return nil, err
		}
		at = f.Next
		c.pass(min(at, position))
		passed(min(at, position))
	}
	c.pass(position)
	return c, nil
}
