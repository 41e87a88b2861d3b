package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/reliability/hold"
)

// The columns that say which Kafka record a row comes from. Their prefix is reserved.
const (
	KafkaTopic     = "_kafka_topic"
	KafkaPartition = "_kafka_partition"
	KafkaOffset    = "_kafka_offset"
	KafkaTimestamp = "_kafka_timestamp"
	// KafkaFingerprint is the only optional column: the fingerprint of a row whose identity is in no other column, as
	// 32 hexadecimal digits.
	KafkaFingerprint = "_kafka_fingerprint"

	kafkaPrefix = "_kafka_"
)

// kafkaColumns are nullable although members fill them in every row (the timestamp only if the record has one): other
// programs may add rows without Kafka coordinates, an existing table accepts new columns only as nullable, and engines
// differ most in NOT NULL columns. The txn in the log makes rows unique, not a constraint of these columns.
func kafkaColumns() []Field {
	return []Field{
		kafkaColumn(KafkaTopic, String, "topic of the Kafka record"),
		kafkaColumn(KafkaPartition, Integer, "partition of the Kafka record"),
		kafkaColumn(KafkaOffset, Long, "offset of the Kafka record in its partition"),
		kafkaColumn(KafkaTimestamp, Timestamp, "timestamp of the Kafka record"),
	}
}

func fingerprintColumn() Field {
	return kafkaColumn(KafkaFingerprint, String, "fingerprint of what makes two Kafka records the same")
}

func kafkaColumn(name string, k Kind, comment string) Field {
	return Field{Name: name, Type: Type{Kind: k}, Nullable: true, Metadata: json.RawMessage(`{"comment":"` + comment + `"}`)}
}

// WithKafkaColumns returns the schema of a new table: the Kafka columns come first, so that statistics always cover
// them. Existing columns of these names are dropped from their old place. An existing column for fingerprints stays,
// as the last of them.
func (s *Schema) WithKafkaColumns() *Schema {
	first := kafkaColumns()
	if slices.ContainsFunc(s.fields, func(f Field) bool { return f.Name == KafkaFingerprint }) {
		first = append(first, fingerprintColumn())
	}
	rest := slices.DeleteFunc(slices.Clone(s.fields), func(f Field) bool { return IsKafkaColumn(f.Name) })
	return &Schema{append(first, rest...), s.partitions}
}

// IsKafkaColumn reports whether this program fills a column from the record's coordinates or its fingerprint, not
// from its value.
func IsKafkaColumn(name string) bool {
	switch name {
	case KafkaTopic, KafkaPartition, KafkaOffset, KafkaTimestamp, KafkaFingerprint:
		return true
	}
	return false
}

// HasKafkaColumns returns a hold.Error with hold.SchemaConflict if the table lacks a Kafka column or has one of
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
	for _, f := range s.fields {
		if f.Name == KafkaFingerprint && f.Type.Kind != String {
			return conflict("column %s is %s and must be string", f.Name, f.Type)
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, ", ")
		return conflict("the table has no columns %s; add them with ALTER TABLE … ADD COLUMNS (%s), or let another table be created", list, list)
	}
	return nil
}

func conflict(format string, args ...any) error {
	return hold.New(hold.SchemaConflict, fmt.Sprintf(format, args...), nil)
}
