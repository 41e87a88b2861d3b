package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	pq "github.com/apache/arrow-go/v18/parquet/schema"

	"sluice/sink/delta/bounded"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// readColumns calls each with batches of rows of a data file, atOnce rows at a time, in the order of the file. It reads
// the columns that choose picks from the schema of the file, with at most the given bytes of memory. A batch is valid
// until each returns. An error of choose or of each ends the read and is returned unchanged.
func readColumns(
	ctx context.Context, store objstore.Store, key string, bytes, atOnce int64,
	choose func(*pq.Schema) ([]int, error), each func(arrow.RecordBatch) error,
) error {
	object, err := deltalog.OpenObject(ctx, store, key)
	if err != nil {
		return err
	}
	content := bounded.NewParquet(object, bounded.New(bytes), func(err error) error { return fmt.Errorf("not a sound Parquet file: %w", err) })
	if err := content.Open(1 << 20); err != nil {
		return err
	}
	var columns []int
	var unfit error // from choose; it says nothing about damage
	err = content.Do(func() error {
		columns, unfit = choose(content.Content().MetaData().Schema)
		return nil
	})
	if err := cmp.Or(err, unfit); err != nil {
		return err
	}
	rows, err := content.Rows(ctx, columns, atOnce)
	if err != nil {
		return err
	}
	defer rows.Release()
	for {
		batch, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(batch); err != nil {
			return err
		}
	}
}
