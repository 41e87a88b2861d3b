package datafile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/connector"
)

var orderSchema = func() *arrow.Schema {
	f := nullable
	return schemaOf(
		f("_kafka_topic", str), f("_kafka_partition", arrow.PrimitiveTypes.Int32), f("_kafka_offset", i64),
		f("_kafka_timestamp", timestamp),
		f("order_id", str), f("customer_id", str), f("store_id", i64), f("quantity", i64), f("total", f64),
		f("discount", f64), f("created_at", timestamp), f("paid", arrow.FixedWidthTypes.Boolean), f("status", str),
		f("coupon", str),
		f("shipping", arrow.StructOf(f("street", str), f("city", str), f("zip", str), f("country", str), f("lat", f64),
			f("note", str))),
		f("tags", arrow.ListOfField(f("element", str))),
	)
}()

var (
	cities   = []string{"Berlin", "Zürich", "São Paulo", "Lyon", "Austin", "Osaka", "Kraków", "Turin", "Malmö", "Porto"}
	streets  = []string{"Main St", "Oak Avenue", "Rue de la Paix", "Hauptstrasse", "Via Roma", "Elm Road", "High Street"}
	tagNames = []string{"new", "gift", "express", "b2b", "promo", "fragile", "preorder", "returning", "vip", "eco", "cod"}
	statuses = []string{"created", "paid", "packed", "shipped", "delivered", "returned", "cancelled"}
	notes    = []string{
		"leave at the door", "please call before delivery, bell is broken",
		"gift wrap in blue, no invoice inside the parcel", "ring twice",
	}
)

