package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector/decode"
	"sluice/internal/admin"
	"sluice/reliability/hold"
	"sluice/test/gen"
)

// TestDocsReasonCodes expects docs/reason-codes.md to have a row for each code and no others.
func TestDocsReasonCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/reason-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[1])
	}
	for _, code := range decode.Codes() {
		want = append(want, string(code))
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("codes (-want +got):\n%s", d)
	}
}

// TestPoisonHolds expects, with bad_records: hold, each kind of poison to hold its partition at its offset. A member
// and the commands must name its code, and the rows before it must be in the table.
func TestPoisonHolds(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}\ndefaults: {schema: \""+gen.DDL+"\", commit: {every: 100ms}, bad_records: hold, "+
		"unknown_fields: dead_letter, keys: required, tombstones: dead_letter}")
	policy := gen.Policy{Strict: true, Keys: true, Tombstones: true}
	orders := gen.Orders{Seed: 5, Policy: policy}
	var records []*kgo.Record
	var codes []string
	for _, p := range gen.Poisons {
		if p.Large || p.Applies != nil && !p.Applies(policy) {
			continue
		}
		id := int32(len(codes))
		codes = append(codes, p.Code)
		for _, rec := range []gen.Record{orders.Record(1), p.Spoil(orders, 2), orders.Record(3)} {
			records = append(records, &kgo.Record{Topic: "orders", Partition: id, Key: rec.Key, Value: rec.Value})
		}
	}
	l.Create("orders", int32(len(codes)))
	if err := l.Client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.runs(1, "run", "--until-current")
	want := map[string][]int64{}
	for id := range codes {
		want[fmt.Sprintf("orders:%d", id)] = []int64{0}
	}
	l.Has("orders", want)

	out, _ := l.runs(1, "holds", "-o", "json")
	var outside []admin.Hold
	if err := json.Unmarshal([]byte(out), &outside); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check := func(who, partition, reason, detail string, id int32, offset int64) {
		t.Helper()
		if reason != string(hold.Poison) || offset != 1 || !strings.Contains(detail, codes[id]) {
			t.Errorf("%s: %s %s at %d: %q, want poison at 1: %s", who, partition, reason, offset, detail, codes[id])
		}
	}
	for _, h := range outside {
		check("from outside", h.Name(), string(h.Reason), h.Detail, h.Partition, *h.Offset)
	}
	s := l.start()
	l.Await("all hold", func() bool { return len(s.Report().Holds) == len(codes) })
	for _, h := range s.Report().Holds {
		check("the connector", h.Topic, h.Reason, h.Detail, h.Partition, h.Offset)
	}
	if len(outside) != len(codes) {
		t.Errorf("%d held from outside, want %d", len(outside), len(codes))
	}
}
