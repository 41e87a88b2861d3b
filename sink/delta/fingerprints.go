package delta

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/sink/delta/scan"
)

var _ connector.FingerprintReader = (*Table)(nil)

// readBytes bounds the memory for data files while fingerprints are loaded.
const readBytes = 32 << 20

// ReadFingerprints implements connector.FingerprintReader. The [connector.Reading] that it returns reads the identity
// column and the Kafka columns of those files that may hold matching rows.
func (t *Table) ReadFingerprints(s *connector.Snapshot, q connector.FingerprintQuery) (connector.Reading, error) {
	rows, ok := s.Schema.(*schema.Schema)
	table, known := s.Table.(*schema.Schema)
	if !ok || !known {
		return nil, fmt.Errorf("read fingerprints: schemas of another kind (%T, %T)", s.Schema, s.Table)
	}
	identifier, err := rows.Identifier(q.Identity)
	if err != nil {
		return nil, err
	}
	if !table.Has(identifier.Path()) { // the next commit adds the column, and no row has a value in it yet
		return func(context.Context, func(connector.PastRows) error) error { return nil }, nil
	}
	if q.IDs {
		identifier.KeepIDs()
	}
	query := scan.Query{
		Columns: [][]string{
			identifier.Path(), {schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}, {schema.KafkaTimestamp},
		},
		Since: time.UnixMilli(q.Since), Bytes: readBytes,
	}
	if table.HasTopicID() {
		query.Columns = append(query.Columns, []string{schema.KafkaTopicID})
	}
	claims := map[string]bool{} // topic ids
	for p, span := range q.Claims {
		query.Where = append(query.Where, scan.Where{Topic: p.Topic, Partition: p.ID, From: span.From, Next: span.Next})
		claims[p.TopicID.String()] = true
	}
	read := t.scanner(s)
	return func(ctx context.Context, each func(connector.PastRows) error) error {
		return read(ctx, query, func(rows scan.Rows) error {
			return EntriesOf(identifier, rows, func(of scan.Place, entries []idempotency.Entry) error {
				if of.TopicID != "" && !claims[of.TopicID] { // the topic was created again, and these rows are older
					return nil
				}
				return each(connector.PastRows{Topic: of.Topic, Partition: of.Partition, Written: rows.Written, Entries: entries})
			})
		})
	}, nil
}

// EntriesOf turns the rows of a scan into fingerprint entries. It calls each with runs of adjacent rows of one
// partition, and with the place of the first row of the run. The columns of the scan must be those that identifier
// names, then topic, partition, offset and timestamp; the topic id may follow.
func EntriesOf(identifier *schema.Identifier, rows scan.Rows, each func(of scan.Place, entries []idempotency.Entry) error) error {
	columns := rows.Batch.Columns()
	entries, err := identifier.Entries(columns[0], columns[3], columns[4], nil)
	if err != nil {
		return fmt.Errorf("%s: %w", rows.Path, err)
	}
	topics, isText := columns[1].(*array.String)
	partitions, isInteger := columns[2].(*array.Int32)
	if !isText || !isInteger {
		return fmt.Errorf("%s: columns of %s and %s are no topics and partitions", rows.Path, columns[1].DataType(), columns[2].DataType())
	}
	id := func(int) string { return "" }
	if len(columns) > 5 {
		ids, isText := columns[5].(*array.String)
		if !isText {
			return fmt.Errorf("%s: a column of %s is no topic ids", rows.Path, columns[5].DataType())
		}
		id = func(row int) string {
			if ids.IsNull(row) {
				return ""
			}
			return ids.Value(row)
		}
	}
	for from := 0; from < len(entries); {
		same := func(row int) bool {
			return topics.IsValid(row) && partitions.IsValid(row) && columns[3].IsValid(row) &&
				topics.Value(row) == topics.Value(from) && partitions.Value(row) == partitions.Value(from) && id(row) == id(from)
		}
		to := from + 1
		if !same(from) {
			from = to // one of the Kafka coordinates is null: another program wrote the row
			continue
		}
		for to < len(entries) && same(to) {
			to++
		}
		of := scan.Place{Topic: topics.Value(from), TopicID: id(from), Partition: partitions.Value(from), Offset: entries[from].Offset}
		if err := each(of, entries[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}
