package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Function is what an expression computes.
type Function string

// The functions of expressions.
const (
	AsIs     Function = ""       // the values of a column as they are
	DateOf   Function = "date"   // the UTC day of a timestamp, a date
	HourOf   Function = "hour"   // the UTC hour of a timestamp, text such as 2026-01-31-08
	BucketOf Function = "bucket" // a number below Buckets, from the hash that Iceberg's bucket transform uses
)

// NullPartition is the text that stands for null in the names of directories. As a value of a partition column engines
// read it in different ways, so it is refused.
const NullPartition = "__HIVE_DEFAULT_PARTITION__"

// maxBuckets bounds the table partitions that one expression makes.
const maxBuckets = 10_000

// Expression is one entry of partition_by: it says how a partition column gets its value.
type Expression struct {
	Function Function
	Buckets  int    // the number of buckets; 0 for other functions
	Source   string // the column that the value is computed from
	Name     string // the partition column
}

// ParseExpression parses a column, date(column), hour(column) or bucket(n, column), with AS and a name behind it if
// the partition column is to have a name of its own.
func ParseExpression(text string) (Expression, error) {
	p := &parser{text: text}
	fail := func() (Expression, error) {
		return Expression{}, fmt.Errorf("%q is not an expression: write a column, date(column), hour(column) or bucket(16, column), and AS name for another name", text)
	}
	name, err := p.name()
	if err != nil {
		return fail()
	}
	e := Expression{Source: name, Name: name}
	if p.take('(') {
		e.Function = Function(strings.ToLower(name))
		switch e.Function {
		case DateOf, HourOf:
		case BucketOf:
			number, end := p.word()
			if e.Buckets, err = strconv.Atoi(number); err != nil || e.Buckets < 1 || e.Buckets > maxBuckets {
				return Expression{}, fmt.Errorf("%q: the number of buckets must be from 1 to %d", text, maxBuckets)
			}
			if p.at = end; !p.take(',') {
				return fail()
			}
		default:
			return Expression{}, fmt.Errorf("%q: there is no function %s: write date(column), hour(column) or bucket(16, column)", text, name)
		}
		if e.Source, err = p.name(); err != nil || !p.take(')') {
			return fail()
		}
		e.Name = strings.TrimLeft(e.Source, "_") + "_" + string(e.Function)
	}
	if p.keyword("as") {
		if e.Function == AsIs {
			return Expression{}, fmt.Errorf("%q: a column keeps its name: remove AS", text)
		}
		if e.Name, err = p.name(); err != nil {
			return fail()
		}
	}
	if !p.end() {
		return fail()
	}
	return e, nil
}

// String returns the expression as [ParseExpression] reads it, without the name of the partition column.
func (e Expression) String() string {
	switch e.Function {
	case AsIs:
		return quoteName(e.Source)
	case BucketOf:
		return fmt.Sprintf("bucket(%d, %s)", e.Buckets, quoteName(e.Source))
	case DateOf, HourOf:
	}
	return fmt.Sprintf("%s(%s)", e.Function, quoteName(e.Source))
}

// result returns the type of the partition column. ok is false if the function does not take a source of this type.
func (e Expression) result(source Kind) (result Kind, ok bool) {
	switch e.Function {
	case DateOf:
		return Date, source == Timestamp
	case HourOf:
		return String, source == Timestamp
	case BucketOf:
		return Integer, slices.Contains([]Kind{String, Long, Integer, Short, Byte, Date, Timestamp}, source)
	case AsIs:
	}
	return source, slices.Contains([]Kind{String, Long, Integer, Short, Byte, Boolean, Date, Timestamp}, source)
}

// partitionMetadata is the name of the metadata of a computed partition column that has its expression. So all members
// and commands compute the same values, with any configuration.
const partitionMetadata = "sluice.partition"

// metadataOf returns the value of a key in the metadata of the field, nil if there is none.
func (f Field) metadataOf(key string) json.RawMessage {
	var m map[string]json.RawMessage
	if f.Metadata == nil || json.Unmarshal(f.Metadata, &m) != nil {
		return nil // the error cannot happen: FromDelta has validated the object
	}
	return m[key]
}

