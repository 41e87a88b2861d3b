package delta

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// Places calls each with the coordinates of every row of the table whose coordinates lie in where, and of some other
// rows. One goroutine makes the calls. It reads only the Kafka columns, and only of files that may hold such rows.
// The error is a hold.Error if the table has no Kafka columns or this version cannot read it. An error of each ends
// the scan and is returned unchanged.
func Places(ctx context.Context, store objstore.Store, state *deltalog.State, where []scan.Where, each func(scan.Place) error) error {
	return places(ctx, store, state, 0, where, each)
}

// Places is [Places] for the table as of a snapshot that this table returned. The guard retries failures of the store
// until ctx ends.
func (t *Table) Places(ctx context.Context, s *connector.Snapshot, where []scan.Where, each func(scan.Place) error) error {
	columns, ok := s.Schema.(*schema.Schema)
	if !ok {
		return errors.New("places: the snapshot is not one of this table")
	}
	if err := columns.HasKafkaColumns(); err != nil {
		return err
	}
	return t.Scan(ctx, s, scan.Query{Columns: kafkaPlaces(columns), Where: where}, func(rows scan.Rows) error { return eachPlace(rows, each) })
}

func places(ctx context.Context, store objstore.Store, state *deltalog.State, bytes int64, where []scan.Where, each func(scan.Place) error) error {
	columns, err := schema.FromDelta([]byte(state.Metadata.SchemaString))
	if err != nil {
		return hold.New(hold.TableUnsupported, err.Error(), err)
	}
	if err := columns.HasKafkaColumns(); err != nil {
		return err
	}
	q := scan.Query{Columns: kafkaPlaces(columns), Where: where, Bytes: bytes}
	return scan.Run(ctx, store, state, q, func(rows scan.Rows) error { return eachPlace(rows, each) })
}

// kafkaPlaces returns the columns that [eachPlace] reads: topic, partition and offset, and also the topic id if table
// is not nil and has it.
func kafkaPlaces(table *schema.Schema) [][]string {
	columns := [][]string{{schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}}
	if table != nil && table.HasTopicID() {
		columns = append(columns, []string{schema.KafkaTopicID})
	}
	return columns
}

// eachPlace calls each with the coordinates of the rows. It leaves out a row whose topic, partition or offset is null.
func eachPlace(rows scan.Rows, each func(scan.Place) error) error {
	// HasKafkaColumns has checked these types.
	topics := rows.Batch.Column(0).(*array.String)
	partitions := rows.Batch.Column(1).(*array.Int32)
	offsets := rows.Batch.Column(2).(*array.Int64)
	var ids *array.String
	if rows.Batch.NumCols() > 3 {
		ids = rows.Batch.Column(3).(*array.String)
	}
	for i := range offsets.Len() {
		if topics.IsNull(i) || partitions.IsNull(i) || offsets.IsNull(i) {
			continue
		}
		p := scan.Place{Topic: topics.Value(i), Partition: partitions.Value(i), Offset: offsets.Value(i)}
		if ids != nil && ids.IsValid(i) {
			p.TopicID = ids.Value(i)
		}
		if err := each(p); err != nil {
			return err
		}
	}
	return nil
}

// HasTopicIDs reports whether the table has a column for topic ids, as of a snapshot that this table returned.
func (t *Table) HasTopicIDs(s *connector.Snapshot) bool {
	columns, ok := s.Schema.(*schema.Schema)
	return ok && columns.HasTopicID()
}

// HasTopicIDs reports whether the table has a column for topic ids.
func HasTopicIDs(state *deltalog.State) bool { return hasTopicIDs(state.Metadata) }

func hasTopicIDs(m deltalog.Metadata) bool {
	columns, err := schema.FromDelta([]byte(m.SchemaString))
	return err == nil && columns.HasTopicID()
}
