package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/connector"
)

// The columns that say which Kafka record a row is. Their prefix is reserved.
const (
	KafkaTopic     = "_kafka_topic"
	KafkaPartition = "_kafka_partition"
	KafkaOffset    = "_kafka_offset"
	KafkaTimestamp = "_kafka_timestamp"

	kafkaPrefix = "_kafka_"
)

// kafkaColumns are nullable although every row of ours has them: another writer may add rows that stem from nowhere in
// Kafka, a column can be added to an existing table only as nullable, and NOT NULL columns are what readers and
// engines differ in most. What makes rows unique is the txn in the log, not a constraint of these columns.
func kafkaColumns() []Field {
	column := func(name string, k Kind, comment string) Field {
		return Field{Name: name, Type: Type{Kind: k}, Nullable: true, Metadata: json.RawMessage(`{"comment":"` + comment + `"}`)}
	}
	return []Field{
		column(KafkaTopic, String, "topic of the Kafka record"),
		column(KafkaPartition, Integer, "partition of the Kafka record"),
		column(KafkaOffset, Long, "offset of the Kafka record in its partition"),
		column(KafkaTimestamp, Timestamp, "timestamp of the Kafka record"),
	}
}

// WithKafkaColumns returns the schema of a new table: the Kafka columns come first, so that statistics always cover
// them. Columns of these names that are there already are left out.
func (s *Schema) WithKafkaColumns() *Schema {
	rest := slices.DeleteFunc(slices.Clone(s.fields), func(f Field) bool { return IsKafkaColumn(f.Name) })
	return &Schema{append(kafkaColumns(), rest...), s.partitions}
}

// IsKafkaColumn says whether a column is filled from the coordinates of the record and not from its value.
func IsKafkaColumn(name string) bool {
	switch name {
	case KafkaTopic, KafkaPartition, KafkaOffset, KafkaTimestamp:
		return true
	}
	return false
}

// HasKafkaColumns returns a HoldError with ReasonSchemaConflict if the table lacks a Kafka column or has one of
// another type.
func (s *Schema) HasKafkaColumns() error {
	var missing []string
	for _, want := range kafkaColumns() {
		i := slices.IndexFunc(s.fields, func(f Field) bool { return f.Name == want.Name })
		if i < 0 {
			missing = append(missing, want.Name+" "+want.Type.String())
			continue
		}
		if got := s.fields[i].Type; got.Kind != want.Type.Kind {
			return conflict("column %s is %s and must be %s", want.Name, got, want.Type)
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, ", ")
		return conflict("the table has no columns %s; add them with ALTER TABLE … ADD COLUMNS (%s), or let another table be created", list, list)
	}
	return nil
}

func conflict(format string, args ...any) error {
	return connector.Held(connector.ReasonSchemaConflict, fmt.Sprintf(format, args...), nil)
}
