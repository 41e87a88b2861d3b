package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/connector"
	"sluice/connector/schema"
)

// features are what random cases have besides columns and rows, in the order in which they change a case. A new
// feature of tables is an entry here.
func features() []func(*random, *testCase) {
	return []func(*random, *testCase){
		(*random).renamed, (*random).grown, (*random).described, (*random).metadata, (*random).rescued, (*random).partition,
	}
}

// renamed gives fields names that columns cannot have.
func (r *random) renamed(c *testCase) {
	if r.IntN(4) > 0 {
		return
	}
	r.rename(c.columns, true)
}

func (r *random) rename(columns []column, top bool) {
	hostile := []string{"unit price", "a,b;c", "x{y}", "tab\there", "k=v", "(p)", "nul\x00", "unit_price", "C0", "F0", strings.Repeat("länger ", 60)}
	if top {
		hostile = append(hostile, "_kafka_mine", "_Kafka_offset")
	}
	r.Shuffle(len(hostile), func(i, j int) { hostile[i], hostile[j] = hostile[j], hostile[i] })
	for i := range columns {
		if r.IntN(2) == 0 {
			columns[i].name = hostile[i]
		}
		for t := &columns[i].typ; t != nil; t = t.element {
			if t.fields != nil {
				r.rename(t.fields, false)
			}
		}
	}
	settle(columns, top)
}

// settle sets the names that the columns of one level have in the table, by the rule in docs/schema.md.
func settle(columns []column, top bool) {
	used := map[string]bool{}
	wanted := make([]string, len(columns))
	for i, c := range columns {
		clean := strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || strings.ContainsRune(" ,;{}()=", r) {
				return '_'
			}
			return r
		}, c.name)
		if top && strings.HasPrefix(strings.ToLower(clean), "_kafka_") {
			clean = "_" + clean
		}
		wanted[i] = clean
		if clean == c.name && len(clean) <= 255 && !used[strings.ToLower(clean)] {
			used[strings.ToLower(clean)] = true
			wanted[i] = ""
		}
	}
	for i, clean := range wanted {
		columns[i].table = ""
		if clean == "" {
			continue
		}
		if len(clean) > 255 || used[strings.ToLower(clean)] {
			sum := sha256.Sum256([]byte(columns[i].name))
			cut := clean[:min(len(clean), 255-9)]
			clean = strings.ToValidUTF8(cut, "") + "_" + hex.EncodeToString(sum[:4])
		}
		used[strings.ToLower(clean)] = true
		columns[i].table = clean
	}
}

// grown lets the table get its last columns, or the last field of a struct, after half of the rows.
func (r *random) grown(c *testCase) {
	if r.IntN(4) > 0 || len(c.rows) < 2 || c.arrow {
		return
	}
	c.commits = max(2, c.commits)
	n := 1 + r.IntN(3)
	for i := range n {
		added := col(fmt.Sprint("later", i), r.typ(2))
		for added.typ.fields != nil {
			added.typ = r.typ(2)
		}
		h := r.habit(true)
		c.later = append(c.later, added)
		c.columns = append(c.columns, added)
		for k := range c.rows {
			c.rows[k] = append(c.rows[k], r.value(added.typ, h))
		}
	}
	for i, have := range c.columns[:len(c.columns)-n] {
		if have.typ.fields == nil || len(c.later) > n {
			continue
		}
		k := r.IntN(len(r.kinds))
		inner := col("inner", typ{kind: &r.kinds[k]})
		c.later = append(c.later, column{name: have.name, table: have.table, typ: typ{fields: []column{inner}}})
		c.columns[i].typ.fields = append(have.typ.fields, inner)
		for row, values := range c.rows {
			if list, ok := values[i].([]any); ok {
				var v any
				if row%3 > 0 {
					v = r.value(inner.typ, &habit{plain: true, special: .3})
				}
				c.rows[row][i] = append(append([]any{}, list...), v)
			}
		}
	}
	for k, row := range c.rows[:c.boundary()] {
		for i := range row[len(row)-n:] {
			row[len(row)-n+i] = nil
		}
		if len(c.later) > n {
			for i, have := range c.columns {
				if list, ok := row[i].([]any); ok && have.name == c.later[n].name && have.typ.fields != nil {
					list[len(list)-1] = nil
				}
			}
		}
		c.rows[k] = row
	}
}

// described sets properties of the table, and leaves the statistics of columns out.
func (r *random) described(c *testCase) {
	if r.IntN(4) == 0 {
		c.properties = map[string]string{"owner": "deltacheck", "delta.appendOnly": "true"}
		switch r.IntN(4) {
		case 0:
			c.properties["delta.dataSkippingNumIndexedCols"] = strconv.Itoa(r.IntN(8) - 1)
		case 1:
			c.properties["delta.dataSkippingStringPrefixLength"] = strconv.Itoa([]int{1, 8, 64}[r.IntN(3)])
		case 2:
			c.properties["delta.checkpointInterval"] = "2"
		}
	}
	if r.IntN(6) == 0 {
		excluded := c.columns[r.IntN(len(c.columns))]
		path := []string{excluded.inTable()}
		if fields := excluded.typ.fields; fields != nil && r.IntN(2) == 0 {
			path = append(path, fields[0].inTable())
		}
		c.excluded = append(c.excluded, path)
	}
}