// expression returns how a partition column gets its values: from the record, or by the expression in its metadata.
func (f Field) expression() (Expression, error) {
	value := f.metadataOf(partitionMetadata)
	if value == nil {
		return Expression{Source: f.Name, Name: f.Name}, nil
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return Expression{}, fmt.Errorf("its metadata %s is no text", partitionMetadata)
	}
	e, err := ParseExpression(text)
	e.Name = f.Name
	if err == nil && e.Function == AsIs {
		err = fmt.Errorf("%q computes nothing", text)
	}
	return e, err
}

// Expressions returns how each partition column gets its values, in the order of [Schema.Partitions]. The error is a
// hold.Error with hold.TableUnsupported for a column whose values this version cannot write.
func (s *Schema) Expressions() ([]Expression, error) {
	var all []Expression
	for _, name := range s.partitions {
		f, ok := s.Find([]string{name})
		if !ok {
			return nil, unsupported("the table is partitioned by %s, which is not a column of it", name)
		}
		e, err := f.expression()
		if err != nil {
			return nil, unsupported("the table is partitioned by %s, and %v", name, err)
		}
		if err := s.computes(e, f.Type); err != nil {
			return nil, unsupported("the table is partitioned by %s: %v", name, err)
		}
		if e.Function != AsIs && !f.Nullable {
			return nil, unsupported("the table is partitioned by %s, which is computed and NOT NULL", name)
		}
		all = append(all, e)
	}
	return all, nil
}

// computes returns nil if the expression gives values of type t.
func (s *Schema) computes(e Expression, t Type) error {
	source, ok := s.Find([]string{e.Source})
	switch {
	case e.Source == Rescued:
		return fmt.Errorf("column %s has a value for each record with unknown fields: declare the field in schema to partition by it", Rescued)
	case !ok:
		return s.noColumn(e.Source)
	case e.Function == AsIs && IsKafkaColumn(e.Source):
		return fmt.Errorf("members need column %s in the data files: use an expression such as hour(_kafka_timestamp)", e.Source)
	case IsKafkaColumn(e.Source) && e.Source != KafkaTimestamp:
		return fmt.Errorf("%s cannot be the source of an expression: of the Kafka columns only %s can", e.Source, KafkaTimestamp)
	case e.Function != AsIs && s.computed(source):
		return fmt.Errorf("column %s is computed itself", e.Source)
	}
	switch result, ok := e.result(source.Type.Kind); {
	case !ok && e.Function == AsIs:
		return fmt.Errorf("column %s is %s: only texts, whole numbers, booleans, dates and timestamps can be partition columns", e.Source, source.Type)
	case !ok:
		return fmt.Errorf("%s takes no column of type %s", e, source.Type)
	case result != t.Kind:
		return fmt.Errorf("%s gives %s, and the column is %s", e, result, t)
	}
	return nil
}

// noColumn is the error of a name that is no column. If it is the name of a field, the error says which column it has.
func (s *Schema) noColumn(name string) error {
	for _, f := range s.fields {
		if f.Source() == name {
			return fmt.Errorf("column %s is not in the schema: the field has the column %s, write that", name, f.Name)
		}
	}
	return fmt.Errorf("column %s is not in the schema", name)
}

// WithPartitionBy returns the schema of a table partitioned by the expressions. Columns that they compute are added
// at the end. The schema may lack the Kafka columns.
func (s *Schema) WithPartitionBy(list []string) (*Schema, error) {
	out := &Schema{fields: slices.Clone(s.fields)}
	var all []Expression
	for _, text := range list {
		e, err := ParseExpression(text)
		if err != nil {
			return nil, err
		}
		source, ok := out.WithKafkaColumns().Find([]string{e.Source})
		if !ok {
			return nil, fmt.Errorf("%q: %w", text, out.computes(e, Type{}))
		}
		if slices.ContainsFunc(out.partitions, func(name string) bool { return caseless(name) == caseless(e.Name) }) {
			return nil, fmt.Errorf("%q: the table is already partitioned by %s", text, e.Name)
		}
		out.partitions, all = append(out.partitions, e.Name), append(all, e)
		if e.Function == AsIs {
			continue
		}
		if err := out.mayAdd(e.Name); err != nil {
			return nil, fmt.Errorf("%q: %w: write AS and another name", text, err)
		}
		metadata, err := json.Marshal(map[string]string{"comment": "table partition: " + e.String(), partitionMetadata: e.String()})
		if err != nil {
			return nil, err
		}
		f := Field{Name: e.Name, Nullable: true, Metadata: metadata}
		f.Type.Kind, _ = e.result(source.Type.Kind)
		out.fields = append(out.fields, f)
	}
	whole := out.WithKafkaColumns()
	for i, e := range all {
		f, _ := whole.Find([]string{e.Name}) // it has been found or added above
		if err := whole.computes(e, f.Type); err != nil {
			return nil, fmt.Errorf("%q: %w", list[i], err)
		}
	}
	return out, nil
}

