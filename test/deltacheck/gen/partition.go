package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/connector/schema"
)

// computed is a column whose values an expression of the case computes from another one, or from the record's timestamp.
type computed struct {
	column
	from string
	of   func(micros int64) any
}

// partitionKinds are the kinds that partition columns can have.
func partitionKinds() []string {
	return []string{"string", "bigint", "int", "smallint", "tinyint", "boolean", "date", "timestamp"}
}

// hostileValues are texts at which the escaping of a path may fail.
func hostileValues() []string {
	return []string{
		"..", ".", "/", "a/b", "../../x", "%", "%2F", "a%20b", "a=b", "a b", " ", "  x ", "it's", "back\\slash", "#?:*\"{[]^}", "+", "&", "a,b",
		"\r\n", "\x01", "true", "1", "2026-01-31", "_x", ".x", "__HIVE_DEFAULT_PARTITION_", "caf\u00e9", strings.Repeat("long", 40),
	}
}

// partitionValue returns a value that a partition column can have, instead of one that it cannot have.
func partitionValue(c column, v any) any {
	if v == schema.NullPartition || v == "" && c.required {
		return "x"
	}
	if n, ok := v.(int64); ok { // the year 0 is refused
		switch c.typ.kind.name {
		case "date":
			return max(n, day("0001-01-01"))
		case "timestamp":
			return max(n, instant("0001-01-01T00:00:00Z"))
		}
	}
	return v
}

// partition divides some of the random cases by one or two of their columns that can be partition columns.
func (r *random) partition(c *testCase) {
	if len(c.rows) > 40 || r.IntN(3) == 0 {
		return
	}
	for i, col := range c.columns[:len(c.columns)-c.added()] {
		if k := col.typ.kind; k == nil || !slices.Contains(partitionKinds(), k.name) || len(col.inTable()) > 100 || len(c.partitionBy) == 2 || r.IntN(2) == 0 {
			continue
		}
		c.partitionBy = append(c.partitionBy, backticks(col.inTable()))
		for _, row := range c.rows {
			row[i] = partitionValue(col, row[i])
		}
	}
	if len(c.partitionBy) > 0 {
		c.checks = append(c.checks, 39, 42)
	}
}

// partitioned are the cases about table partitions.
func (r *random) partitioned() (all []testCase) {
	id := column{name: "id", typ: r.kind("bigint"), required: true}
	for _, name := range partitionKinds() {
		p := col("p", r.kind(name))
		c := testCase{name: "partition-" + name, checks: []int{39, 42}, columns: []column{id, p}, partitionBy: []string{backticks("p")}, commits: 2}
		values := append([]any{nil}, p.typ.kind.special...)
		if name == "string" {
			for _, text := range hostileValues() {
				values = append(values, text)
			}
		}
		for i, v := range append(values, values...) {
			c.rows = append(c.rows, []any{int64(i), partitionValue(p, v)})
		}
		all = append(all, c)
	}
	return append(all, r.partitionNames(), r.partitionTimes(), r.partitionLong(true), r.partitionLong(false))
}

// partitionNames is divided by columns whose names are a risk in a path.
func (r *random) partitionNames() testCase {
	c := testCase{name: "partition-names", checks: []int{39, 42}, commits: 1}
	for _, name := range []string{"_p", ".p", "a/b", "%41", "a.b", "\u65e5\u672c", "P"} {
		c.columns = append(c.columns, col(name, r.kind("string")))
		c.partitionBy = append(c.partitionBy, backticks(name))
	}
	c.columns = append(c.columns, col("id", r.kind("bigint")))
	for i := range 6 {
		row := []any{}
		for k := range c.partitionBy {
			row = append(row, fmt.Sprint("v", (i+k)%3))
		}
		c.rows = append(c.rows, append(row, int64(i)))
	}
	return c
}

func backticks(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// partitionTimes is divided by days and hours of a column and of the record's timestamp.
func (r *random) partitionTimes() testCase {
	days := func(micros int64) any {
		day := micros / microsPerDay
		if micros%microsPerDay < 0 {
			day--
		}
		return day
	}
	hours := func(micros int64) any { return time.UnixMicro(micros).UTC().Format("2006-01-02-15") }
	day, text, at := r.kind("date"), r.kind("string"), r.kind("timestamp")
	c := testCase{
		name: "partition-times", checks: []int{39, 42}, columns: []column{col("at", at)}, commits: 1,
		partitionBy: []string{"date(at)", "hour(at) AS hour", "date(_kafka_timestamp) AS kafka_day"},
		computed: []computed{
			{col("at_date", day), "at", days},
			{col("hour", text), "at", hours},
			{col("kafka_day", day), schema.KafkaTimestamp, days},
		},
	}
	for _, v := range append([]any{nil}, at.kind.special...) {
		c.rows = append(c.rows, []any{partitionValue(c.columns[0], v)})
	}
	return c
}

// partitionLong has values whose directories are named by a hash: all of them, or one of two.
func (r *random) partitionLong(all bool) testCase {
	c := testCase{name: "partition-long", checks: []int{39, 42, 44}, commits: 1, partitionBy: []string{backticks("p")}}
	c.columns = []column{{name: "id", typ: r.kind("bigint"), required: true}, col("p", r.kind("string"))}
	texts := []string{strings.Repeat("x", 300), strings.Repeat("/", 100), strings.Repeat("\u00e9", 2000), strings.Repeat("x", 5000)}
	if !all {
		c.name, texts = c.name+"-short", []string{"short", texts[0]}
	}
	for i, text := range texts {
		c.rows = append(c.rows, []any{int64(i), text})
	}
	return c
}
