package decode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/reliability/hold"
)

func TestParseColumnOption(t *testing.T) {
	for _, word := range OptionWords() {
		o, err := ParseColumnOption(word)
		if err != nil || o == (ColumnOption{}) || o.String() != word {
			t.Errorf("%s: %+v, %v", word, o, err)
		}
	}
	for text, want := range map[string]string{
		" round   epoch_ns ": "epoch_ns round", "truncate utc": "utc truncate",
	} {
		if o, err := ParseColumnOption(text); err != nil || o.String() != want {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
	for text, want := range map[string]string{
		"":                 "is empty: write one or more of raw, epoch_s,",
		"Raw":              `"Raw" is unknown: write one or more of raw, epoch_s,`,
		"utc epoch_ms":     "utc and epoch_ms exclude each other",
		"epoch_s epoch_ms": "epoch_s and epoch_ms exclude each other",
		"hex base64url":    "hex and base64url exclude each other",
		"raw raw":          "raw and raw exclude each other",
		"hex round":        "round is for timestamp columns, the words before it are for binary columns",
	} {
		if _, err := ParseColumnOption(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestColumnOptions_OtherTypes: an option for a column that the table lacks has no effect; one for a column of another
// type is a hold, because the records would be read otherwise than their owner wants.
func TestColumnOptions_OtherTypes(t *testing.T) {
	for _, c := range []struct{ path, ddl, typ string }{
		{"a", "a bigint", "bigint"},
		{"s.a", "s struct<a:string>", "string"},
		{"l", "l array<bigint>", "bigint"},
		{"l.a", "l array<struct<a:date>>", "date"},
		{"m.a", "m map<string,array<struct<a:int>>>", "int"},
		{"`s.a`", "s struct<a:timestamp>, `s.a` boolean", "boolean"},
		{"`s[]`", "s array<timestamp>, `s[]` boolean", "boolean"},
	} {
		options := ColumnOptions{c.path: {Epoch: "ms"}, "gone": {Raw: true}}
		b, err := JSON{Columns: options}.Builder(parse(t, c.ddl))
		var h *hold.Error
		want := "column " + c.path + " is " + c.typ + ", and its column_options, epoch_ms, are for a timestamp column"
		if b != nil || !errors.As(err, &h) || h.Reason != hold.SchemaConflict || h.Detail != want {
			t.Errorf("%s: %v, want %s", c.ddl, err, want)
		}
		if _, err := options.Check(parse(t, c.ddl)); err == nil || err.Error() != want {
			t.Errorf("%s: checked: %v", c.ddl, err)
		}
	}
	options := ColumnOptions{"a": {UTC: true}, "m.x": {Raw: true}, "z": {Raw: true}, "m": {Raw: true}}
	unknown, err := options.Check(parse(t, "a timestamp, m map<string,string>"))
	if err != nil || !slices.Equal(unknown, []string{"m.x", "z"}) {
		t.Errorf("%v, %v", unknown, err)
	}
}

// TestBytes_NewTypes: Bytes returns about the size of the chunk that Seal returns, also with the buffers of maps,
// decimals and binaries, and the buffers are released to the builder's memory.
func TestBytes_NewTypes(t *testing.T) {
	s := parse(t, "d decimal(20,3), b binary, m map<string,bigint>, n map<string,struct<x:string>>, r string")
	for _, distinct := range []int{0, maxDistinct} {
		d := open(t, s, JSON{Columns: ColumnOptions{"r": {Raw: true}}}, distinct)
		for i := range 3000 {
			record := fmt.Appendf(nil, `{"d":%d.5,"b":"AAEC%04d","m":{"a":%d,"k%d":null},"n":{"x":{"x":"%d"}},"r":[%d]}`, i, i, i, i%50, i%4, i)
			if i%5 == 0 {
				record = []byte(`{}`)
			}
			if err := d.addValue(record); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				if d.addValue([]byte(`{"d":1,"b":"AAEC","m":{"x":1,"y":2},"n":{"z":{"x":"y"}},"r":{"a":[1}}`)) == nil {
					t.Fatal("accepted")
				}
			}
		}
		said, allocated := d.Bytes(), d.Allocated()
		got := int64(0)
		for _, c := range d.Seal().Columns() {
			got += sizeOf(c)
		}
		const slack = 10 * 1024
		if got > said+slack || distinct == 0 && said > got+slack || allocated < said/2 {
			t.Errorf("%d distinct: Bytes said %d of %d allocated, the arrays have %d", distinct, said, allocated, got)
		}
	}
}
