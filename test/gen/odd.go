package gen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// text is a string with one of its encodings in JSON.
type text struct{ value, json string }

// number is a double with one of its encodings in JSON.
type number struct {
	value float64
	json  string
}

// instant is a point in time with one of its encodings in JSON.
type instant struct {
	at   time.Time
	json string
}

// oddTexts are strings that are difficult for readers, statistics (which keep 32 characters of a bound) and escaping.
var oddTexts = []text{
	{"", `""`},
	{"a\"b\\c/d\be\ff\ng\rh\ti", `"a\"b\\c\/d\be\ff\ng\rh\ti"`},
	{"\u0000\u0001\u001f\u007f", `"\u0000\u0001\u001F` + "\u007f" + `"`},
	{"é€😀", `"\u00e9\u20AC\ud83d\uDE00"`},
	{"é€😀", `"é€😀"`},
	{" leading and trailing ", `" leading and trailing "`},
	{"null", `"null"`},
	{"__HIVE_DEFAULT_PARTITION__", `"__HIVE_DEFAULT_PARTITION__"`},
	{strings.Repeat("z", 31) + "😀😀", `"` + strings.Repeat("z", 31) + `😀😀"`},
	{strings.Repeat("\U0010ffff", 40), `"` + strings.Repeat("\U0010ffff", 40) + `"`},
	{strings.Repeat("~", 33) + "x", `"` + strings.Repeat("~", 33) + `x"`},
	{strings.Repeat("long ", 200), `"` + strings.Repeat("long ", 200) + `"`},
}

var oddDoubles = []number{
	{0, "0"},
	{math.Copysign(0, -1), "-0.0"},
	{1e300, "1e300"},
	{-1e-300, "-1E-300"},
	{math.MaxFloat64, "1.7976931348623157e+308"},
	{math.SmallestNonzeroFloat64, "5e-324"},
	{0.1, "0.1000000000000000055511151231257827021181583404541015625"},
	{9007199254740993, "9007199254740993.0"},
	{12, "12"},
	{-2.5, "-25e-1"},
}

var oddInstants = []instant{
	{time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), `"1970-01-01T00:00:00Z"`},
	{time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC), `"1969-12-31T23:59:59.999999Z"`},
	{time.Date(2026, 2, 28, 22, 30, 0, 0, time.UTC), `"2026-03-01T00:00:00+01:30"`},
	{time.Date(2026, 3, 1, 8, 0, 0, 500_000_000, time.UTC), `"2026-03-01T00:00:00.5-08:00"`},
	{time.Date(2024, 2, 29, 12, 0, 0, 123_000_000, time.UTC), `"2024-02-29T12:00:00.123Z"`},
	{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), `"9999-12-31T23:59:59Z"`},
	{time.Date(1900, 1, 1, 0, 0, 0, 1000, time.UTC), `"1900-01-01T00:00:00.000001Z"`},
}

// odd makes an order with rare values. Each optional field is absent, null or set, and the fields are in random order.
// Unless the policy forbids it, there is an unknown field, and some records have a null key.
func (rec *Record) odd(r *rand.Rand, i int64, p Policy) {
	o := &rec.Order
	o.OrderID = id(r)
	var fields []string
	add := func(name, value string) {
		fields = append(fields, `"`+name+`"`+space(r)+":"+space(r)+value)
	}
	// there reports whether a field gets a value. A field without a value may be null or absent.
	there := func(name string) bool {
		switch r.IntN(4) {
		case 0:
			return false
		case 1:
			add(name, "null")
			return false
		default:
			return true
		}
	}
	str := func(name string) *string {
		if !there(name) {
			return nil
		}
		t := oddTexts[r.IntN(len(oddTexts))]
		add(name, t.json)
		return &t.value
	}
	dbl := func(name string) *float64 {
		if !there(name) {
			return nil
		}
		n := oddDoubles[r.IntN(len(oddDoubles))]
		add(name, n.json)
		return &n.value
	}
	if !p.Strict {
		add("unknown", `{"a":[1,{"b":null}],"order_id":"not this one"}`)
	}
	o.CustomerID = str("customer_id")
	if there("store_id") {
		o.StoreID = new([]int64{0, -1, math.MaxInt64, math.MinInt64, 1 << 53, 1<<53 + 1}[r.IntN(6)])
		add("store_id", strconv.FormatInt(*o.StoreID, 10))
	}
	if there("quantity") {
		o.Quantity = new([]int32{0, -1, math.MaxInt32, math.MinInt32}[r.IntN(4)])
		add("quantity", strconv.Itoa(int(*o.Quantity)))
	}
	o.Total, o.Discount = dbl("total"), dbl("discount")
	if there("created_at") {
		at := oddInstants[r.IntN(len(oddInstants))]
		o.CreatedAt = new(at.at.UnixMicro())
		add("created_at", at.json)
	}
	if there("paid") {
		o.Paid = new(r.IntN(2) == 0)
		add("paid", strconv.FormatBool(*o.Paid))
	}
	o.Status, o.Coupon = str("status"), str("coupon")
	outer := fields
	if fields = nil; there("shipping") {
		fields = nil
		o.Shipping = &Shipping{str("street"), str("city"), str("zip"), str("country"), dbl("lat"), str("note")}
		r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		fields = []string{`"shipping":{` + strings.Join(fields, ",") + "}"}
	}
	fields = append(outer, fields...)
	if there("tags") {
		o.HasTags = true
		var values []string
		for range r.IntN(4) {
			if r.IntN(5) == 0 {
				o.Tags, values = append(o.Tags, nil), append(values, "null")
				continue
			}
			t := oddTexts[r.IntN(len(oddTexts))]
			o.Tags, values = append(o.Tags, &t.value), append(values, t.json)
		}
		add("tags", "["+strings.Join(values, space(r)+",")+space(r)+"]")
	}
	add("order_id", `"`+o.OrderID+`"`)
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	rec.Value = []byte(space(r) + "{" + strings.Join(fields, ",") + space(r) + "}" + space(r))
	if r.IntN(4) > 0 || p.Keys { // otherwise the key is null
		rec.Key = fmt.Appendf(nil, "odd-%d", i%97)
	}
}

func space(r *rand.Rand) string {
	return []string{"", "", "", " ", "\n\t", "\r\n"}[r.IntN(6)]
}
