package scan

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/parquet/metadata"
	pq "github.com/apache/arrow-go/v18/parquet/schema"

	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
)

// filter is the part of a query that can be compared with statistics: the records of interest and their earliest
// timestamp.
type filter struct {
	where []Where
	since int64 // in microseconds since 1970
	timed bool
	// named has the names of the Kafka columns for topic and partition, true if the table is partitioned by the column.
	named map[string]bool
}

func newFilter(q Query, m deltalog.Metadata) filter {
	f := filter{where: q.Where, named: map[string]bool{}}
	if !q.Since.IsZero() {
		f.since, f.timed = q.Since.Truncate(time.Millisecond).UnixMicro(), true
	}
	for _, name := range []string{schema.KafkaTopic, schema.KafkaPartition} {
		f.named[name] = slices.Contains(m.PartitionColumns, name)
	}
	return f
}

// all reports whether the filter leaves out no row.
func (f filter) all() bool { return !f.timed && len(f.where) == 0 }

// span is the bounds of a number, both inclusive; an unknown bound is as wide as possible.
type span struct{ low, high int64 }

func unbounded() span { return span{math.MinInt64, math.MaxInt64} }

// sound returns s, or unknown bounds if the lower one is greater than the upper one.
func (s span) sound() span {
	if s.low > s.high {
		return unbounded()
	}
	return s
}

// bounds are the statistics of a file or row group: no row is outside of them.
type bounds struct {
	partition, offset, timestamp span // spans of Kafka's columns; timestamp is in microseconds since 1970
	topicLow, topicHigh          string
	topicKnown                   bool
}

func unknownBounds() bounds {
	return bounds{partition: unbounded(), offset: unbounded(), timestamp: unbounded()}
}

// excludes reports whether it is certain that no row within b is of interest.
func (f filter) excludes(b bounds) bool {
	if f.timed && b.timestamp.high < f.since {
		return true
	}
	if len(f.where) == 0 {
		return false
	}
	return !slices.ContainsFunc(f.where, func(w Where) bool {
		return w.From < w.Next && (w.Partition == AnyPartition || b.partition.low <= int64(w.Partition) && int64(w.Partition) <= b.partition.high) &&
			b.offset.low < w.Next && w.From <= b.offset.high && b.mayHoldTopic(w.Topic)
	})
}

// mayHoldTopic reports whether a file with these bounds may have rows of the topic. It allows for shortened bounds:
// Delta's statistics hold the start of a text, and not all writers make a shortened upper bound greater than the text.
func (b bounds) mayHoldTopic(topic string) bool {
	return !b.topicKnown || b.topicLow <= topic && (topic <= b.topicHigh || strings.HasPrefix(topic, b.topicHigh))
}

// passes reports whether a scan leaves out a file, because its statistics in the log show that it has no row of
// interest.
func (f filter) passes(a deltalog.Add) bool {
	return !f.all() && f.excludes(f.boundsOf(a))
}

// boundsOf returns the bounds of a file's rows according to the log.
func (f filter) boundsOf(a deltalog.Add) bounds {
	b := fileBounds(a.Stats)
	if f.named[schema.KafkaTopic] {
		if v := a.PartitionValues[schema.KafkaTopic]; v != nil {
			b.topicLow, b.topicHigh, b.topicKnown = *v, *v+string(utf8.MaxRune), true
		}
	}
	if f.named[schema.KafkaPartition] {
		if v := a.PartitionValues[schema.KafkaPartition]; v != nil {
			if n, err := strconv.ParseInt(*v, 10, 32); err == nil {
				b.partition = span{n, n}
			}
		}
	}
	return b
}

// fileBounds parses Delta's statistics of a file. Bounds that are missing or cannot be parsed are unknown, so they
// exclude nothing.
func fileBounds(text string) bounds {
	b := unknownBounds()
	var stats struct {
		Min map[string]json.RawMessage `json:"minValues"`
		Max map[string]json.RawMessage `json:"maxValues"`
	}
	if text == "" || json.Unmarshal([]byte(text), &stats) != nil {
		return b
	}
	number := func(name string) span {
		s := unbounded()
		if n, ok := parseNumber(stats.Min[name]); ok {
			s.low = n
		}
		if n, ok := parseNumber(stats.Max[name]); ok {
			s.high = n
		}
		return s.sound()
	}
	b.partition, b.offset = number(schema.KafkaPartition), number(schema.KafkaOffset)
	var low, high *string
	if json.Unmarshal(stats.Min[schema.KafkaTopic], &low) == nil && json.Unmarshal(stats.Max[schema.KafkaTopic], &high) == nil &&
		low != nil && high != nil {
		b.topicLow, b.topicHigh, b.topicKnown = *low, *high, true
	}
	var last *string
	if json.Unmarshal(stats.Max[schema.KafkaTimestamp], &last) == nil && last != nil {
		if at, ok := parseTime(*last); ok {
			// Statistics have whole milliseconds, which most writers round down.
			b.timestamp.high = at.UnixMicro() + 1000
		}
	}
	return b
}

// groupBounds returns the statistics of a row group in the footer of a file.
func groupBounds(group *metadata.RowGroupMetaData, columns *pq.Schema) bounds {
	b := unknownBounds()
	for name, into := range map[string]*span{
		schema.KafkaPartition: &b.partition, schema.KafkaOffset: &b.offset, schema.KafkaTimestamp: &b.timestamp,
	} {
		i := leafIndex(columns, []string{name})
		if i < 0 {
			continue
		}
		chunk, err := group.ColumnChunk(i)
		if err != nil {
			continue
		}
		stats, err := chunk.Statistics()
		if err != nil || stats == nil || !stats.HasMinMax() {
			continue
		}
		switch s := stats.(type) {
		case *metadata.Int32Statistics:
			*into = span{int64(s.Min()), int64(s.Max())}
		case *metadata.Int64Statistics:
			*into = span{s.Min(), s.Max()}
		}
		if name == schema.KafkaTimestamp {
			*into = microsecondSpan(*into, columns.Column(i))
		}
	}
	return b
}

// microsecondSpan converts bounds from a file's unit to microseconds. They become unknown if the unit is unknown or the
// result overflows.
func microsecondSpan(s span, c *pq.Column) span {
	unit, ok := unitOf(c)
	if !ok {
		return unbounded()
	}
	low, ok1 := unit.micros(s.low)
	high, ok2 := unit.micros(s.high)
	if !ok1 || !ok2 {
		return unbounded()
	}
	return span{low, high}
}
