package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/classify"
	"sluice/classify/classtest"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// parse reads DDL and adds the Kafka columns.
func parse(tb testing.TB, ddl string) *schema.Schema {
	tb.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		tb.Fatal(err)
	}
	return s.WithKafkaColumns()
}

// open makes a decoder. The parameter distinct is the largest number of entries of its dictionaries.
func open(tb testing.TB, s *schema.Schema, options JSON, distinct int) *jsonDecoder {
	tb.Helper()
	d, err := options.newDecoder(s, distinct)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// addValue adds a record that has only a value: no key, no headers, offset 0.
func (d *jsonDecoder) addValue(value []byte) error {
	return d.Add(connector.Partition{Topic: "orders"}, &connector.Record{Value: value})
}

// everything returns a schema with each type, nesting, NOT NULL columns and unusual names.
func everything(tb testing.TB) *schema.Schema {
	tb.Helper()
	s := parse(tb, "s string, i bigint, f double, b boolean, t timestamp, i8 tinyint, i16 smallint, i32 int, f32 float, d date, "+
		"a_rather_long_column_name string, sechzehn_bytes bigint, `quo\"te` string, ü bigint, "+
		"o struct<r:bigint not null, n:string, deep:struct<x:double, l:array<string>>>, l array<bigint>, "+
		"items array<struct<sku:string not null, tags:array<string>, q:tinyint>>, m array<array<boolean>>, "+
		"dec decimal(10,2), dec38 decimal(38,6), dec1 decimal(1,1), decs array<decimal(5)>, bin binary, url binary, hx binary, "+
		"ms timestamp, sec timestamp, ns timestamp, us timestamp, loc timestamp, locs array<timestamp>, raw string, raws array<string>, "+
		"mp map<string,bigint>, mm map<string,struct<at:timestamp, r:string, d:decimal(4,1), n:map<string,array<string>>>>")
	// DDL cannot declare elements NOT NULL, nor names with control characters.
	text := strings.Replace(s.DeltaJSON(), `"type":"tinyint"`, `"type":"byte"`, 1)
	text = strings.TrimSuffix(text, "]}") +
		`,{"name":"full","type":{"type":"map","keyType":"string","valueType":"binary","valueContainsNull":false},"nullable":true}` +
		`,{"name":"strict","type":{"type":"array","elementType":"short","containsNull":false},"nullable":true},{"name":"tab\t","type":"string","nullable":true}]}`
	s, err := schema.FromDelta([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// everyOption returns options for columns of the schema that everything returns.
func everyOption(tb testing.TB, fraction string) ColumnOptions {
	tb.Helper()
	o := ColumnOptions{}
	for path, words := range map[string]string{
		"t": fraction, "url": "base64url", "hx": "hex", "full": "hex", "ms": "epoch_ms", "sec": "epoch_s round", "ns": "epoch_ns " + fraction, "us": "epoch_us truncate",
		"loc": "utc " + fraction, "locs": "utc", "raw": "raw", "raws": "raw", "mm.at": "utc", "mm.r": "raw", "mm.n": "raw", "not.there": "raw",
	} {
		if words == "" {
			continue
		}
		var err error
		if o[path], err = ParseColumnOption(words); err != nil {
			tb.Fatal(err)
		}
	}
	return o
}

// checkRecord decodes a record twice, in place and from a copy, and compares both results with the oracle's: whether
// the record is accepted, and the values of its row.
func checkRecord(t *testing.T, s *schema.Schema, options JSON, distinct int, record []byte) {
	t.Helper()
	d := open(t, s, options, distinct)
	want, refused := oracle(s, options, record)
	before := string(record)
	err := d.addValue(record)
	if string(record) != before {
		t.Fatal("record changed")
	}
	var e *Error
	if err != nil {
		if !errors.As(err, &e) || classify.Of(err) != classify.Poison || e.Offset < 0 || e.Offset > len(record) || e.Reason == 0 {
			t.Fatalf("bad error %v", err)
		}
		if e.Reason == TooDeep || e.Reason == TooManyValues {
			return
		}
	}
	if (err != nil) != (refused != nil) {
		t.Fatalf("%q\n   got: %v\noracle: %v", record, err, refused)
	}
	// Decode the same record again, in place, with other bytes after it.
	inPlace := append(append([]byte{}, record...), 0)
	inPlace = append(inPlace, strings.Repeat(`"}],1"`, 40)...)
	again := d.addValue(inPlace[:len(record)])
	if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
		t.Fatalf("%q: copied %v, in place %v", record, err, again)
	}
	batch := d.Seal()
	if err != nil {
		if batch != nil {
			t.Fatal("row of a refused record")
		}
		return
	}
	checkSchema(t, s, batch)
	for _, c := range batch.Columns() {
		valid(t, c)
	}
	for i := range 2 {
		if got := rowOf(batch, i)[4:]; !same(got, want) {
			t.Fatalf("%q\n got %v\nwant %v", record, got, want)
		}
	}
}

var seeds = []string{
	`{}`, ` { } `, ``, `{`, `}`, `[]`, `null`, `nul`, `{"s":"x"}`, `{"s":"x"}x`, `{"s":"x"} `, `{"s":"x"}{}`, `{"s":"x",}`, `{"s" : "x" , "i" : 1 }`, "{\n\t\"s\":\r\"x\"}", "{}\x00", "\x00",
	`{"s":"\u0041\n\ud83d\ude00 é"}`, `{"s":"\ud83d"}`, `{"s":"\ude00\ud83d"}`, `{"s":"\ud83d\u0041"}`, "{\"s\":\"\xff\"}", "{\"s\":\"\xc3\"}", "{\"s\":\"a\x01b\"}", `{"s":"\x"}`, `{"s":"abc`, `{"s":"\u00`, `{"s":"\u00g0"}`, `{"s":"\`, `{"s":"\u0000"}`,
	"{\"s\":\"\xed\xa0\x80\"}", "{\"s\":\"\\n\xff\"}", "{\"s\":\"\xff\\n\"}", "{\"s\":\"é\\n\xc3\"}", "{\"s\":\"aaaaaaaaaaaaaaa\x7f\"}", `{"s":"\"\\\/\b\f\n\r\t"}`,
	`{"s":"1","s":"2"}`, `{"u":1,"u":2}`, `{"u":{"a":1,"b":[{"a":1},{"a":2}]}}`, `{"u":{"a":1,"\u0061":2}}`, `{"\u0073":"x"}`, `{"s":"x","\u0073":"y"}`, `{"_kafka_offset":1,"_kafka_offset":2}`, `{"_kafka_offset":"x"}`,
	`{"i":9223372036854775807}`, `{"i":-9223372036854775808}`, `{"i":9223372036854775808}`, `{"i":-9223372036854775809}`, `{"i":01}`, `{"i":-0}`, `{"i":1.0}`, `{"i":1e2}`, `{"i":1.}`, `{"i":1e}`,
	`{"i":18446744073709551616}`, `{"i":18446744073709551617}`, `{"i":100000000000000000000000000}`, `{"i":"1"}`, `{"i":+1}`, `{"i":-}`, `{"i8":127,"i16":-32768,"i32":2147483647}`, `{"i8":128}`, `{"i8":-129}`, `{"i16":-32769}`, `{"i32":2147483648}`,
	`{"f":0.1}`, `{"f":-0}`, `{"f":-0.0}`, `{"f":0e999999999999}`, `{"f":1e400}`, `{"f":1e-400}`, `{"f":1.7976931348623157e308}`, `{"f":4.9e-324}`, `{"f":9007199254740993}`, `{"f":0.30000000000000004}`, `{"f":123456789012345678901234567890}`,
	`{"f":1.}`, `{"f":.5}`, `{"f":00}`, `{"f":-}`, `{"f":1e}`, `{"f":1e+}`, `{"f":NaN}`, `{"f32":16777217}`, `{"f32":0.1}`, `{"f32":3.5e38}`, `{"f32":1e-46}`, `{"f":5e-1,"f32":7.038531e-26}`, `{"f":8.41e+21}`, `{"f":9223372036854775807e-19}`, `{"f32":1.00000005960464484}`,
	`{"b":true}`, `{"b":false}`, `{"b":tru}`, `{"b":1}`, `{"b":null}`, `{"b":nul}`, `{"b":falsehood}`,
	`{"t":"2026-02-28T23:59:59.123456Z"}`, `{"t":"2026-02-29T00:00:00Z"}`, `{"t":"2024-02-29t00:00:00z"}`, `{"t":"2026-01-01T00:00:00.1234567Z"}`, `{"t":"2026-01-01T00:00:00.1234560000000Z"}`, `{"t":"2026-01-01T00:00:00+23:59"}`, `{"t":"2026-01-01 00:00:00-08:00"}`,
	`{"t":"2026-01-01T00:00:60Z"}`, `{"t":"2026-01-01T24:00:00Z"}`, `{"t":"2026-01-01T00:00:00"}`, `{"t":"0000-01-01T00:00:00Z"}`, `{"t":"9999-12-31T23:59:59.999999Z"}`, `{"t":"2026\u002d01-01T00:00:00Z"}`, `{"t":"2026-01-01T00:00:00.Z"}`, `{"t":"2026-01-01T00:00:00Zx"}`, `{"t":"2026-01-01T00:00:00Zx}`, `{"t":"2026\u002d01-01T00:00:00Zx"}`, `{"t":"2026-01-01T00:00`,
	`{"t":"2026-01-01T00:00:00+24:00"}`, `{"t":"2026-01-01T00:00:00+01:60"}`, `{"t":"2026-01-01T00:00:00.12345600000000001Z"}`, `{"t":1}`, `{"d":"2026-12-31"}`, `{"d":"2026-02-30"}`, `{"d":"2026-12-31T"}`, `{"d":"1969-12-31"}`, `{"d":"2026-1-31"}`, `{"d":20260101}`,
	`{"o":{"r":1,"n":null,"deep":{"x":1,"l":["a",null,""]}}}`, `{"o":{"n":"x"}}`, `{"o":{"r":null}}`, `{"o":null}`, `{"o":[]}`, `{"l":[1,2,null]}`, `{"l":[]}`, `{"l":[1,]}`, `{"l":[,1]}`, `{"l":[1 2]}`, `{"l":{}}`, `{"strict":[1,2]}`, `{"strict":[1,null]}`,
	`{"items":[{"sku":"a","tags":["x"],"q":1},{"sku":"b"}]}`, `{"items":[null]}`, `{"items":[{"q":1}]}`, `{"m":[[true,false],[],null,[null]]}`, `{"quo\"te":"x","ü":3,"a_rather_long_column_name":"yy","sechzehn_bytes":5,"tab\t":"z"}`,
	`{"i":1e2,"i8":1.0,"i16":-1.5e1,"i32":100e-2}`, `{"i":0e999999999999,"i8":-0.0}`, `{"i":1e-1}`, `{"i":1.5}`, `{"i":9223372036854775807.000}`, `{"i":922337203685477580700e-2}`, `{"i":-9.223372036854775808e18}`, `{"i":9.223372036854775808e18}`,
	`{"i":0.00000000000000000000000000000001e32}`, `{"i":10000000000000000000000000000000e-31}`, `{"i":1e400}`, `{"i":1e-400}`, `{"i":1e99999999999999999999}`, `{"i":1.0.0}`, `{"i":1.e1}`, `{"i8":1.28e2}`, `{"i":1e}`, `{"i":01.0}`, `{"i":-01e1}`,
	`{"dec":12.5}`, `{"dec":"12.50"}`, `{"dec":-99999999.99}`, `{"dec":100000000}`, `{"dec":99999999.995}`, `{"dec":1.234}`, `{"dec":1.2300}`, `{"dec":123e-2}`, `{"dec":1e7}`, `{"dec":1e8}`, `{"dec":"1e2"}`, `{"dec":" 1"}`, `{"dec":"1 "}`, `{"dec":"+1"}`, `{"dec":""}`, `{"dec":"\u0031"}`, `{"dec":"0x1"}`, `{"dec":"01"}`, `{"dec":1.}`, `{"dec":-}`, `{"dec":true}`, `{"dec":[]}`, `{"dec":"1`, `{"dec":-0}`, `{"dec":"NaN"}`,
	`{"dec38":12345678901234567890123456789012.123456}`, `{"dec38":-99999999999999999999999999999999.999999}`, `{"dec38":100000000000000000000000000000000}`, `{"dec38":0.0000001}`, `{"dec38":0.000001000000000000000000000000000}`, `{"dec38":340282366920938463463374607431768211456}`, `{"dec38":1e31}`, `{"dec38":1e32}`, `{"dec38":0.00000000000000000000000000000000000001e38}`, `{"dec1":0.9,"decs":[1,-99999,null,"7"]}`, `{"dec1":1}`, `{"dec1":0.95}`, `{"decs":[100000]}`,
	`{"bin":""}`, `{"bin":"AA=="}`, `{"bin":"AAECAwQ\/"}`, `{"bin":"AA"}`, `{"bin":"AB=="}`, `{"bin":"A=A="}`, `{"bin":"AA==AA=="}`, `{"bin":"AA\n=="}`, `{"bin":"AAAA\r\nAAAA"}`, `{"bin":" AA=="}`, `{"bin":"-_-_"}`, `{"bin":1}`, `{"bin":[1]}`, `{"bin":"A`, `{"url":"-_-_","hx":"00fFaA"}`, `{"url":"AA"}`, `{"url":"AA=="}`, `{"url":"AA="}`, `{"url":"+AAA"}`, `{"hx":"0"}`, `{"hx":"0g"}`, `{"hx":"0\n0"}`,
	`{"ms":1769846400000}`, `{"ms":-1}`, `{"ms":0.001}`, `{"ms":0.0001}`, `{"ms":"1769846400000"}`, `{"ms":"2026-01-01T00:00:00Z"}`, `{"ms":1.7698464e12}`, `{"ms":253402300799999.999}`, `{"ms":253402300800000}`, `{"ms":-62167219200000}`, `{"ms":-62167219200001}`, `{"ms":1e300}`, `{"ms":null}`, `{"ms":true}`, `{"ms":1.}`,
	`{"sec":1769846400.123456}`, `{"sec":0.0000005}`, `{"sec":-0.0000005}`, `{"sec":-0.00000050000000000000000001}`, `{"sec":0.00000049999999999999999999}`, `{"sec":253402300799.9999994}`, `{"sec":253402300799.9999995}`, `{"ns":1769846400123456789}`, `{"ns":-1}`, `{"ns":1500}`, `{"ns":-1500}`, `{"ns":1000}`, `{"us":-0.5}`, `{"us":1e-30}`, `{"us":-1e-30}`, `{"us":9223372036854775808}`,
	`{"loc":"2026-01-01T00:00:00"}`, `{"loc":"2026-01-01 00:00:00.5"}`, `{"loc":"2026-01-01T00:00:00+01:00"}`, `{"loc":"2026-01-01T00:00:00.1234565"}`, `{"loc":"2026-01-01T00:00:00.9999999"}`, `{"loc":"2026-01-01T00:00:00.1234564999999"}`, `{"loc":"2026-01-01T00:00:00x"}`, `{"loc":"2026-01-01"}`, `{"loc":"2026\u002d01-01T00:00:00"}`, `{"locs":["2026-01-01T00:00:00",null]}`, `{"locs":["2026-01-01T00:00:00.0000001"]}`,
	`{"raw":{"a" : [1, 2.50]}}`, `{"raw":"x\u0041\"y"}`, `{"raw":1.50e0}`, `{"raw":true}`, `{"raw":null}`, `{"raw": [ ] }`, `{"raw":{"a":1,"a":2}}`, `{"raw":nul}`, `{"raw":{"a":"\ud800"}}`, "{\"raw\":\"\xff\"}", `{"raw":01}`, `{"raw":}`, `{"raws":[{"a":1},null,"x",[]]}`, `{"raw":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, `{"raw":{"k":1`,
	`{"mp":{}}`, `{"mp":{ "a" : 1 , "b":null, "":3,"\u00e9":4}}`, `{"mp":{"a":1,"a":2}}`, `{"mp":{"a":1,"\u0061":2}}`, `{"mp":{"a":"1"}}`, `{"mp":[]}`, `{"mp":null}`, `{"mp":{"a":1,}}`, `{"mp":{"a"}}`, `{"mp":{1:1}}`, `{"mp":{"a":1`, `{"mp":{"a":`, `{"mp":{"a" 1}}`, `{"mp":{"a":1 "b":2}}`, `{"full":{"a":"00"}}`, `{"full":{"a":null}}`, `{"full":{"a":"0"}}`, `{"mp":{"i":1},"i":1}`, `{"mp":{"` + strings.Repeat("k", 40) + `":1}}`,
	`{"mm":{"a":{"at":"2026-01-01T00:00:00","r":[1],"d":"999.9","n":{"x":["y",null,{"z":1}],"y":null}},"b":null,"c":{}}}`, `{"mm":{"a":{"n":{"x":[1,2}}}}`, `{"mm":{"a":{"at":"2026-01-01"}}}`, `{"mm":{"a":{"d":1000}}}`, `{"mm":{"a":{"x":1,"x":1}}}`,
	`{"x":[1,{"y":[[]]},"z",true,false,null,-1.5e3]}`, `{"x":[1,}`, `{"x":tru}`, `{"x":-}`, `{"x":"\ud800"}`, `{"x" 1}`, `{x:1}`, `{"s":"x" "i":1}`, "\ufeff{}", `{"s":"` + strings.Repeat("é", 50) + `"}`, `{"s":"` + strings.Repeat("a", 70) + `\n` + strings.Repeat("é", 50) + `"}`,
}

func TestSeeds(t *testing.T) {
	s := everything(t)
	for _, seed := range seeds {
		checkRecord(t, s, JSON{}, maxDistinct, []byte(seed))
		checkRecord(t, s, JSON{Columns: everyOption(t, "truncate")}, 0, []byte(seed))
		checkRecord(t, s, JSON{Columns: everyOption(t, "round")}, 4, []byte(seed))
		checkRecord(t, s, JSON{Columns: everyOption(t, "")}, maxDistinct, []byte(seed))
		checkRecord(t, s, JSON{Strict: true}, maxDistinct, []byte(seed))
	}
}

func FuzzJSON(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), false, false)
		f.Add([]byte(seed), true, true)
	}
	s, small := everything(f), parse(f, "s string")
	f.Fuzz(func(t *testing.T, record []byte, truncate, strict bool) {
		distinct, options := 0, JSON{Strict: strict}
		if truncate {
			distinct = maxDistinct
			options.Columns = everyOption(t, "truncate")
		}
		checkRecord(t, s, options, distinct, record)
		if strict {
			options.Columns = everyOption(t, "round")
			checkRecord(t, s, options, distinct, record)
		}
		if open(t, small, JSON{}, 0).addValue(record) == nil && !json.Valid(record) {
			t.Fatalf("%q is no JSON", record)
		}
	})
}

// TestTypes: each type of column accepts and refuses JSON values as the documentation of JSON says.
func TestTypes(t *testing.T) {
	const refused = "refused"
	for _, c := range []struct {
		ddl, json string
		want      any
	}{
		{"string", `""`, ""},
		{"string", `"a\u0000b"`, "a\x00b"},
		{"string", `"\ud83d\ude00"`, "😀"},
		{"string", `1`, refused},
		{"string", `{}`, refused},
		{"tinyint", `-128`, int64(-128)},
		{"tinyint", `-129`, refused},
		{"smallint", `32767`, int64(32767)},
		{"smallint", `32768`, refused},
		{"int", `-2147483648`, int64(math.MinInt32)},
		{"int", `2147483648`, refused},
		// The decoder must not convert it to a double, which would lose the last digit.
		{"bigint", `9007199254740993`, int64(1<<53 + 1)},
		{"bigint", `-9223372036854775808`, int64(math.MinInt64)},
		{"bigint", `9223372036854775807`, int64(math.MaxInt64)},
		{"bigint", `9223372036854775808`, refused},
		{"bigint", `-0`, int64(0)},
		{"bigint", `1.0`, int64(1)},
		{"bigint", `-1e3`, int64(-1000)},
		{"bigint", `9007199254740993e0`, int64(1<<53 + 1)},
		{"bigint", `0.5`, refused},
		{"decimal(4,1)", `-12.30`, "-123"},
		{"decimal(4,1)", `"7"`, "70"},
		{"decimal(4,1)", `0.05`, refused},
		{"decimal(4,1)", `1000`, refused},
		{"decimal(38,0)", `99999999999999999999999999999999999999`, "99999999999999999999999999999999999999"},
		{"binary", `"AAH/"`, "\x00\x01\xff"},
		{"binary", `"AAE"`, refused},
		{"map<string,int>", `{"b":1,"a":null}`, map[string]any{"a": nil, "b": int64(1)}},
		{"map<string,int>", `{"a":1,"a":1}`, refused},
		{"map<string,int>", `{}`, map[string]any{}},
		{"bigint", `"1"`, refused},
		{"bigint", `true`, refused},
		{"double", `1`, 1.0},
		{"double", `-0.0`, math.Copysign(0, -1)},
		{"double", `1e-400`, 0.0},
		{"double", `-1e-400`, math.Copysign(0, -1)},
		{"double", `1e400`, refused},
		{"double", `"NaN"`, refused},
		{"float", `16777217`, 16777216.0},
		{"float", `3.4028236e38`, refused},
		{"boolean", `true`, true},
		{"boolean", `0`, refused},
		{"date", `"1970-01-02"`, int64(1)},
		{"date", `"0000-01-01"`, int64(-719528)},
		{"date", `"2026-1-1"`, refused},
		{"timestamp", `"1970-01-01T01:00:00.5+01:00"`, int64(500_000)},
		{"timestamp", `"1969-12-31T23:59:59.999999Z"`, int64(-1)},
		{"timestamp", `"1970-01-01T00:00:00.000001000Z"`, int64(1)},
		{"timestamp", `"1970-01-01T00:00:00.0000001Z"`, refused},
		{"timestamp", `"1970-01-01T00:00:00"`, refused},
		{"timestamp", `0`, refused},
		{"struct<x:int>", `{"x":1}`, []any{int64(1)}},
		{"struct<x:int>", `{}`, []any{nil}},
		{"struct<x:int>", `[1]`, refused},
		{"array<int>", `[1,null]`, []any{int64(1), nil}},
		{"array<int>", `[]`, []any{}},
		{"array<int>", `1`, refused},
		{"array<struct<x:array<string>>>", `[{"x":["a"]},null,{}]`, []any{[]any{[]any{"a"}}, nil, []any{nil}}},
	} {
		for _, ddl := range []string{"v " + c.ddl, "v " + c.ddl + " not null"} {
			d := open(t, parse(t, ddl), JSON{}, maxDistinct)
			err := d.addValue([]byte(`{"v":` + c.json + `}`))
			if c.want == refused {
				if err == nil {
					t.Errorf("%s: %s was accepted", ddl, c.json)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: %v", ddl, c.json, err)
				continue
			}
			if got := rowOf(d.Seal(), 0)[4:]; !same(got, []any{c.want}) {
				t.Errorf("%s: %s is %v, want %v", ddl, c.json, got, c.want)
			}
			for _, missing := range []string{`{"v":null}`, `{}`} {
				err := d.addValue([]byte(missing))
				if strings.HasSuffix(ddl, "not null") {
					checkError(t, err, RequiredMissing, "v")
				} else if got := rowOf(d.Seal(), 0)[4:]; err != nil || got[0] != nil {
					t.Errorf("%s: %s is %v, %v", ddl, missing, got, err)
				}
			}
		}
	}
}

func checkError(t *testing.T, err error, why Reason, path string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != why || e.Path != path || classify.Of(err) != classify.Poison {
		t.Errorf("got %v, want %s in %q", err, why, path)
	}
}

func TestErrors(t *testing.T) {
	s := everything(t)
	seen := map[string]error{}
	for _, c := range []struct {
		record string
		want   Error
	}{
		{``, Error{Reason: NoValue, Path: "", Offset: 0}},
		{`{"i":1,"s":`, Error{Reason: Truncated, Path: "s", Offset: 11}},
		{`{"s":"\u00`, Error{Reason: Truncated, Path: "s", Offset: 10}},
		{`{"i":1`, Error{Reason: Truncated, Path: "", Offset: 6}},
		{`{"i":1]`, Error{Reason: Syntax, Path: "", Offset: 6}},
		{`{"i":1}}`, Error{Reason: TrailingBytes, Path: "", Offset: 7}},
		{`{"i":"1"}`, Error{Reason: TypeMismatch, Path: "i", Offset: 5, Expected: "bigint", Found: "string"}},
		{`[]`, Error{Reason: TypeMismatch, Path: "", Offset: 0, Expected: "object", Found: "array"}},
		{`{"i8":300}`, Error{Reason: OutOfRange, Path: "i8", Offset: 6, Expected: "tinyint"}},
		{`{"i":1.5}`, Error{Reason: NotIntegral, Path: "i", Offset: 5, Expected: "bigint"}},
		{`{"i":1e-2}`, Error{Reason: NotIntegral, Path: "i", Offset: 5, Expected: "bigint"}},
		{`{"i":1e19}`, Error{Reason: OutOfRange, Path: "i", Offset: 5, Expected: "bigint"}},
		{`{"dec":1e8}`, Error{Reason: OutOfRange, Path: "dec", Offset: 7, Expected: "decimal(10,2)"}},
		{`{"dec":"0.001"}`, Error{Reason: TooPrecise, Path: "dec", Offset: 7, Expected: "decimal(10,2)"}},
		{`{"dec":"one"}`, Error{Reason: TypeMismatch, Path: "dec", Offset: 7, Expected: "decimal(10,2)", Found: "string"}},
		{`{"dec":-x}`, Error{Reason: Syntax, Path: "dec", Offset: 8}},
		{`{"bin":"A"}`, Error{Reason: BadBinary, Path: "bin", Offset: 7, Expected: "binary"}},
		{`{"hx":"0"}`, Error{Reason: BadBinary, Path: "hx", Offset: 6, Expected: "binary hex"}},
		{`{"ms":"0"}`, Error{Reason: TypeMismatch, Path: "ms", Offset: 6, Expected: "timestamp epoch_ms", Found: "string"}},
		{`{"ms":0.0001}`, Error{Reason: TooPrecise, Path: "ms", Offset: 6, Expected: "timestamp epoch_ms"}},
		{`{"ms":1e17}`, Error{Reason: OutOfRange, Path: "ms", Offset: 6, Expected: "timestamp epoch_ms"}},
		{`{"mp":[]}`, Error{Reason: TypeMismatch, Path: "mp", Offset: 6, Expected: "object", Found: "array"}},
		{`{"mp":{"a":1,"a":2}}`, Error{Reason: DuplicateKey, Path: "mp", Offset: 13}},
		{`{"mm":{"a":{"d":true}}}`, Error{Reason: TypeMismatch, Path: "mm{}.d", Offset: 16, Expected: "decimal(4,1)", Found: "boolean"}},
		{`{"mp":{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11}}`, Error{Reason: TooManyValues, Path: "mp", Offset: 68}},
		{`{"raw":[1,2,3,4,5,6,7,8,9,10,11,12]}`, Error{Reason: TooManyValues, Path: "raw", Offset: 26}},
		{`{"raw":[[[[[[[[]]]]]]]]}`, Error{Reason: TooDeep, Path: "raw", Offset: 14}},
		{`{"i":01}`, Error{Reason: Syntax, Path: "i", Offset: 6}},
		{`{"i":1,"i":2}`, Error{Reason: DuplicateKey, Path: "i", Offset: 7}},
		{`{"q":1,"q":2}`, Error{Reason: DuplicateKey, Path: "", Offset: 7}},
		{`{"o":{"r":1,"zz":{"k":1,"k":2}}}`, Error{Reason: DuplicateKey, Path: "o", Offset: 24}},
		{`{"o":{}}`, Error{Reason: RequiredMissing, Path: "o.r", Offset: 6}},
		{`{"o":{"r":null}}`, Error{Reason: RequiredMissing, Path: "o.r", Offset: 10}},
		{`{"strict":[1,null]}`, Error{Reason: RequiredMissing, Path: "strict[1]", Offset: 13}},
		{`{"items":[{"sku":"a"},{"sku":"b","tags":["x",1]}]}`, Error{Reason: TypeMismatch, Path: "items[1].tags[1]", Offset: 45, Expected: "string", Found: "number"}},
		{`{"m":[[],[true,"x"]]}`, Error{Reason: TypeMismatch, Path: "m[1][1]", Offset: 15, Expected: "boolean", Found: "string"}},
		{`{"t":"yesterday"}`, Error{Reason: BadTimestamp, Path: "t", Offset: 5, Expected: "timestamp"}},
		{`{"t":"2026-01-01T00:00:00.1234567Z"}`, Error{Reason: TooPrecise, Path: "t", Offset: 5, Expected: "timestamp"}},
		{`{"s":"\ud800"}`, Error{Reason: LoneSurrogate, Path: "s", Offset: 6}},
		{"{\"s\":\"\xff\"}", Error{Reason: InvalidUTF8, Path: "s", Offset: 6}},
		{`{"f":1e999}`, Error{Reason: OutOfRange, Path: "f", Offset: 5, Expected: "double"}},
		{`{"f":-x}`, Error{Reason: Syntax, Path: "f", Offset: 6}},
		{`{"u":-x}`, Error{Reason: Syntax, Path: "", Offset: 6}},
		{`{"q":[[[[[[[[[[]]]]]]]]]]}`, Error{Reason: TooDeep, Path: "", Offset: 12}},
		{`{"q":[1,2,3,4,5,6,7,8,9,10,11,12]}`, Error{Reason: TooManyValues, Path: "", Offset: 24}},
		{`{"l":[1,2,3,4,5,6,7,8,9,10,11,12]}`, Error{Reason: TooManyValues, Path: "l", Offset: 27}},
		{strings.Repeat(" ", 2000), Error{Reason: TooLarge, Path: "", Offset: 0}},
	} {
		options := everyOption(t, "")
		d := open(t, s, JSON{MaxDepth: 8, MaxValues: 10, MaxBytes: 1000, Columns: options}, maxDistinct)
		var e *Error
		if err := d.addValue([]byte(c.record)); !errors.As(err, &e) || *e != c.want || classify.Of(err) != classify.Poison {
			t.Errorf("%s\n got %v\nwant %v", c.record, err, &c.want)
		} else {
			seen[e.Reason.String()] = err
		}
	}
	seen[UnknownField.String()] = open(t, s, JSON{Strict: true}, maxDistinct).addValue([]byte(`{"nobody":1}`))
	partitioned := open(t, parse(t, "s string").WithPartitions([]string{"s"}), JSON{}, maxDistinct)
	seen[BadPartition.String()] = partitioned.addValue([]byte(`{"s":"__HIVE_DEFAULT_PARTITION__"}`))
	classtest.Check(t, "record", seen)
	if len(seen) != len(reasons)-1 {
		t.Errorf("%d of %d reasons were met", len(seen), len(reasons)-1)
	}
}

// TestContentsDoNotSteer: names and values in a record do not change the class of an error, even if they look like the
// text of a failing dependency.
func TestContentsDoNotSteer(t *testing.T) {
	s := parse(t, "i bigint not null, s string")
	for _, lie := range []string{
		"connection timeout 503", "AccessDenied", "SlowDown", "context canceled", "throttled: rate limit exceeded",
		"NoSuchBucket", "unavailable", "io: unexpected EOF", "tls: bad certificate", "[29] Topic Authorization Failed",
	} {
		quoted, err := json.Marshal(lie)
		if err != nil {
			t.Fatal(err)
		}
		for record, why := range map[string]Reason{
			fmt.Sprintf(`{"i":%s}`, quoted):                  TypeMismatch,
			fmt.Sprintf(`{%s:1}`, quoted):                    RequiredMissing,
			fmt.Sprintf(`{"i":1,%s:1,%s:2}`, quoted, quoted): DuplicateKey,
			lie: Syntax,
		} {
			d := open(t, s, JSON{}, maxDistinct)
			err := d.Add(connector.Partition{Topic: "orders"}, &connector.Record{
				Key: []byte(lie), Value: []byte(record), Headers: []connector.Header{{Key: lie, Value: []byte(lie)}},
			})
			var e *Error
			if class, known := classify.Known(err); class != classify.Poison || !known || !errors.As(err, &e) || strings.Contains(err.Error(), lie) {
				t.Errorf("%s: %v is %v", record, err, class)
			} else if why != Syntax && e.Reason != why {
				t.Errorf("%s: %s, want %s", record, e.Reason, why)
			}
		}
	}
}

// TestErrorsNeverQuote: errors may be logged, so they contain no value of a record. They may contain the name of an
// undeclared field, if this name is the problem.
func TestErrorsNeverQuote(t *testing.T) {
	d := open(t, everything(t), JSON{}, maxDistinct)
	strict := open(t, everything(t), JSON{Strict: true}, maxDistinct)
	for _, r := range []string{
		`{"new":"secret"}`, `{"o":{"new":["secret"]}}`, `{"new":{"new":"secret"}}`,
	} {
		if err := strict.addValue([]byte(r)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", r, err)
		}
	}
	for _, r := range []string{
		`{"secret":secret}`, `{"secret":1,"secret":2}`, `{"s":secret}`, `{"i":"secret"}`, `{"o":{"secret":[}}`, `{"t":"secret"}`, `secret`, `{"s":"secret\q"}`,
	} {
		if err := d.addValue([]byte(r)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", r, err)
		}
	}
}

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for r := NoValue; r <= BadBinary; r++ {
		if s := r.String(); s == "" || seen[s] {
			t.Errorf("reason %d is %q", r, s)
		}
		seen[r.String()] = true
	}
	for e, want := range map[Error]string{
		{Reason: Syntax, Offset: 7}: "syntax at byte 7",
		{Reason: TypeMismatch, Path: "a.b", Offset: 7, Expected: "int", Found: "string"}: "type_mismatch at byte 7 in column a.b: expected int, found string",
		{Reason: OutOfRange, Path: "a", Offset: 7, Expected: "tinyint"}:                  "out_of_range at byte 7 in column a: expected tinyint",
		{Reason: UnknownField, Path: "a", Offset: 7, Field: "b\n\""}:                     `unknown_field at byte 7 in column a: the field is "b\n\""`,
	} {
		if e.Error() != want {
			t.Error(e.Error())
		}
	}
}

// TestNoValue: an empty value is an error of the decoder, not a row of nulls.
func TestNoValue(t *testing.T) {
	d := open(t, parse(t, "a int"), JSON{}, maxDistinct)
	checkError(t, d.addValue([]byte{}), NoValue, "")
	if d.Rows() != 0 || d.Seal() != nil {
		t.Error("a row of nothing")
	}
}

func TestIgnored(t *testing.T) {
	d := open(t, everything(t), JSON{}, maxDistinct)
	if err := d.addValue([]byte(`{"s":"x","new": {"a" : 1, "b":2},"o":{"r":1,"x\u0079":[2]},"items":[{"sku":"1","z":null}],"_kafka_offset":7,"S":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := d.addValue([]byte(`{"new":1,"s":2}`)); err == nil {
		t.Fatal("accepted")
	}
	want := connector.Ignored{Fields: 5, Names: []string{"new", "o.xy", "items[].z", "_kafka_offset", "S"}}
	if diff := cmp.Diff(want, d.Ignored()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(connector.Ignored{}, d.Ignored(), cmpopts.EquateEmpty()); diff != "" {
		t.Error("since the last call: ", diff)
	}
	if got := rowOf(d.Seal(), 0)[2]; got != int64(0) {
		t.Errorf("_kafka_offset is %v: taken from the record", got)
	}
}

func TestIgnored_NamesAreBounded(t *testing.T) {
	d := open(t, parse(t, "a int, list array<struct<b int>>"), JSON{}, maxDistinct)
	add := func(format string, args ...any) {
		t.Helper()
		if err := d.addValue(fmt.Appendf(nil, format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	const long = "a name that is longer than sixty-four bytes, which is what is kept of it"
	add(`{"x":1,"list":[{"x":1},{"x":2},{"x":3}]}`)
	add(`{"x":1,"a":2,"%s, one":1,"%s, other":1}`, long, long)
	add(`{"%sé":1}`, strings.Repeat("a", maxName-1))
	if got, want := d.Ignored(), []string{"x", "list[].x", long[:maxName], strings.Repeat("a", maxName-1)}; !slices.Equal(got.Names, want) || got.Fields != 8 || got.More {
		t.Errorf("%+v, want 8 fields named %q", got, want)
	}
	// A refused record changes neither the count of undeclared fields nor their names; those of other records stay.
	add(`{"x":1}`)
	for _, record := range []string{`{"x":1,"y":1,"y":2}`, `{"y":1,"a":"text"}`, `{"y":1`} {
		if err := d.addValue([]byte(record)); err == nil {
			t.Fatalf("%s: accepted", record)
		}
	}
	if got := d.Ignored(); !slices.Equal(got.Names, []string{"x"}) || got.Fields != 1 {
		t.Errorf("%+v, want x", got)
	}
	for i := range connector.MaxIgnoredNames {
		add(`{"field %d":1}`, i)
	}
	add(`{"field 7":1}`)
	if got := d.Ignored(); len(got.Names) != connector.MaxIgnoredNames || got.More {
		t.Errorf("%d names, more: %v", len(got.Names), got.More)
	}
	for i := range 100_000 {
		add(`{"field %d":1}`, i)
	}
	if got := d.Ignored(); len(got.Names) != connector.MaxIgnoredNames || !got.More || got.Fields != 100_000 {
		t.Errorf("%d names of %d fields, more: %v", len(got.Names), got.Fields, got.More)
	}
	d.Seal().Release()
}

// TestTopicIDs: each row has the id of its topic as Kafka's tools print it, or null if it is unknown; also in the next
// chunk, and without a dictionary.
func TestTopicIDs(t *testing.T) {
	s := parse(t, "a int").WithTopicID().WithKafkaColumns()
	one, two := idempotency.TopicID{1, 2, 3}, idempotency.TopicID{0xff, 15: 0xfe}
	if one.String() != "AQIDAAAAAAAAAAAAAAAAAA" || two.String() != "_wAAAAAAAAAAAAAAAAAA_g" {
		t.Fatal(one, two)
	}
	for _, distinct := range []int{maxDistinct, 0, 1} {
		d := open(t, s, JSON{}, distinct)
		for _, chunk := range [][]idempotency.TopicID{{one, one, {}, one, two, two, one, {}, {}}, {{}, one, one}, {one, two}, {{}}, {two, two}} {
			for i, id := range chunk {
				p := idempotency.Partition{Topic: "orders", TopicID: id, ID: 3}
				if err := d.Add(p, &connector.Record{Offset: int64(i), Timestamp: 1, Value: []byte(`{"a":1}`)}); err != nil {
					t.Fatal(err)
				}
				checkError(t, d.Add(p, &connector.Record{Value: []byte(`{"a":x}`)}), Syntax, "a")
			}
			batch := d.Seal()
			checkSchema(t, s, batch)
			for i, id := range chunk {
				want := []any{"orders", int64(3), int64(i), int64(1000), nil, int64(1)}
				if id != (idempotency.TopicID{}) {
					want[4] = id.String()
				}
				if got := rowOf(batch, i); !same(got, want) {
					t.Errorf("%d distinct, row %d of %v\n got %v\nwant %v", distinct, i, chunk, got, want)
				}
			}
			batch.Release()
		}
	}
}

func TestKafkaColumns(t *testing.T) {
	// The Kafka columns need not come first in an existing table.
	s, err := schema.FromDelta([]byte(`{"type":"struct","fields":[` +
		`{"name":"_kafka_timestamp","type":"timestamp","nullable":true},{"name":"a","type":"integer","nullable":true},` +
		`{"name":"_kafka_offset","type":"long","nullable":false},{"name":"price","type":"variant","nullable":true},` +
		`{"name":"_kafka_topic","type":"string","nullable":true},{"name":"b","type":"string","nullable":true},` +
		`{"name":"_kafka_partition","type":"integer","nullable":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := JSON{}.Builder(s)
	if err != nil {
		t.Fatal(err)
	}
	orders, other := idempotency.Partition{Topic: "orders", ID: 3}, idempotency.Partition{Topic: "a-rather-long-topic-name", ID: math.MaxInt32}
	for _, r := range []struct {
		p  idempotency.Partition
		at connector.Record
	}{
		{orders, connector.Record{Offset: 5, Timestamp: 1_700_000_000_123}},
		{other, connector.Record{Offset: math.MaxInt64, Timestamp: -1}},
		{orders, connector.Record{Offset: 0, Timestamp: -2}},
		{orders, connector.Record{Offset: 6, Timestamp: math.MaxInt64 / 1000}},
	} {
		r.at.Value = []byte(`{"a":1,"b":"x","price":1.5}`)
		if err := b.Add(r.p, &r.at); err != nil {
			t.Fatal(err)
		}
	}
	for _, ms := range []int64{math.MaxInt64, math.MaxInt64/1000 + 1, math.MinInt64} {
		checkError(t, b.Add(orders, &connector.Record{Timestamp: ms, Value: []byte(`{}`)}), OutOfRange, "_kafka_timestamp")
	}
	if n := b.Ignored().Fields; n != 4 {
		t.Errorf("%d fields ignored, want price four times", n)
	}
	batch := b.Seal()
	defer batch.Release()
	checkSchema(t, s, batch)
	for i, want := range [][]any{
		{int64(1_700_000_000_123_000), int64(1), int64(5), "orders", "x", int64(3)},
		{nil, int64(1), int64(math.MaxInt64), "a-rather-long-topic-name", "x", int64(math.MaxInt32)},
		{int64(-2000), int64(1), int64(0), "orders", "x", int64(3)},
		{int64(math.MaxInt64 / 1000 * 1000), int64(1), int64(6), "orders", "x", int64(3)},
	} {
		if got := rowOf(batch, i); !same(got, want) {
			t.Errorf("row %d\n got %v\nwant %v", i, got, want)
		}
	}
	strict := strings.Replace(s.DeltaJSON(), `"timestamp","nullable":true`, `"timestamp","nullable":false`, 1)
	if s, err = schema.FromDelta([]byte(strict)); err != nil {
		t.Fatal(err)
	}
	d := open(t, s, JSON{}, maxDistinct)
	checkError(t, d.Add(orders, &connector.Record{Timestamp: -1, Value: []byte(`{}`)}), RequiredMissing, "_kafka_timestamp")
}

// TestForeignTable: columns of a table that another program created are filled, too; those of types that are not written
// stay null, and their fields count as ignored.
func TestForeignTable(t *testing.T) {
	s, err := schema.FromDelta([]byte(strings.TrimSuffix(kafkaJSON, "]}") + `,{"name":"price","type":"decimal(12,4)","nullable":false},` +
		`{"name":"labels","type":{"type":"map","keyType":"string","valueType":"string","valueContainsNull":false},"nullable":true},` +
		`{"name":"blob","type":"binary","nullable":true},{"name":"local","type":"timestamp_ntz","nullable":true},` +
		`{"name":"codes","type":{"type":"map","keyType":"integer","valueType":"string","valueContainsNull":true},"nullable":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, s, JSON{}, maxDistinct)
	if err := d.addValue([]byte(`{"price":12.5,"labels":{"a":"b"},"blob":"AA==","local":"2026-01-01T00:00:00","codes":{"1":"x"}}`)); err != nil {
		t.Fatal(err)
	}
	checkError(t, d.addValue([]byte(`{"labels":{}}`)), RequiredMissing, "price")
	checkError(t, d.addValue([]byte(`{"price":1,"labels":{"a":null}}`)), RequiredMissing, "labels{}")
	if got := d.Ignored().Names; !slices.Equal(got, []string{"local", "codes"}) {
		t.Errorf("ignored: %q", got)
	}
	batch := d.Seal()
	defer batch.Release()
	checkSchema(t, s, batch)
	if got, want := rowOf(batch, 0)[4:], []any{"125000", map[string]any{"a": "b"}, "\x00"}; !same(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBuilderErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		schema connector.Schema
		json   JSON
		want   string
	}{
		{"no Kafka columns", mustDDL(t, "a int"), JSON{}, "_kafka_topic"},
		{"other schema", nil, JSON{}, "does not know a schema of type"},
		{"just deep enough", parse(t, "a int"), JSON{MaxDepth: 1}, ""},
		{"too deep", parse(t, "a struct<b:int>"), JSON{MaxDepth: 1}, "column a is nested deeper than MaxDepth, which is 1"},
		{"too deep a list", parse(t, "a array<int>"), JSON{MaxDepth: 1}, "column a is nested deeper"},
		{"only Kafka columns", kafkaOnly(t), JSON{}, "no column can be filled"},
	} {
		b, err := c.json.Builder(c.schema)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var h *hold.Error
		if b != nil || !errors.As(err, &h) || h.Reason != hold.SchemaConflict || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", c.name, b, err, c.want)
		}
	}
}

func mustDDL(t *testing.T, ddl string) *schema.Schema {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func kafkaOnly(t *testing.T) *schema.Schema {
	t.Helper()
	text := parse(t, "a int").DeltaJSON()
	s, err := schema.FromDelta([]byte(text[:strings.Index(text, `,{"name":"a"`)] + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestChunkFull: if the value of a record no longer fits into the 32-bit offsets of the chunk, Add returns ErrChunkFull
// and adds no row. After Seal the same record fits into the next chunk.
func TestChunkFull(t *testing.T) {
	d := open(t, parse(t, "a string"), JSON{}, maxDistinct)
	record := fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", 1000))
	if err := d.addValue(record); err != nil {
		t.Fatal(err)
	}
	d.fed = math.MaxInt32 - len(record)
	if err := d.addValue(record); err != nil {
		t.Fatal(err)
	}
	if err := d.addValue(record); !errors.Is(err, connector.ErrChunkFull) || d.Rows() != 2 {
		t.Fatalf("%v with %d rows", err, d.Rows())
	}
	d.Seal()
	for range 2 { // the next chunk has its full size again
		if err := d.addValue(record); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNeighbours: the decoder ignores bytes after the end of a record, although it may load them with the record.
func TestNeighbours(t *testing.T) {
	d := open(t, parse(t, "s string, i bigint"), JSON{}, maxDistinct)
	for _, c := range []struct {
		record, behind string
		why            Reason
	}{
		{`{"i":1`, `}`, Truncated},
		{`{"i":1`, "\x00}", Truncated},
		{`{"s":"x`, `y"}`, Truncated},
		{`{"i":1}`, `}`, 0},
		{`{"i":1}`, "\x00}", 0},
		{`{"i":1} `, "\x00 }", 0},
	} {
		b := padded(c.record + c.behind)
		if err := d.addValue(b[:len(c.record)]); c.why != 0 {
			checkError(t, err, c.why, map[bool]string{true: "s"}[strings.Contains(c.record, `"s"`)])
		} else if err != nil {
			t.Errorf("%s in front of %q: %v", c.record, c.behind, err)
		}
	}
}

// TestLimitsAreOfOneRecord: MaxValues and MaxBytes limit each record, not the sum of a chunk.
func TestLimitsAreOfOneRecord(t *testing.T) {
	d := open(t, parse(t, "l array<int>"), JSON{MaxValues: 4, MaxBytes: 30}, maxDistinct)
	for range 3 {
		if err := d.addValue([]byte(`{"l":[1,2],"u":[3]}`)); err != nil {
			t.Fatal(err)
		}
		checkError(t, d.addValue([]byte(`{"l":[1,2],"u":[3,4]}`)), TooManyValues, "")
	}
}

// TestBytes: before Seal, Bytes returns at least the size of the chunk that Seal will return, except for a small slack,
// and at most the size that the chunk would have without dictionaries.
func TestBytes(t *testing.T) {
	s := parse(t, "s string, i bigint, b boolean, l array<string>, o struct<x:int, y:string not null>, n date")
	for _, distinct := range []int{0, 5, maxDistinct} {
		d := open(t, s, JSON{}, distinct)
		if d.Bytes() != 0 {
			t.Error("an idle builder holds memory")
		}
		for i := range 3000 {
			record := fmt.Appendf(nil, `{"s":"%s","i":%d,"b":true,"l":["a","%d"],"o":{"y":"%d"}}`, strings.Repeat("x", i%7*10), i, i, i%3)
			if i%5 == 0 {
				record = []byte(`{}`)
			}
			if err := d.addValue(record); err != nil {
				t.Fatal(err)
			}
		}
		said := d.Bytes()
		got := int64(0)
		for _, c := range d.Seal().Columns() {
			got += sizeOf(c)
		}
		const slack = 10 * 1024
		if got > said+slack || distinct == 0 && said > got+slack {
			t.Errorf("%d distinct: Bytes said %d, the arrays have %d", distinct, said, got)
		}
	}
}

// TestManyColumns: the decoder notes the fields that it has seen as bits, in one word per 64 fields. In an object with
// more fields it still finds a missing NOT NULL field and a repeated field.
func TestManyColumns(t *testing.T) {
	var ddl, record []string
	for i := range 70 {
		ddl = append(ddl, fmt.Sprintf("c%d int", i))
		record = append(record, fmt.Sprintf(`"c%d":%d`, i, i))
	}
	ddl[68] += " not null"
	d := open(t, parse(t, strings.Join(ddl, ",")), JSON{}, maxDistinct)
	for range 2 {
		if err := d.addValue([]byte("{" + strings.Join(record, ",") + "}")); err != nil {
			t.Fatal(err)
		}
	}
	checkError(t, d.addValue([]byte(`{}`)), RequiredMissing, "c68")
	checkError(t, d.addValue([]byte(`{"c68":1,"c69":1,"c69":1}`)), DuplicateKey, "c69")
	if got := rowOf(d.Seal(), 1)[4+69]; got != int64(69) {
		t.Errorf("c69 is %v", got)
	}
}
