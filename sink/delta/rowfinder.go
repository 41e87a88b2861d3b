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

// RowFinder checks repeatedly whether a record is in a table, as any reader would: from the log and the data files,
// independent of the writers in this process. It is for one goroutine, and does each operation of the store once.
type RowFinder struct {
	store objstore.Store
	state *deltalog.State // the newest state as of the last check, nil before the first check
}

// NewRowFinder returns a finder for the table at the root of store. The table need not exist yet.
func NewRowFinder(store objstore.Store) *RowFinder { return &RowFinder{store: store} }

// Has reports whether the newest version of the table has a row with these coordinates and with this text in the
// column. If the version is that of the last call, it returns false without a scan: a caller asks for one record until
// it is found. A panic over the content of the table becomes an error.
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
		return false, fmt.Errorf("search the table for a record: %w", err)
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
		return nil, nil //nolint:nilnil // a missing table is not an error here
	}
	return s, err
}
