package decode

import (
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector/schema"
	"sluice/idempotency"
)

// put appends the value of a column, null for a column that dead letters do not have.
func (r *row) put(name string, to array.Builder) {
	l := r.letter
	switch name {
	case schema.KafkaTopic:
		putText(to, r.kafka.topic)
	case schema.KafkaPartition:
		to.(*array.Int32Builder).Append(r.kafka.partition)
	case schema.KafkaOffset:
		to.(*array.Int64Builder).Append(r.kafka.offset)
	case schema.KafkaTimestamp:
		putMillis(to, r.kafka.timestamp)
	case schema.KafkaTopicID:
		if r.kafka.topicID == (idempotency.TopicID{}) {
			to.AppendNull()
			return
		}
		putText(to, r.kafka.topicID.String())
	case "original_topic":
		putText(to, l.Source.Topic)
	case "original_partition":
		to.(*array.Int32Builder).Append(l.Source.ID)
	case "original_offset":
		to.(*array.Int64Builder).Append(l.Source.Offset)
	case "original_timestamp":
		putMillis(to, l.Timestamp)
	case "original_timestamp_ms":
		to.(*array.Int64Builder).Append(l.Timestamp)
	case "cluster":
		putText(to, l.Source.Cluster)
	case "topic_id":
		putText(to, l.Source.TopicID.String())
	case "message_id":
		putText(to, fmt.Sprintf("%s/%s/%s/%d/%d", l.Source.Cluster, l.Source.Topic, l.Source.TopicID, l.Source.ID, l.Source.Offset))
	case "reason":
		putText(to, string(l.Reason))
	case "class":
		putText(to, l.Class.String())
	case "retry_count":
		to.(*array.Int32Builder).Append(int32(l.Retries)) //nolint:gosec // Parse bounds it
	case "worker_instance":
		putText(to, l.Member)
	case "first_failure_at":
		putTime(to, l.FirstFailure)
	case "last_failure_at":
		putTime(to, l.LastFailure)
	case "dlq_timestamp":
		putTime(to, l.Written)
	case "correlation_id":
		putText(to, l.Correlation)
	case "batch_id":
		putText(to, l.Batch)
	case "original_key":
		putOptional(to, r.key.text)
	case "original_key_encoding":
		putOptional(to, r.key.encoding)
	case "original_value":
		putOptional(to, r.value.text)
	case "original_value_encoding":
		putOptional(to, r.value.encoding)
	case "original_headers":
		r.putHeaders(to.(*array.ListBuilder))
	case "original_value_link":
		r.putLink(to.(*array.StructBuilder))
	default:
		if text, ok := r.said.column(name); ok {
			putText(to, text)
			return
		}
		to.AppendNull()
	}
}

// column returns the text of a column that only the rendering has; ok is false for other columns.
func (s *rendered) column(name string) (text string, ok bool) {
	switch name {
	case "error_reason":
		return s.ErrorReason, true
	case "error_message":
		return s.ErrorMessage, true
	case "error_class":
		return s.ErrorClass, true
	case "error_stack_trace":
		return s.ErrorStackTrace, true
	case "exception_class":
		return s.ErrorDetails.ExceptionClass, true
	case "dlq_version":
		return s.DLQVersion, true
	}
	return "", false
}

func (r *row) putHeaders(to *array.ListBuilder) {
	to.Append(true)
	each := to.ValueBuilder().(*array.StructBuilder)
	for _, h := range r.headers {
		each.Append(true)
		fields(each, func(name string, to array.Builder) {
			switch name {
			case "key":
				putOptional(to, h.key.text)
			case "key_encoding":
				putOptional(to, h.key.encoding)
			case "value":
				putOptional(to, h.value.text)
			case "value_encoding":
				putOptional(to, h.value.encoding)
			default:
				to.AppendNull()
			}
		})
	}
}

func (r *row) putLink(to *array.StructBuilder) {
	link := r.said.ValueLink
	if link == nil {
		to.AppendNull()
		return
	}
	to.Append(true)
	fields(to, func(name string, to array.Builder) {
		switch name {
		case "key":
			putText(to, link.Key)
		case "bytes":
			to.(*array.Int64Builder).Append(link.Bytes)
		case "sha256":
			putText(to, link.SHA256)
		case "holds":
			putText(to, link.Holds)
		default:
			to.AppendNull()
		}
	})
}

// fields calls put for each field of a struct. The table may have them in another order, and more of them.
func fields(of *array.StructBuilder, put func(name string, to array.Builder)) {
	names := of.Type().(*arrow.StructType).Fields()
	for i := range of.NumField() {
		put(names[i].Name, of.FieldBuilder(i))
	}
}

func putText(to array.Builder, s string) {
	to.(*array.StringBuilder).Append(strings.ToValidUTF8(s, "\uFFFD"))
}

func putOptional(to array.Builder, s *string) {
	if s == nil {
		to.AppendNull()
		return
	}
	to.(*array.StringBuilder).Append(*s)
}

// putMillis appends Kafka's timestamp. It appends null if the record has none, or if its year is not in 1 to 9999.
func putMillis(to array.Builder, ms int64) {
	if ms == noTimestamp {
		to.AppendNull()
		return
	}
	putTime(to, time.UnixMilli(ms).UTC())
}

// putTime appends a time, or null for the zero time and for a year that is not in 1 to 9999.
func putTime(to array.Builder, t time.Time) {
	v, ok := microseconds(t)
	if !ok || t.IsZero() {
		to.AppendNull()
		return
	}
	to.(*array.TimestampBuilder).Append(v)
}