// mayAdd returns an error if a computed column cannot have a name. Names of fields are changed instead, but this one is
// the operator's choice.
func (s *Schema) mayAdd(name string) error {
	i := slices.IndexFunc(s.fields, func(f Field) bool { return caseless(f.Name) == caseless(name) })
	switch {
	case reserved(name):
		return fmt.Errorf("names that begin with %s are reserved", kafkaPrefix)
	case i >= 0:
		return fmt.Errorf("column %s is already in the schema", s.fields[i].Name)
	case caseless(name) == caseless(Rescued):
		return fmt.Errorf("column %s is that of unknown fields", Rescued)
	case columnName(name, true) != name:
		return fmt.Errorf("a column cannot have the name %q", name)
	}
	return nil
}

// WithPartitionsOf returns s with the partitions of a table and the columns that they compute, or s itself if it has
// partitions. So a configuration without partition_by takes those of its table.
func (s *Schema) WithPartitionsOf(table *Schema) *Schema {
	if len(s.partitions) > 0 || len(table.partitions) == 0 {
		return s
	}
	fields := slices.Clone(s.fields)
	for _, f := range table.fields {
		if table.computed(f) && !s.has(f.Name) {
			fields = append(fields, f)
		}
	}
	return &Schema{fields, table.partitions}
}

// computedAlone returns a conflict if the configured schema declares a column whose values the table computes: no field
// of a record would fill it.
func (s *Schema) computedAlone(configured *Schema) error {
	for _, f := range s.fields {
		if c, ok := configured.Find([]string{f.Name}); ok && s.computed(f) && !configured.computed(c) {
			e, err := f.expression()
			if err != nil {
				return err
			}
			return conflict("column %s is computed by the table, %s, and declared in schema, so that no field of a record fills it: remove it from schema", f.Name, e)
		}
	}
	return nil
}

// The years 1 to 9999 of UTC, in days since 1970. Readers of the text of a date or timestamp know no other years.
const (
	firstDay = -719_162
	lastDay  = 2_932_896
)

// IsPartitionDate reports whether a date, in days since 1970, can be the value of a partition column.
func IsPartitionDate(day int32) bool { return day >= firstDay && day <= lastDay }

// IsPartitionTime reports whether a timestamp, in microseconds since 1970, can be the value of a partition column, or
// the source of a day or hour.
func IsPartitionTime(micros int64) bool {
	const day = 24 * 60 * 60 * 1_000_000
	return micros >= firstDay*day && micros < (lastDay+1)*day
}

// SortedRowBytes is how much memory each row of a partitioned table takes, beside its values, while a data file is encoded:
// rows are sorted by partition.
const SortedRowBytes = 12

// computed reports whether the values of a column are computed by an expression. Such a column is not filled from the
// record.
func (s *Schema) computed(f Field) bool {
	if !slices.Contains(s.partitions, f.Name) {
		return false
	}
	e, err := f.expression()
	return err == nil && e.Function != AsIs
}

// partitionsFit returns nil if rows of one table partitioning can be committed to the other.
func (s *Schema) partitionsFit(rows *Schema) error {
	if slices.Equal(s.describePartitions(), rows.describePartitions()) {
		return nil
	}
	return conflict("the table is partitioned by (%s), the rows were built for (%s): write partition_by as the table has it, or another table",
		strings.Join(s.describePartitions(), ", "), strings.Join(rows.describePartitions(), ", "))
}

// describePartitions returns the entries of partition_by that give the partitions of the table.
func (s *Schema) describePartitions() (list []string) {
	for _, name := range s.partitions {
		text := quoteName(name)
		if f, ok := s.Find([]string{name}); ok {
			if e, err := f.expression(); err == nil && e.Function != AsIs {
				text = e.String() + " AS " + quoteName(name)
			}
		}
		list = append(list, text)
	}
	return list
}
