package scan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

const (
	// presentBytes bounds the memory of [Present] for data files.
	presentBytes = 32 << 20
	// presentFiles is the number of files read in parallel. Each needs only two small columns, so most of the time is
	// spent waiting for the store.
	presentFiles = 4
)

// Present returns which of the given rows the table has as of state. It reads the Kafka columns of those files whose
// statistics leave the question open, until every row is found. Unless thorough is true, it reads no files to find a
// whole topic (AnyPartition): it finds the topic only if the statistics show a file with rows of this topic alone.
// Errors are those of [Run].
func Present(ctx context.Context, store objstore.Store, state *deltalog.State, of []connector.RowsOf, thorough bool) (map[connector.RowsOf]bool, error) {
	p := &presence{found: map[connector.RowsOf]bool{}, left: map[connector.RowsOf]bool{}}
	topics := map[string]bool{}
	for _, of := range of {
		if thorough || of.Partition != AnyPartition {
			p.left[of] = true
		} else {
			topics[of.Topic] = true
		}
	}
	if len(topics) > 0 {
		if err := p.ofTheirOwn(ctx, store, state, topics); err != nil {
			return nil, err
		}
	}
	if len(p.left) > 0 {
		if err := p.read(ctx, store, state); err != nil {
			return nil, err
		}
	}
	return p.found, nil
}

// presence has the rows that were found and those still missing.
type presence struct{ found, left map[connector.RowsOf]bool }

// ofTheirOwn adds to p.found each of the topics for which some file, by its statistics, has rows of this topic and no
// other. It deletes these topics from topics.
func (p *presence) ofTheirOwn(ctx context.Context, store objstore.Store, state *deltalog.State, topics map[string]bool) error {
	filter := newFilter(Query{}, state.Metadata)
	for f, err := range deltalog.Files(ctx, store, state) {
		if err != nil {
			return fmt.Errorf("look for topics in the statistics: %w", err)
		}
		if b := filter.boundsOf(f.Add); b.topicKnown && b.topicLow == b.topicHigh && topics[b.topicLow] {
			p.found[connector.RowsOf{Topic: b.topicLow, Partition: AnyPartition}] = true
			if delete(topics, b.topicLow); len(topics) == 0 {
				return nil
			}
		}
	}
	return nil
}

var errAllFound = errors.New("there is a row of each")

// read reads the files that may have rows that are not found yet. Once a row is found, it reads no further file to find
// that row.
func (p *presence) read(ctx context.Context, store objstore.Store, state *deltalog.State) error {
	q := Query{Columns: [][]string{{schema.KafkaTopic}}, Where: p.where(), Bytes: presentBytes, Parallel: presentFiles}
	if slices.ContainsFunc(q.Where, func(w Where) bool { return w.Partition != AnyPartition }) {
		q.Columns = append(q.Columns, []string{schema.KafkaPartition})
	}
	s, err := newScan(store, state, q)
	if err != nil {
		return err
	}
	s.each = func(r Rows) error {
		before := len(p.left)
		if err := p.note(r.Batch); err != nil || len(p.left) == before {
			return err
		}
		if s.filter.where = p.where(); len(p.left) == 0 {
			return errAllFound
		}
		return nil
	}
	if err := s.run(ctx, state); err != nil && !errors.Is(err, errAllFound) {
		return err
	}
	return nil
}

// where returns the query for the missing rows.
func (p *presence) where() []Where {
	var where []Where
	for of := range maps.Keys(p.left) {
		where = append(where, Where{Topic: of.Topic, Partition: of.Partition, From: math.MinInt64, Next: math.MaxInt64})
	}
	return where
}

// note records the rows of a batch: their topics, and their partitions if partitions are requested.
func (p *presence) note(batch arrow.RecordBatch) error {
	topics := batch.Column(0)
	var partitions *array.Int32
	if batch.NumCols() > 1 {
		var ok bool
		if partitions, ok = batch.Column(1).(*array.Int32); !ok {
			return unsupported("its column %s is no int", schema.KafkaPartition)
		}
	}
	var last connector.RowsOf
	for i := range topics.Len() {
		if topics.IsNull(i) {
			continue
		}
		row := connector.RowsOf{Topic: topics.ValueStr(i), Partition: AnyPartition}
		if partitions != nil && partitions.IsValid(i) {
			row.Partition = partitions.Value(i)
		}
		if row == last {
			continue
		}
		last = row
		for _, of := range []connector.RowsOf{row, {Topic: row.Topic, Partition: AnyPartition}} {
			if p.left[of] {
				delete(p.left, of)
				p.found[of] = true
			}
		}
	}
	return nil
}
