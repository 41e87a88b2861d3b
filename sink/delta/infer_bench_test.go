package delta_test

import (
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/test/gen"
)

// BenchmarkInfer compares, per record, decoding and encoding a batch of orders whose columns are declared (1) with one whose
// columns are inferred: known when the table has all columns, first when it has none yet. The batches take turns, and the
// metrics are the ratios of their times.
func BenchmarkInfer(b *testing.B) {
	const rows = 20_000
	values := make([][]byte, rows)
	for i := range values {
		values[i] = gen.Orders{Seed: 1, Span: rows}.Record(int64(i)).Value
	}
	declared, err := schema.ParseDDL(gen.DDL)
	if err != nil {
		b.Fatal(err)
	}
	infers := decode.JSON{NewColumns: &schema.NewColumns{PerCommit: 100, PerHour: 500}}
	table := func(columns *schema.Schema) (*delta.Table, *connector.Snapshot) {
		tab, err := delta.Open(objstore.NewMem(), delta.Options{Pipeline: "p", Engine: "sluice/bench", Schema: columns, Guard: guard()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(tab.Close)
		s, err := tab.Load(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return tab, s
	}
	type pipeline struct {
		decoder connector.Decoder
		table   *delta.Table
		at      *connector.Snapshot
		builder connector.Builder
		took    time.Duration
	}
	var all []*pipeline
	for _, p := range []struct {
		decoder connector.Decoder
		columns *schema.Schema
	}{{decode.JSON{}, declared}, {infers, declared}, {infers, &schema.Schema{}}} {
		tab, s := table(p.columns)
		builder, err := p.decoder.Builder(s.Schema)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, &pipeline{decoder: p.decoder, table: tab, at: s, builder: builder})
	}
	n := 0
	for b.Loop() {
		for _, p := range all {
			began := time.Now()
			for i := range values {
				r := connector.Record{Offset: int64(i), Timestamp: 1_767_225_600_000, Value: values[i]}
				if err := p.builder.Add(idempotency.Partition{Topic: "orders"}, &r); err != nil {
					b.Fatal(err)
				}
			}
			batch := p.builder.Seal()
			pieces := []connector.Piece{{Rows: batch, To: rows}}
			s, _, err := connector.Grow(p.decoder, p.at, pieces)
			if err == nil {
				err = p.table.Rehearse(b.Context(), s, pieces)
			}
			if err != nil {
				b.Fatal(err)
			}
			batch.Release()
			p.took += time.Since(began)
		}
		n += rows
	}
	b.ReportMetric(float64(all[0].took.Nanoseconds())/float64(n), "declared-ns/record")
	b.ReportMetric(all[1].took.Seconds()/all[0].took.Seconds(), "known/declared")
	b.ReportMetric(all[2].took.Seconds()/all[0].took.Seconds(), "first/declared")
	b.ReportMetric(0, "ns/op")
}
