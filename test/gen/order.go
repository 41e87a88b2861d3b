// Package gen makes the records of tests and benchmarks deterministically, and keeps the ledger of produced records
// with which tests compare tables.
//
// A record depends only on the seed and its number. Its JSON text and the canonical hash of its row are made from the
// same values, so the ledger does not depend on the connector's decoder.
package gen

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// DDL is the schema of a table of orders, in the syntax of the configuration.
const DDL = "order_id string not null, customer_id string, store_id bigint, quantity int, total double, discount double, " +
	"created_at timestamp, paid boolean, status string, coupon string, shipping struct<street:string, city:string, " +
	"zip:string, country:string, lat:double, note:string>, tags array<string>"

// Order is the row that a record must become. A nil pointer or a nil slice is a null.
type Order struct {
	OrderID    string
	CustomerID *string
	StoreID    *int64
	Quantity   *int32
	Total      *float64
	Discount   *float64
	CreatedAt  *int64 // microseconds since 1970
	Paid       *bool
	Status     *string
	Coupon     *string
	Shipping   *Shipping
	Tags       []*string
	HasTags    bool // false is a null array
}

// Shipping is the nested part of an order.
type Shipping struct {
	Street  *string
	City    *string
	Zip     *string
	Country *string
	Lat     *float64
	Note    *string
}

// Record is a record to produce: a key, a JSON value, and the row that the value must become.
type Record struct {
	Key   []byte
	Value []byte
	Order Order
	// Code is the reason code of a record that cannot become a row. It is "" for a good record. Order is then empty, except
	// for [UnknownField].
	Code string
	// Time is the record's timestamp, in milliseconds since 1970.
	Time int64
}

// Orders generates the records of one seed.
type Orders struct {
	Seed uint64
	// Span is how many records it takes until created_at has moved ahead by 30 days.
	Span int64
	// Odd is how many of 1000 records have rare values: escapes, long strings, extremes, absent fields.
	Odd int
	// Bad is how many of 1000 records cannot become rows under Policy. They have all kinds of [Poisons] except the
	// large ones. The other records are good under Policy.
	Bad    int
	Policy Policy
	// Only is the code of all bad records; "" allows all kinds.
	Only string
}

// Record returns record number i.
func (o Orders) Record(i int64) Record {
	r := o.rand(i)
	rec := Record{Time: start.UnixMilli() + i}
	switch share := int(r.Uint32N(1000)); {
	case share < o.Bad:
		return o.poison(r, i)
	case share < o.Bad+o.Odd:
		rec.odd(r, i, o.Policy)
	default:
		rec.plain(r, i, max(o.Span, 1))
	}
	return rec
}

func (o Orders) rand(i int64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, uint64(i))) }

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	cities = [...]string{
		"Berlin", "Zürich", "São Paulo", "Lyon", "Austin", "Osaka", "Kraków", "Turin", "Malmö", "Porto",
	}
	streets = [...]string{
		"Main St", "Oak Avenue", "Rue de la Paix", "Hauptstrasse", "Via Roma", "Elm Road", "Station Road", "High Street",
	}
	tags = [...]string{
		"new", "gift", "express", "b2b", "promo", "fragile", "preorder", "returning", "vip", "bulk", "eco", "cod",
	}
	states = [...]string{"created", "paid", "packed", "shipped", "delivered", "returned", "cancelled"}
	notes  = [...]string{
		"leave at the door", "please call before delivery, bell is broken",
		"gift wrap in blue, no invoice inside the parcel", "ring twice",
	}
)