// orders makes the rows of n JSON orders of 386 bytes, beginning with order first. They come in runs of 1000 rows from
// each of 8 partitions.
func orders(first, n int) arrow.RecordBatch {
	r := rand.New(rand.NewPCG(uint64(first), 42))
	b := array.NewRecordBuilder(memory.DefaultAllocator, orderSchema)
	b.Reserve(n)
	text := func(i int, s string) { b.Field(i).(*array.StringBuilder).Append(s) }
	sometimes := func(b *array.StringBuilder, nulls float64, s string) {
		if r.Float64() < nulls {
			b.AppendNull()
		} else {
			b.Append(s)
		}
	}
	round := func(x, unit float64) float64 { return math.Round(x/unit) * unit }
	ship, tags := b.Field(14).(*array.StructBuilder), b.Field(15).(*array.ListBuilder)
	for i := range n {
		k := first + i
		created := arrow.Timestamp(1_767_225_600_000_000 + int64(k)*1_296_000 + r.Int64N(1_000_000))
		text(0, "orders")
		b.Field(1).(*array.Int32Builder).Append(int32(k / 1000 % 8))
		b.Field(2).(*array.Int64Builder).Append(int64(k/8000*1000 + k%1000))
		b.Field(3).(*array.TimestampBuilder).Append(1_780_000_000_000_000 + arrow.Timestamp(k/500)*1000)
		x, y := r.Uint64(), r.Uint64()
		text(4, fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", x>>32, x>>16&0xFFFF, x&0xFFFF, y>>48, y&(1<<48-1)))
		text(5, fmt.Sprintf("cust-%07d", r.IntN(200_000)))
		b.Field(6).(*array.Int64Builder).Append(r.Int64N(1 << 14))
		b.Field(7).(*array.Int64Builder).Append(1 + r.Int64N(40))
		b.Field(8).(*array.Float64Builder).Append(round(r.Float64()*5000, 0.01))
		if r.Float64() < 0.6 {
			b.Field(9).AppendNull()
		} else {
			b.Field(9).(*array.Float64Builder).Append(round(r.Float64()*0.5, 0.0001))
		}
		b.Field(10).(*array.TimestampBuilder).Append(created)
		b.Field(11).(*array.BooleanBuilder).Append(r.IntN(2) == 0)
		text(12, statuses[r.IntN(len(statuses))])
		sometimes(b.Field(13).(*array.StringBuilder), 0.7, fmt.Sprintf("CPN%08d", r.IntN(1<<24)))
		ship.Append(true)
		city := r.IntN(len(cities))
		ship.FieldBuilder(0).(*array.StringBuilder).Append(fmt.Sprint(r.IntN(1024), " ", streets[r.IntN(len(streets))]))
		ship.FieldBuilder(1).(*array.StringBuilder).Append(cities[city])
		ship.FieldBuilder(2).(*array.StringBuilder).Append(fmt.Sprintf("%06d", r.IntN(1<<17)))
		ship.FieldBuilder(3).(*array.StringBuilder).Append(fmt.Sprint("C", city))
		ship.FieldBuilder(4).(*array.Float64Builder).Append(round(r.Float64()*180-90, 0.000001))
		sometimes(ship.FieldBuilder(5).(*array.StringBuilder), 0.5, notes[r.IntN(len(notes))])
		tags.Append(true)
		for range r.IntN(5) {
			tags.ValueBuilder().(*array.StringBuilder).Append(tagNames[r.IntN(len(tagNames))])
		}
	}
	return b.NewRecordBatch()
}

// dictionaryOrders returns the rows of b as a decoder that interns strings makes them: with dictionaries.
func dictionaryOrders(b arrow.RecordBatch) arrow.RecordBatch {
	e := newEncoder(mustColumns(orderSchema), 32)
	e.share = newShare()
	e.stats = make([]stat, e.cols.bounds)
	arrays, err := e.shapeAll(chunk{rows: b, ranges: [][2]int64{{0, b.NumRows()}}})
	if err != nil {
		panic(err)
	}
	fields := slices.Clone(orderSchema.Fields())
	for i, a := range arrays {
		fields[i].Type = a.DataType()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, b.NumRows())
}

func mustColumns(sc *arrow.Schema) *columns {
	c, err := newColumns(sc, Options{}.withDefaults().Statistics)
	if err != nil {
		panic(err)
	}
	return c
}

// BenchmarkEncode encodes 8 chunks of 65 000 orders into one file.
func BenchmarkEncode(b *testing.B) {
	const rows = 65_000
	plain := []arrow.RecordBatch{orders(0, rows), orders(rows, rows)}
	for _, in := range []struct {
		name    string
		batches []arrow.RecordBatch
	}{{"plain", plain}, {"dictionary", []arrow.RecordBatch{dictionaryOrders(plain[0]), dictionaryOrders(plain[1])}}} {
		for _, parallel := range slices.Compact([]int{1, runtime.GOMAXPROCS(0)}) {
			b.Run(fmt.Sprintf("%s/parallel=%d", in.name, parallel), func(b *testing.B) {
				var pieces []connector.Piece
				for i := range 8 {
					pieces = append(pieces, connector.Piece{Rows: in.batches[i%2], To: rows})
				}
				b.ReportAllocs()
				size, cpu := int64(0), cpuTime(b)
				for b.Loop() {
					o := Options{Parallel: parallel, TargetSize: 1 << 40}
					err := Encode(b.Context(), orderSchema, pieces, o, func(f File) error { size = f.Size; return nil })
					if err != nil {
						b.Fatal(err)
					}
				}
				n := float64(len(pieces)*rows) * float64(b.N)
				b.ReportMetric(n/b.Elapsed().Seconds(), "rec/s")
				b.ReportMetric(n/(cpuTime(b)-cpu).Seconds(), "rec/cpu-s")
				b.ReportMetric(float64(size)/float64(len(pieces)*rows), "B/rec")
			})
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// spread assigns the rows of batches at random to a number of table partitions.
type spread map[arrow.RecordBatch][]int32

func (s spread) Of(rows arrow.RecordBatch) ([]int32, error) { return s[rows], nil }

func (s spread) Columns() []string { return nil }

// BenchmarkPartitions encodes 4 chunks of 65 000 orders with table partitions, and in turns without them. The metrics
// x-cpu, x-allocated and x-size say how many times as much CPU time, allocated memory and bytes of files partitions take.
func BenchmarkPartitions(b *testing.B) {
	const rows = 65_000
	var batches []arrow.RecordBatch
	for i := range 4 {
		batches = append(batches, dictionaryOrders(orders(i*rows, rows)))
	}
	type cost struct {
		cpu             time.Duration
		allocated, size int64
		files           int
	}
	for _, values := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			r, divided := rand.New(rand.NewPCG(1, uint64(values))), spread{}
			var pieces []connector.Piece
			for _, rows := range batches {
				ids := make([]int32, rows.NumRows())
				for i := range ids {
					ids[i] = r.Int32N(int32(values))
				}
				divided[rows] = ids
				pieces = append(pieces, connector.Piece{Rows: rows, To: rows.NumRows()})
			}
			encode := func(p Partitioner) (c cost) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				began := cpuTime(b)
				o := Options{Parallel: 1, TargetSize: 1 << 40, Partition: p}
				err := Encode(b.Context(), orderSchema, pieces, o, func(f File) error { c.size += f.Size; c.files++; return nil })
				if err != nil {
					b.Fatal(err)
				}
				c.cpu = cpuTime(b) - began
				runtime.ReadMemStats(&after)
				c.allocated = int64(after.TotalAlloc - before.TotalAlloc)
				return c
			}
			var with, without cost
			for b.Loop() {
				for in, p := range map[*cost]Partitioner{&with: divided, &without: nil} {
					c := encode(p)
					in.cpu, in.allocated, in.size, in.files = in.cpu+c.cpu, in.allocated+c.allocated, c.size, c.files
				}
			}
			b.ReportMetric(float64(with.cpu)/float64(without.cpu), "x-cpu")
			b.ReportMetric(float64(with.allocated)/float64(without.allocated), "x-allocated")
			b.ReportMetric(float64(with.size)/float64(without.size), "x-size")
			b.ReportMetric(float64(with.files), "files")
		})
	}
}
