package deltatest

import (
	"bytes"
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"sluice/sink/delta/objstore"
)

// Batches calls each for the rows of a data file, as the library of Parquet reads them.
func Batches(ctx context.Context, store objstore.Store, key string, each func(arrow.RecordBatch) error) error {
	r, err := store.Get(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	table, err := pqarrow.ReadTable(ctx, bytes.NewReader(body), nil, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	defer table.Release()
	batches := array.NewTableReader(table, 0)
	defer batches.Release()
	for batches.Next() {
		if err := each(batches.RecordBatch()); err != nil {
			return err
		}
	}
	return nil
}
