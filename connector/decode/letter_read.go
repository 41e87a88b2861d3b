package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector/schema"
	"sluice/reliability/deadletter"
)

// LetterColumns returns the names of the columns that [ReadLetters] reads. Without content, those of key, value, headers
// and stack trace are left out, and the dead letters lack them.
func LetterColumns(content bool) ([]string, error) {
	letters, err := schema.ParseDDL(DeadLetterDDL)
	if err != nil {
		return nil, fmt.Errorf("columns of a letter: %w", err)
	}
	names := []string{schema.KafkaTopic, schema.KafkaPartition, schema.KafkaOffset, schema.KafkaTopicID}
	for _, f := range letters.Fields() {
		if content || !isContent(f.Name) {
			names = append(names, f.Name)
		}
	}
	return names, nil
}

func isContent(column string) bool {
	switch column {
	case "original_key", "original_key_encoding", "original_value", "original_value_encoding", "original_headers", "error_stack_trace":
		return true
	}
	return false
}

// StoredLetter is a dead letter in a row of a letter table, with the coordinates of its own record.
type StoredLetter struct {
	Topic     string
	TopicID   string // "" if the row has none
	Partition int32
	Offset    int64
	Letter    deadletter.Letter
	// Err is set, and Letter is not, if the row is not one of a dead letter: another program wrote or changed it.
	Err error
}

// ReadLetters returns the dead letters in those rows of a letter table for which want returns true. want gets the
// coordinates of the dead letter's own record. The dead letters are those of which [DeadLetters] made the rows, except
// that their times are cut to microseconds. Rows without coordinates are left out. The error says that the table has no
// columns of coordinates, or that these have other types.
func ReadLetters(rows arrow.RecordBatch, want func(topic string, partition int32, offset int64) bool) ([]StoredLetter, error) {
	columns := map[string]arrow.Array{}
	for i, f := range rows.Schema().Fields() {
		columns[f.Name] = rows.Column(i)
	}
	topics := columns[schema.KafkaTopic]
	partitions, ok1 := columns[schema.KafkaPartition].(*array.Int32)
	offsets, ok2 := columns[schema.KafkaOffset].(*array.Int64)
	if topics == nil || !ok1 || !ok2 {
		return nil, errors.New("the rows have no columns of Kafka's coordinates")
	}
	var all []StoredLetter
	for i := range int(rows.NumRows()) {
		if topics.IsNull(i) || partitions.IsNull(i) || offsets.IsNull(i) || !want(topics.ValueStr(i), partitions.Value(i), offsets.Value(i)) {
			continue
		}
		l := StoredLetter{Topic: topics.ValueStr(i), Partition: partitions.Value(i), Offset: offsets.Value(i)}
		if ids := columns[schema.KafkaTopicID]; ids != nil && ids.IsValid(i) {
			l.TopicID = ids.ValueStr(i)
		}
		l.Letter, l.Err = storedLetter(columns, i)
		all = append(all, l)
	}
	return all, nil
}

// storedLetter returns the dead letter of a row. The columns have the names of the fields of its JSON rendering. So
// storedLetter makes that rendering from the row, and parses it.
func storedLetter(columns map[string]arrow.Array, row int) (deadletter.Letter, error) {
	document := map[string]any{}
	for name, values := range columns {
		if schema.IsKafkaColumn(name) || values.IsNull(row) {
			continue
		}
		v, err := jsonValueOf(values, row)
		if err != nil {
			return deadletter.Letter{}, fmt.Errorf("column %s: %w", name, err)
		}
		document[name] = v
	}
	text, err := json.Marshal(document)
	if err != nil {
		return deadletter.Letter{}, fmt.Errorf("row of a letter table: %w", err)
	}
	return deadletter.Parse(deadletter.Record{Timestamp: noTimestamp, Value: text})
}

// jsonValueOf returns a value that is not null as JSON renders it in a dead letter.
func jsonValueOf(values arrow.Array, row int) (any, error) {
	switch v := values.(type) {
	case *array.String, *array.LargeString:
		return v.ValueStr(row), nil
	case *array.Dictionary:
		return jsonValueOf(v.Dictionary(), v.GetValueIndex(row))
	case *array.Int32:
		return v.Value(row), nil
	case *array.Int64:
		return v.Value(row), nil
	case *array.Timestamp:
		unit := v.DataType().(*arrow.TimestampType).Unit
		return v.Value(row).ToTime(unit).UTC().Format(time.RFC3339Nano), nil
	case *array.Struct:
		of, fields := map[string]any{}, v.DataType().(*arrow.StructType).Fields()
		for i := range v.NumField() {
			if v.Field(i).IsNull(row) {
				continue
			}
			value, err := jsonValueOf(v.Field(i), row)
			if err != nil {
				return nil, err
			}
			of[fields[i].Name] = value
		}
		return of, nil
	case *array.List:
		from, to := v.ValueOffsets(row)
		list := []any{}
		for i := from; i < to; i++ {
			value, err := jsonValueOf(v.ListValues(), int(i))
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	return nil, fmt.Errorf("values of %s are none of a dead letter", values.DataType())
}
