package admin

import (
	"runtime"
	"testing"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// letterRecord returns a record of a dead-letter topic about a record of topic orders.
func letterRecord(source int32, offset int64) *connector.Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, int(offset), time.UTC)
	e := deadletter.Form{Pipeline: "p"}.Encode(deadletter.Letter{
		Source: idempotency.Coordinates{
			Partition: connector.Partition{Cluster: "MkU3OEVBNTcwNTJENDM2Qk", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: source}, Offset: offset,
		},
		Timestamp: 1000, Key: []byte("key-1"), Value: []byte(`{"id": 1, "qty": "many"}`), Headers: []deadletter.Header{{Key: "trace", Value: []byte("abc")}},
		Class: classify.Poison, Reason: "type_mismatch", Detail: "type_mismatch at byte 5 in column qty: expected int, found string", Trace: "type_mismatch",
		FirstFailure: at, LastFailure: at, Written: at, Member: "host-1-77", Correlation: "3f2a9c1e", Batch: "orders-17",
	})
	r := &connector.Record{Offset: offset, Timestamp: e.Timestamp, Key: e.Key, Value: e.Value}
	for _, h := range e.Headers {
		r.Headers = append(r.Headers, connector.Header(h))
	}
	return r
}

// BenchmarkLetterBook reads dead letters into a book and lists 100 of them. It reports the heap that a dead letter takes.
func BenchmarkLetterBook(b *testing.B) {
	const sources = 4
	var records [sources][]*connector.Record
	for s := range int32(sources) {
		for offset := range int64(1000) {
			records[s] = append(records[s], letterRecord(s, offset))
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	book, p := newLetterBook(0), connector.Partition{Topic: "orders-dlq"}
	book.dead = append(book.dead, p)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		r := *records[i%sources][i/sources%1000]
		book.parse(p, &r, func(l *deadletter.Letter) bool { l.Source.Offset = int64(i); return true })
	}
	book.settle()
	book.list(&letterScope{}, LetterQuery{Limit: 100, States: []LetterState{""}})
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if book.distinct() != b.N {
		b.Errorf("%d dead letters of %d", book.distinct(), b.N)
	}
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N), "B/letter")
	runtime.KeepAlive(book)
}
