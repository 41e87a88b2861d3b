package delta

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pq "github.com/apache/arrow-go/v18/parquet/schema"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

const (
	// wholeBytes bounds the memory for one data file while [WholeRows] reads whole rows.
	wholeBytes = 256 << 20
	// scanBytes bounds the memory of the search for the data files that have these rows.
	scanBytes = 64 << 20
	// wholeRows is the number of rows in a batch. It is small, because each row may be as large as a record of Kafka.
	wholeRows = 64
)

// WholeRows calls each with batches of rows that have the wanted columns, lists and structs included. It reads every
// data file that has a row in where, so the batches have all these rows and maybe others. A column that a file lacks is
// missing in its batches; columns come in any order. A batch is valid until each returns. An error of each ends the
// read and is returned unchanged; other errors are those of [Places].
func WholeRows(
	ctx context.Context, store objstore.Store, state *deltalog.State, where []scan.Where, columns []string, each func(arrow.RecordBatch) error,
) error {
	return rowsOf(ctx, store, state, wholeBytes, where, columns, each)
}

// WholeRows calls [WholeRows] with the state of the last call of [Follower.Follow]; without a state it returns an error.
// bytes bounds the memory for a data file. If a checkpoint or commit of that state is gone, it returns an error, too, and
// the next call of Follow starts anew.
func (f *Follower) WholeRows(ctx context.Context, bytes int64, where []scan.Where, columns []string, each func(arrow.RecordBatch) error) error {
	return f.read(ctx, func() error { return rowsOf(ctx, f.store, f.state, bytes, where, columns, each) })
}

func rowsOf(
	ctx context.Context, store objstore.Store, state *deltalog.State, bytes int64, where []scan.Where, columns []string, each func(arrow.RecordBatch) error,
) error {
	var paths []string
	q := scan.Query{Columns: kafkaPlaces(nil), Where: where, Bytes: min(bytes, scanBytes)}
	err := scan.Run(ctx, store, state, q, func(rows scan.Rows) error {
		found := false
		err := eachPlace(rows, func(p scan.Place) error {
			found = found || slices.ContainsFunc(where, func(w scan.Where) bool {
				return p.Topic == w.Topic && p.Partition == w.Partition && p.Offset >= w.From && p.Offset < w.Next
			})
			return nil
		})
		if found && !slices.Contains(paths, rows.Path) {
			paths = append(paths, rows.Path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := wholeFile(ctx, store, deltalog.Key(path), bytes, columns, each); err != nil {
			return err
		}
	}
	return nil
}

func wholeFile(ctx context.Context, store objstore.Store, key string, bytes int64, columns []string, each func(arrow.RecordBatch) error) error {
	choose := func(of *pq.Schema) (leaves []int, err error) {
		for i := range of.NumColumns() {
			if slices.Contains(columns, of.Column(i).ColumnPath()[0]) {
				leaves = append(leaves, i)
			}
		}
		return leaves, nil
	}
	var own error // the caller's, which passes through unchanged
	err := readColumns(ctx, store, key, bytes, wholeRows, choose, func(rows arrow.RecordBatch) error {
		own = each(rows)
		return own
	})
	if own != nil {
		return own
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}