// plain makes an order with common values. The JSON of such an order has 386 bytes on average.
func (rec *Record) plain(r *rand.Rand, i, span int64) {
	o := &rec.Order
	o.OrderID = id(r)
	o.CustomerID = new(fmt.Sprintf("cust-%07d", r.Uint32N(200_000)))
	o.StoreID = new(int64(r.Uint32N(1 << 14)))
	o.Quantity = new(int32(1 + r.Uint32N(40)))
	b := append(rec.Value, `{"order_id":"`...)
	b = append(b, o.OrderID...)
	b = append(b, `","customer_id":"`...)
	b = append(b, *o.CustomerID...)
	b = append(b, `","store_id":`...)
	b = strconv.AppendInt(b, *o.StoreID, 10)
	b = append(b, `,"quantity":`...)
	b = strconv.AppendInt(b, int64(*o.Quantity), 10)
	b = append(b, `,"total":`...)
	b, o.Total = decimal(b, int64(r.Uint32N(500_000)), 2)
	b = append(b, `,"discount":`...)
	if r.Uint32N(10) < 6 {
		b = append(b, "null"...)
	} else {
		b, o.Discount = decimal(b, int64(r.Uint32N(5_000)), 4)
	}
	at := start.Add(time.Duration(float64(i)/float64(span)*30*86400)*time.Second +
		time.Duration(r.Uint32N(1_000_000))*time.Microsecond)
	o.CreatedAt = new(at.UnixMicro())
	b = append(b, `,"created_at":"`...)
	b = at.AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	o.Paid = new(r.Uint32N(2) == 1)
	b = append(b, `","paid":`...)
	b = strconv.AppendBool(b, *o.Paid)
	o.Status = &states[r.IntN(len(states))]
	b = append(b, `,"status":"`...)
	b = append(b, *o.Status...)
	b = append(b, `","coupon":`...)
	if r.Uint32N(10) < 7 {
		b = append(b, "null"...)
	} else {
		o.Coupon = new(fmt.Sprintf("CPN%08d", r.Uint32N(1<<24)))
		b = quoted(b, *o.Coupon)
	}
	b = rec.plainShipping(b, r)
	b = append(b, `,"tags":[`...)
	o.HasTags = true
	for n := range r.IntN(5) {
		if n > 0 {
			b = append(b, ',')
		}
		tag := &tags[r.IntN(len(tags))]
		o.Tags = append(o.Tags, tag)
		b = quoted(b, *tag)
	}
	rec.Value = append(b, "]}"...)
	rec.Key = []byte(*o.CustomerID)
}

func (rec *Record) plainShipping(b []byte, r *rand.Rand) []byte {
	city := r.IntN(len(cities))
	s := &Shipping{
		Street:  new(fmt.Sprintf("%d %s", r.Uint32N(1024), streets[r.IntN(len(streets))])),
		City:    &cities[city],
		Zip:     new(fmt.Sprintf("%06d", r.Uint32N(1<<17))),
		Country: new("C" + strconv.Itoa(city)),
	}
	b = append(b, `,"shipping":{"street":`...)
	b = quoted(b, *s.Street)
	b = append(b, `,"city":`...)
	b = quoted(b, *s.City)
	b = append(b, `,"zip":`...)
	b = quoted(b, *s.Zip)
	b = append(b, `,"country":`...)
	b = quoted(b, *s.Country)
	b = append(b, `,"lat":`...)
	b, s.Lat = decimal(b, int64(r.Uint32N(180_000_000))-90_000_000, 6)
	b = append(b, `,"note":`...)
	if r.Uint32N(2) == 0 {
		b = append(b, "null"...)
	} else {
		s.Note = &notes[r.IntN(len(notes))]
		b = quoted(b, *s.Note)
	}
	rec.Order.Shipping = s
	return append(b, '}')
}

func id(r *rand.Rand) string {
	hi, lo := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&0xffffffffffff)
}

// quoted appends text that needs no escapes as a JSON string.
func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// decimal appends units×10^-places without trailing zeros, and returns the nearest double.
func decimal(b []byte, units int64, places int) ([]byte, *float64) {
	from := len(b)
	scale := int64(1)
	for range places {
		scale *= 10
	}
	if units < 0 {
		b = append(b, '-')
		units = -units
	}
	b = strconv.AppendInt(b, units/scale, 10)
	b = append(b, '.')
	rest := strconv.Itoa(int(units%scale + scale))
	b = append(b, rest[1:]...)
	f, err := strconv.ParseFloat(string(b[from:]), 64)
	if err != nil {
		panic(err) // cannot happen: the text is a number
	}
	return b, &f
}
