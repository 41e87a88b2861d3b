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
	// KafkaTopicID is an optional column: the topic id in the form in which Kafka's tools print it. If a topic was
	// deleted and created again under its name, it shows which of the two a row comes from. Rows written before the
	// table had the column have null.
	KafkaTopicID = "_kafka_topic_id"
	// KafkaFingerprint is an optional column: the fingerprint of a row whose identity is in no other column, as 32
	// hexadecimal digits.
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

func kafkaColumn(name string, k Kind, comment string) Field {
	return Field{Name: name, Type: Type{Kind: k}, Nullable: true, Metadata: json.RawMessage(`{"comment":"` + comment + `"}`)}
}

// HasTopicID reports whether rows have a column for the topic id of their records.
func (s *Schema) HasTopicID() bool { return s.has(KafkaTopicID) }

func (s *Schema) has(name string) bool {
	return slices.ContainsFunc(s.fields, func(f Field) bool { return f.Name == name })
}

// ForRows returns the schema for which a member builds the rows of this table: s, extended by what the configured schema
// has and the table lacks, which the next commit with rows adds. See [Schema.Extended] for the errors.
//
// The column for topic ids is left out if the table lacks it: the table may be older than that column, and a new version
// of this program must not alter it unasked. Its rows then have no topic id.
//
// If the configuration has no table partitions, the table decides: see [Schema.WithPartitionsOf]. Tables never get other
// partitions, nor a computed column.
func (s *Schema) ForRows(configured *Schema) (*Schema, error) {
	if err := sourcesAgree(s.fields, configured.fields, ""); err != nil {
		return nil, err
	}
	if err := s.keyForms(configured); err != nil {
		return nil, err
	}
	if err := s.computedAlone(configured); err != nil {
		return nil, err
	}
	configured = configured.WithPartitionsOf(s)
	if !s.HasTopicID() {
		fields := slices.DeleteFunc(slices.Clone(configured.fields), func(f Field) bool { return f.Name == KafkaTopicID })
		configured = &Schema{fields, configured.partitions}
	}
	return s.Extended(configured)
}

// IsKafkaColumn reports whether this program fills a column from the record's coordinates or its fingerprint, not
// from its value.
func IsKafkaColumn(name string) bool {
	switch name {
	case KafkaTopic, KafkaPartition, KafkaOffset, KafkaTimestamp:
		return true
	}
	return slices.ContainsFunc(optionalColumns, func(c optionalColumn) bool { return c.name == name })
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
	if err := s.optionalTypes(); err != nil {
		return err
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
