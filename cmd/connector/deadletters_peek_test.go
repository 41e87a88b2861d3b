package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
)

func TestDeadLettersPeek(t *testing.T) {
	t.Parallel()
	l := newLake(t, `topics: {orders: {bad_records: dead_letter}}`)
	l.Create("orders", 2)
	at := time.UnixMilli(1_700_000_000_123).UTC()
	bad := &kgo.Record{
		Topic: "orders", Partition: 1, Timestamp: at, Key: []byte("k\xff"), Value: []byte(`{"n":"poison"}`),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "none"}},
	}
	l.Produce("orders", 2, 1)
	if err := l.Client.ProduceSync(t.Context(), bad, &kgo.Record{Topic: "orders", Partition: 1}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.runs(0, "run", "--until-current")
	out, errs := l.runs(0, "deadletters", "peek", "orders-1@2")
	var got admin.PeekedRecord
	if err := json.Unmarshal([]byte(out), &got); err != nil || errs != "" {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	want := admin.PeekedRecord{
		Topic: "orders", Partition: 1, Offset: 2, Timestamp: at, Key: new("a/8="), KeyEncoding: "base64", Value: new(`{"n":"poison"}`),
		Headers: []admin.PeekedHeader{{Key: "h", Value: new("v")}, {Key: "none"}}, Problem: "type_mismatch at byte 5 in column n: expected int, found string",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if out, _ := l.runs(0, "deadletters", "peek", "orders:1@2", "--value"); out != `{"n":"poison"}` {
		t.Error(out)
	}
	if out, errs := l.runs(0, "deadletters", "peek", "orders:1@3", "--value"); out != "" || errs != "the value is null\n" {
		t.Errorf("%q %q", out, errs)
	}
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{1, "orders:7@0", "topic orders has no partition 7"},
		{1, "orders:1@9", "ahead_of_log_end"},
		{2, "users:0@0", "topic users is not in topics: write one of orders"},
		{2, "orders:0", "is not a record"},
	} {
		if out, errs := l.runs(c.code, "deadletters", "peek", c.args); out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s%s", c.args, out, errs)
		}
	}
	l.deleteRecords("orders", 1, 2)
	if _, errs := l.runs(1, "deadletters", "peek", "orders:1@0"); !strings.Contains(errs, "behind_log_start") {
		t.Error(errs)
	}
}
