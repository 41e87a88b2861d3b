package delta

import (
	"context"
	"errors"
	"fmt"

	"sluice/connector/schema"
	"sluice/reliability/panics"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// RowFinder looks again and again whether something is in a table, as any reader would: by the table's log and its files, with
// nothing that a writer of this process knows. It is for one goroutine, and each operation of the store is done once.
type RowFinder struct {
	store objstore.Store
	state *deltalog.State // as of the last look, nil before the first
}

// NewRowFinder returns a look at the table at the root of store, which need not be there yet.
func NewRowFinder(store objstore.Store) *RowFinder { return &RowFinder{store: store} }

// Has says whether a Kafka record is a row of the table as of now, with this text in a column. A panic over what is in the
// table is an error.
func (l *RowFinder) Has(ctx context.Context, topic string, partition int32, offset int64, column, text string) (found bool, err error) {
	err = panics.Catch(func() error { found, err = l.has(ctx, topic, partition, offset, column, text); return err })
	return found, err
}

func (l *RowFinder) has(ctx context.Context, topic string, partition int32, offset int64, column, text string) (bool, error) {
	now, err := l.newest(ctx)
	if err != nil || now == nil || l.state != nil && now.Version == l.state.Version {
		return false, err
	}
	q := scan.Query{
		Columns: [][]string{{schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}, {column}},
		Where:   []scan.Where{{Topic: topic, Partition: partition, From: offset, Next: offset + 1}},
	}
	found := false
	err = scan.Run(ctx, l.store, now, q, func(r scan.Rows) error {
		return columnsOf(r.Batch, func(row Row, i int) {
			found = found || row == Row{topic, partition, offset, true} && r.Batch.Column(3).IsValid(i) && r.Batch.Column(3).ValueStr(i) == text
		})
	})
	if err != nil {
		return false, fmt.Errorf("look for a record in the table: %w", err)
	}
	l.state = now
	return found, nil
}

// newest returns the newest state, nil if there is no table.
func (l *RowFinder) newest(ctx context.Context) (s *deltalog.State, err error) {
	if l.state != nil {
		if s, err = deltalog.Refresh(ctx, l.store, l.state); !errors.Is(err, deltalog.ErrCorrupt) {
			return s, err
		}
	}
	s, err = deltalog.Load(ctx, l.store)
	if errors.Is(err, deltalog.ErrNoTable) {
		return nil, nil //nolint:nilnil // that there is none is no error here
	}
	return s, err
}
