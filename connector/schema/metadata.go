package schema

import (
	"slices"
	"strings"
)

// The optional Kafka columns, beside those that kafka.go has.
const (
	// KafkaIngestedAt has the time at which a member decoded the record, to the millisecond.
	KafkaIngestedAt = "_kafka_ingested_at"
	// KafkaTimestampType says who set the timestamp: CreateTime is the producer, LogAppendTime the broker. It is null in
	// rows that come from dead letters, which do not keep it.
	KafkaTimestampType = "_kafka_timestamp_type"
	// KafkaKey has the record's key, as bytes or as text; null if the record has none.
	KafkaKey = "_kafka_key"
	// KafkaHeaders has the record's headers in their order; empty if the record has none.
	KafkaHeaders = "_kafka_headers"
)

// The fields of an element of the column KafkaHeaders.
const (
	HeaderKey   = "key"
	HeaderValue = "value"
)

// optionalColumn is a Kafka column that a table need not have.
type optionalColumn struct {
	name string
	// words are the words of metadata_columns for the column, one for each of types; nil if another key adds it.
	words   []string
	types   []Type
	comment string
	// last is true if new tables have the column behind those of the value. Statistics cover a limited number of
	// columns, and are worth more for columns of the value.
	last bool
}

// optionalColumns are in the order of a new table.
var optionalColumns = []optionalColumn{
	{KafkaTopicID, []string{"topic_id"}, []Type{{Kind: String}}, "id of the Kafka record's topic", false},
	{KafkaFingerprint, nil, []Type{{Kind: String}}, "fingerprint of what makes two Kafka records the same", false},
	{KafkaIngestedAt, []string{"ingested_at"}, []Type{{Kind: Timestamp}}, "when the Kafka record was decoded", false},
	{KafkaKey, []string{"key", "key:text"}, []Type{{Kind: Binary}, {Kind: String}}, "key of the Kafka record", true},
	{KafkaHeaders, []string{"headers"}, []Type{headersType()}, "headers of the Kafka record", true},
	{KafkaTimestampType, []string{"timestamp_type"}, []Type{{Kind: String}}, "who set the timestamp of the Kafka record: CreateTime or LogAppendTime", true},
}

// headersType is nullable everywhere although only values of headers can be null: engines differ most in NOT NULL columns.
func headersType() Type {
	header := Type{Kind: Struct, Fields: []Field{{Name: HeaderKey, Type: Type{Kind: String}, Nullable: true}, {Name: HeaderValue, Type: Type{Kind: Binary}, Nullable: true}}}
	return Type{Kind: Array, Element: &header, ElementNullable: true}
}

// MetadataWords returns the words with which metadata_columns adds an optional column to new tables.
func MetadataWords() (words []string) {
	for _, c := range optionalColumns {
		words = append(words, c.words...)
	}
	return words
}

// MetadataColumn returns the name of the column that a word of metadata_columns adds, "" if there is no such word.
func MetadataColumn(word string) string {
	for _, c := range optionalColumns {
		if slices.Contains(c.words, word) {
			return c.name
		}
	}
	return ""
}

// WithMetadata returns the schema with the column that a word of metadata_columns adds at its end, or s itself if it
// has the column, or if there is no such word.
func (s *Schema) WithMetadata(word string) *Schema {
	for _, c := range optionalColumns {
		if i := slices.Index(c.words, word); i >= 0 {
			return s.withOptional(c.name, c.types[i])
		}
	}
	return s
}

// WithTopicID returns the schema of a table whose rows store the topic id of their records, in an additional Kafka
// column.
func (s *Schema) WithTopicID() *Schema { return s.withOptional(KafkaTopicID, Type{Kind: String}) }

// withOptional returns the schema with this optional Kafka column at its end, or s itself if it has the column.
func (s *Schema) withOptional(name string, t Type) *Schema {
	if s.has(name) {
		return s
	}
	i := slices.IndexFunc(optionalColumns, func(c optionalColumn) bool { return c.name == name })
	f := kafkaColumn(name, t.Kind, optionalColumns[i].comment)
	f.Type = t
	return &Schema{append(slices.Clone(s.fields), f), s.partitions}
}

// WithKafkaColumns returns the schema of a new table: the Kafka columns, and the other columns of s. The coordinates come
// first so that statistics always cover them. Of the optional columns it has only those that s has.
func (s *Schema) WithKafkaColumns() *Schema {
	first, last := kafkaColumns(), []Field(nil)
	for _, c := range optionalColumns {
		switch i := slices.IndexFunc(s.fields, func(f Field) bool { return f.Name == c.name }); {
		case i < 0:
		case c.last:
			last = append(last, s.fields[i])
		default:
			first = append(first, s.fields[i])
		}
	}
	rest := slices.DeleteFunc(slices.Clone(s.fields), func(f Field) bool { return IsKafkaColumn(f.Name) })
	return &Schema{slices.Concat(first, rest, last), s.partitions}
}

// optionalTypes returns a conflict if an optional Kafka column has a type that members do not fill.
func (s *Schema) optionalTypes() error {
	for _, c := range optionalColumns {
		i := slices.IndexFunc(s.fields, func(f Field) bool { return f.Name == c.name })
		if i < 0 || slices.ContainsFunc(c.types, func(t Type) bool { return s.fields[i].Type.takes(t) }) {
			continue
		}
		names := make([]string, len(c.types))
		for k, t := range c.types {
			names[k] = t.String()
		}
		return conflict("column %s is %s and must be %s", c.name, s.fields[i].Type, strings.Join(names, " or "))
	}
	return nil
}

// takes reports whether a column of this type takes each value of the wanted type, and has no other fields: both have the
// same kinds and names of fields at all depths, and what may be null in the wanted type may be null here.
func (t Type) takes(want Type) bool {
	if t.Kind != want.Kind || want.ElementNullable && !t.ElementNullable {
		return false
	}
	if want.Element != nil {
		return t.Element.takes(*want.Element)
	}
	return slices.EqualFunc(t.Fields, want.Fields, func(a, b Field) bool {
		return a.Name == b.Name && (a.Nullable || !b.Nullable) && a.Type.takes(b.Type)
	})
}

// keyForms returns a conflict if the table has the other form of the column for keys than the configured schema.
func (s *Schema) keyForms(configured *Schema) error {
	isKey := func(f Field) bool { return f.Name == KafkaKey }
	i, j := slices.IndexFunc(s.fields, isKey), slices.IndexFunc(configured.fields, isKey)
	if i < 0 || j < 0 || s.fields[i].Type.Kind == configured.fields[j].Type.Kind {
		return nil
	}
	word := "key"
	if s.fields[i].Type.Kind == String {
		word = "key:text"
	}
	return conflict("column %s is %s in the table: write %s in metadata_columns", KafkaKey, s.fields[i].Type, word)
}
