//go:build lab && linux

package e2e

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// hostileRecords are records and topics that a broken or malicious producer may create.
func hostileRecords() []hostile {
	// sent returns an attack that produces one record. The record is built only when the attack runs, because several are
	// too large to hold all at once.
	sent := func(codec kgo.CompressionCodec, value func() []byte) func(a *attack) string {
		return func(a *attack) string {
			a.sends(codec, &kgo.Record{Value: value()})
			return ""
		}
	}
	nested := func(open, inside, end string, n int) []byte {
		return []byte(strings.Repeat(open, n) + inside + strings.Repeat(end, n))
	}
	bomb := func() []byte { return make([]byte, 300<<20) }
	const escapes = "\x1b]0;owned\x07\x1b[2J\u202e\u009b1m"
	return []hostile{
		{
			name: "topics", input: "400 topics for a pattern with max_topics 20", before: func(a *attack) []setting {
				return []setting{a.manyTopics(400, 20)}
			},
			during: func(a *attack) string { return a.tooMany(380) },
		},
		{name: "bomb-gzip", brief: true, input: "a gzip batch of 300 MiB", reason: "oversize", says: "record batch at offset 500", during: sent(kgo.GzipCompression(), bomb)},
		{name: "bomb-zstd", input: "a zstd batch of 300 MiB", reason: "oversize", says: "record batch at offset 500", during: sent(kgo.ZstdCompression(), bomb)},
		{name: "bomb-lz4", input: "an lz4 batch of 300 MiB", reason: "oversize", says: "record batch at offset 500", during: sent(kgo.Lz4Compression(), bomb)},
		{
			name: "json-100", input: "nested JSON of 100 MB in a zstd batch", reason: "oversize", says: "record batch at offset 500",
			during: sent(kgo.ZstdCompression(), func() []byte { return nested(`{"a":[`, "1", "]}", 12<<20) }),
		},
		{
			name: "json-10", input: "nested JSON of 10 MB", reason: "poison", says: "too_many_values",
			during: sent(kgo.ZstdCompression(), func() []byte { return []byte(`{"order_id":"1","x":[` + strings.Repeat(`{"a":[]},`, 1_100_000) + `1]}`) }),
		},
		{
			name: "json-deep", input: "JSON 5 000 000 deep", reason: "poison", says: "deep",
			during: sent(kgo.ZstdCompression(), func() []byte { return []byte(`{"order_id":"1","x":` + strings.Repeat("[", 5_000_000) + `}`) }),
		},
		{
			name: "json-fields", input: "a record with 1 000 000 fields", reason: "poison", says: "duplicate_key",
			during: sent(kgo.ZstdCompression(), func() []byte { return []byte(`{"order_id":"1"` + strings.Repeat(`,"order_id":"1"`, 1_000_000) + `}`) }),
		},
		{
			name: "record-headers", brief: true, input: "a record with 500 000 headers", reason: "oversize", says: "500000 headers", during: func(a *attack) string {
				r := &kgo.Record{Value: []byte(`{"order_id":"headers"}`)}
				for range 500_000 {
					r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h", Value: []byte("some value")})
				}
				a.sends(kgo.ZstdCompression(), r)
				return ""
			},
		},
		{
			name: "record-escapes", input: "terminal escapes in key, header, field and value of a record", reason: "poison", says: "syntax at byte",
			during: func(a *attack) string {
				a.sends(kgo.NoCompression(), &kgo.Record{
					Key: []byte(escapes), Headers: []kgo.RecordHeader{{Key: escapes, Value: []byte(escapes)}}, Value: fmt.Appendf(nil, `{%q:1,"order_id":`, escapes),
				})
				found := a.evidence(hostile{reason: "poison", says: "syntax at byte"})
				a.escaped()
				return found
			},
		},
	}
}

// sends produces records to the attacked topic, each in its own record batch.
func (a *attack) sends(codec kgo.CompressionCodec, records ...*kgo.Record) {
	a.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(a.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec),
		kgo.BrokerMaxWriteBytes(1<<30), kgo.ProducerBatchMaxBytes(1<<30-1))
	if err != nil {
		a.t.Fatal(err)
	}
	defer client.Close()
	for _, r := range records {
		r.Topic = a.bad
		if err := client.ProduceSync(a.ctx, r).FirstErr(); err != nil {
			a.t.Fatal(err)
		}
	}
}

// manyTopics creates n topics. It returns a setting that adds a pattern which matches these topics and has max_topics =
// most.
func (a *attack) manyTopics(n, most int) setting {
	a.t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s.%03d", a.bad, i))
	}
	admin := a.admin()
	created, err := admin.CreateTopics(a.ctx, 1, 1, nil, names...)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _, _ = admin.DeleteTopics(a.ctx, names...) })
	return func(c *settings) {
		c.more += fmt.Sprintf(`, many: {pattern: '%s\..+', deny: [], max_topics: %d}`, a.bad, most)
	}
}

// tooMany waits until the attacked topic has a hold too_many_topics whose detail contains max_topics. It expects a
// metric to count n topics that are not read. It returns the reason and the detail of the hold.
func (a *attack) tooMany(n float64) string {
	a.t.Helper()
	found := a.evidence(hostile{reason: "too_many_topics", says: "max_topics"})
	if got := a.m.metric("sluice_group_missing_topics"); got != n {
		a.t.Errorf("%v topics are not read, want %v", got, n)
	}
	return found
}
