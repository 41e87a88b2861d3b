package delta

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// Places tells which records have a row: each is called, by one goroutine, with the place of every row of a version whose
// place lies in where, and of some others. Only the columns of the places are read, of those files that may have any. A
// hold.Error says that the table cannot tell: it has no such columns, or is none that this version reads. An error of each
// ends it and is returned as it is.
func Places(
	ctx context.Context, store objstore.Store, state *deltalog.State, where []scan.Where, each func(topic string, partition int32, offset int64) error,
) error {
	return places(ctx, store, state, 0, where, each)
}

func places(
	ctx context.Context, store objstore.Store, state *deltalog.State, bytes int64, where []scan.Where,
	each func(topic string, partition int32, offset int64) error,
) error {
	columns, err := schema.FromDelta([]byte(state.Metadata.SchemaString))
	if err != nil {
		return hold.New(hold.TableUnsupported, err.Error(), err)
	}
	if err := columns.HasKafkaColumns(); err != nil {
		return err
	}
	q := scan.Query{Columns: [][]string{{schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}}, Where: where, Bytes: bytes}
	return scan.Run(ctx, store, state, q, func(rows scan.Rows) error {
		// Of these types: HasKafkaColumns has seen them.
		topics := rows.Batch.Column(0).(*array.String)
		partitions := rows.Batch.Column(1).(*array.Int32)
		offsets := rows.Batch.Column(2).(*array.Int64)
		for i := range offsets.Len() {
			if !topics.IsNull(i) && !partitions.IsNull(i) && !offsets.IsNull(i) {
				if err := each(topics.Value(i), partitions.Value(i), offsets.Value(i)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
