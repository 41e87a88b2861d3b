package datafile

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
)

// fitAll calls o.Fit for the record batches of pieces. It returns the pieces with the results, and options that count the
// memory of the results until release is called.
func fitAll(ctx context.Context, pieces []connector.Piece, o Options) (fitted []connector.Piece, with Options, release func(), err error) {
	var batches []arrow.RecordBatch
	release = func() {
		for _, b := range batches {
			b.Release()
		}
	}
	size := int64(0)
	fitted = make([]connector.Piece, len(pieces))
	for i, p := range pieces {
		if fitted[i] = p; i > 0 && p.Rows == pieces[i-1].Rows {
			fitted[i].Rows = fitted[i-1].Rows
			continue
		}
		rows, err := o.Fit(p.Rows)
		if err == nil {
			batches, err = append(batches, rows), ctx.Err()
		}
		if err != nil {
			release()
			return nil, o, nil, fmt.Errorf("encode data file: %w", err)
		}
		fitted[i].Rows = rows
		for _, c := range rows.Columns() {
			size += sizeOf(c.Data())
		}
		o.Progress(i, size) // the pieces before this one, whose batches are converted
	}
	progress := o.Progress
	o.Fit = nil
	o.Progress = func(done int, encoded int64) { progress(done, encoded+size) }
	return fitted, o, release, nil
}