// metadata adds columns about the record, and keys and headers to the records.
func (r *random) metadata(c *testCase) {
	if r.IntN(3) > 0 {
		return
	}
	for _, word := range []string{"topic_id", "ingested_at", "key", "headers", "timestamp_type"} {
		if r.IntN(2) == 0 {
			continue
		}
		if word == "key" && r.IntN(2) == 0 {
			word = "key:text"
		}
		c.words = append(c.words, word)
	}
	tombstones := !c.arrow
	for _, column := range c.columns {
		tombstones = tombstones && !column.required
	}
	for i, row := range c.rows {
		e := extra{setBy: connector.CreateTime}
		if r.IntN(2) == 0 {
			e.setBy = connector.LogAppendTime
		}
		if r.IntN(4) > 0 {
			e.key = []byte(texts.special[r.IntN(len(texts.special))].(string))
			if !slices.Contains(c.words, "key:text") && r.IntN(2) == 0 {
				e.key = append(e.key, 0xff, 0)
			}
		}
		for range r.IntN(4) {
			h := connector.Header{Key: []string{"trace", "", "日本", "a.b"}[r.IntN(4)]}
			if r.IntN(3) > 0 {
				h.Value = []byte{byte(r.IntN(256)), 0}[:r.IntN(3)]
			}
			e.headers = append(e.headers, h)
		}
		if tombstones && r.IntN(8) == 0 {
			e.tombstone = true
			for k := range row {
				row[k] = nil
			}
		}
		c.records = append(c.records, e)
		c.rows[i] = row
	}
}

// rescued adds fields to the records that have no column.
func (r *random) rescued(c *testCase) {
	c.rescue = r.IntN(6) == 0 && !c.arrow
}

// tableColumns are all columns in the order of the table, those about the record included.
func (c *testCase) tableColumns() []column {
	columns := kafkaColumns()
	last := []column(nil)
	for _, word := range c.words {
		k := texts
		switch word {
		case "topic_id":
			columns = append(columns, col(schema.KafkaTopicID, typ{kind: &k}))
		case "ingested_at":
			time := instants("timestamp", "")
			columns = append(columns, col(schema.KafkaIngestedAt, typ{kind: &time}))
		case "key":
			k = binaries
			last = append(last, col(schema.KafkaKey, typ{kind: &k}))
		case "key:text":
			last = append(last, col(schema.KafkaKey, typ{kind: &k}))
		case "headers":
			value := binaries
			header := typ{fields: []column{col(schema.HeaderKey, typ{kind: &k}), col(schema.HeaderValue, typ{kind: &value})}}
			last = append(last, col(schema.KafkaHeaders, typ{element: &header}))
		case "timestamp_type":
			last = append(last, col(schema.KafkaTimestampType, typ{kind: &k}))
		}
	}
	early := len(c.columns) - c.added()
	columns = append(columns, c.columns[:early]...)
	if c.rescue {
		k := texts
		columns = append(columns, col(schema.Rescued, typ{kind: &k}))
	}
	columns = append(append(columns, last...), c.columns[early:]...)
	for _, computed := range c.computed {
		columns = append(columns, computed.column)
	}
	return columns
}

// added is the number of whole columns that the table gets later. None of them is a struct.
func (c *testCase) added() (n int) {
	for _, l := range c.later {
		if l.typ.fields == nil {
			n++
		}
	}
	return n
}

// tableRow returns the values of a row in the order of tableColumns.
func (c *testCase) tableRow(coordinates []any, e extra, row []any, rescued any) []any {
	values, last := coordinates, []any(nil)
	for _, word := range c.words {
		switch word {
		case "topic_id":
			values = append(values, "AQAAAAAAAAAAAAAAAAAAAA")
		case "ingested_at":
			values = append(values, int64(ingestedAt)*1000)
		case "key":
			if e.key == nil {
				last = append(last, nil)
			} else {
				last = append(last, e.key)
			}
		case "key:text":
			if e.key == nil {
				last = append(last, nil)
			} else {
				last = append(last, string(e.key))
			}
		case "headers":
			headers := []any{}
			for _, h := range e.headers {
				if h.Value == nil {
					headers = append(headers, []any{h.Key, nil})
				} else {
					headers = append(headers, []any{h.Key, h.Value})
				}
			}
			last = append(last, headers)
		case "timestamp_type":
			last = append(last, e.setBy.String())
		}
	}
	early := len(c.columns) - c.added()
	values = append(values, row[:min(early, len(row))]...)
	if c.rescue {
		values = append(values, rescued)
	}
	return append(append(values, last...), row[min(early, len(row)):]...)
}
