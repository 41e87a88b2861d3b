package decode

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
)

// orderDDL is the table of the orders that benchmarks use.
const orderDDL = `order_id string not null, customer_id string, store_id int, quantity int, total double, discount double, created_at timestamp,
	paid boolean, status string, coupon string,
	shipping struct<street:string, city:string, zip:string, country:string, lat:double, note:string>, tags array<string>`

var (
	cities   = []string{"Berlin", "Zürich", "São Paulo", "Lyon", "Austin", "Osaka", "Kraków", "Turin", "Malmö", "Porto"}
	streets  = []string{"Main St", "Oak Avenue", "Rue de la Paix", "Hauptstrasse", "Via Roma", "Elm Road", "Station Road", "High Street"}
	tags     = []string{"new", "gift", "express", "b2b", "promo", "fragile", "preorder", "returning", "vip", "bulk", "eco", "cod"}
	statuses = []string{"created", "paid", "packed", "shipped", "delivered", "returned", "cancelled"}
	notes    = []string{"leave at the door", "please call before delivery, bell is broken", "gift wrap in blue, no invoice inside the parcel", "ring twice"}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func rounded(v float64, digits int) string {
	p := math.Pow10(digits)
	return strconv.FormatFloat(math.Round(v*p)/p, 'f', -1, 64)
}

// appendOrder appends the JSON of order i of n to b, 386 bytes on average.
func appendOrder(b []byte, r *rand.Rand, i, n int) []byte {
	discount, coupon, note := "null", "null", "null"
	if r.Float64() >= .6 {
		discount = rounded(r.Float64()*.5, 4)
	}
	if r.Float64() >= .7 {
		coupon = fmt.Sprintf(`"CPN%08d"`, r.IntN(1<<24))
	}
	if r.Float64() >= .5 {
		note = `"` + pick(r, notes) + `"`
	}
	list := make([]string, r.IntN(5))
	for i := range list {
		list[i] = `"` + pick(r, tags) + `"`
	}
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * (30 * 24 * time.Hour / time.Duration(n)))
	city := r.IntN(len(cities))
	return fmt.Appendf(b, `{"order_id":"%08x-%04x-%04x-%04x-%012x","customer_id":"cust-%07d","store_id":%d,"quantity":%d,"total":%s,"discount":%s,`+
		`"created_at":"%s.%06dZ","paid":%t,"status":"%s","coupon":%s,`+
		`"shipping":{"street":"%d %s","city":"%s","zip":"%06d","country":"C%d","lat":%s,"note":%s},"tags":[%s]}`,
		r.Uint32(), r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16), r.Int64N(1<<48), r.IntN(200_000), r.IntN(1<<14), 1+r.IntN(40), rounded(r.Float64()*5000, 2), discount,
		created.Format("2006-01-02T15:04:05"), r.IntN(1e6), r.IntN(2) == 0, pick(r, statuses), coupon,
		r.IntN(1024), pick(r, streets), cities[city], r.IntN(1<<17), city, rounded(r.Float64()*180-90, 6), note, strings.Join(list, ","))
}

// orders returns n records and the bytes of their values. The values lie in one buffer as in a decompressed record
// batch: after each value come the record's number of headers and the bytes before the next value.
func orders(n int) (records []connector.Record, bytes int) {
	r := rand.New(rand.NewPCG(7, 7))
	var all []byte
	ends := make([]int, n)
	for i := range ends {
		all = appendOrder(all, r, i, n)
		ends[i] = len(all)
		all = append(all, "\x00\x90\x06\x00\x02\x02\x01\x88\x06"...)
	}
	all = append(all, zeroPadding[:]...)
	records = make([]connector.Record, n)
	start := 0
	for i, end := range ends {
		records[i] = connector.Record{Offset: int64(i), Timestamp: 1_767_225_600_000 + int64(i), Value: all[start:end]}
		bytes += end - start
		start = end + 9
	}
	return records, bytes
}

const benchRows = 65_000

// BenchmarkDecode decodes and seals chunks of orders on one core.
func BenchmarkDecode(b *testing.B) {
	records, bytes := orders(benchRows)
	p := idempotency.Partition{Topic: "orders", TopicID: idempotency.TopicID{1, 2, 3}, ID: 3}
	columns := parse(b, orderDDL)
	for _, c := range []struct {
		name     string
		columns  *schema.Schema
		distinct int
	}{{"dictionaries", columns, maxDistinct}, {"topic id", columns.WithTopicID().WithKafkaColumns(), maxDistinct}, {"plain", columns, 0}} {
		b.Run(c.name, func(b *testing.B) {
			d := open(b, c.columns, JSON{}, c.distinct)
			b.ReportAllocs()
			b.SetBytes(int64(bytes / benchRows))
			i := 0
			for b.Loop() {
				if err := d.Add(p, &records[i]); err != nil {
					b.Fatal(err)
				}
				if i++; i == benchRows {
					d.Seal().Release()
					i = 0
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// TestOrders: the rows of a chunk of the benchmark's records have the values that the oracle computes.
func TestOrders(t *testing.T) {
	s := parse(t, orderDDL)
	records, bytes := orders(5000)
	if mean := bytes / len(records); mean < 370 || mean > 400 {
		t.Errorf("%d bytes on average", mean)
	}
	d := open(t, s, JSON{}, maxDistinct)
	p := idempotency.Partition{Topic: "orders", ID: 3}
	for i := range records {
		if err := d.Add(p, &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	batch := d.Seal()
	checkSchema(t, s, batch)
	for i := range records {
		want, err := oracle(s, JSON{}, records[i].Value)
		if err != nil {
			t.Fatal(err)
		}
		want = append([]any{"orders", int64(3), int64(i), records[i].Timestamp * 1000}, want...)
		if got := rowOf(batch, i); !same(got, want) {
			t.Fatalf("row %d\n got %v\nwant %v", i, got, want)
		}
	}
}

// TestNoAllocations: once a chunk has its buffers, decoding a record allocates no memory, even if the record has
// undeclared fields.
func TestNoAllocations(t *testing.T) {
	for _, ddl := range []string{orderDDL, strings.Replace(orderDDL, "status string, coupon string,", "", 1)} {
		for _, copied := range []bool{false, true} {
			records, _ := orders(3000)
			if copied {
				for i, r := range records {
					records[i].Value = slices.Clip(r.Value)
				}
			}
			d := open(t, parse(t, ddl), JSON{}, maxDistinct)
			p := idempotency.Partition{Topic: "orders", ID: 3}
			add := func(r *connector.Record) {
				if err := d.Add(p, r); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 { // lets the decoder learn the sizes of its buffers
				for i := range records {
					add(&records[i])
				}
				d.Seal().Release()
			}
			for i := range records[:1000] { // fills the dictionaries
				add(&records[i])
			}
			i := 1000
			if n := testing.AllocsPerRun(1500, func() { add(&records[i]); i++ }); n > 0.01 {
				t.Errorf("%v allocations per record", n)
			}
		}
	}
}
