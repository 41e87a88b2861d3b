package main

import (
	"bytes"
	"strings"
	"testing"

	"sluice/reliability/hold"
)

// TestPrintedCommands expects that each command which is printed for a hold can be pasted and run. The command may be
// refused because there is nothing to do, but it must not be a usage error.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {bad_records: dead_letter}}")
	l.Create("orders", 2)
	l.Produce("orders", 5, 0, 1)
	l.runs(0, "run", "--until-current")
	seen := 0
	for _, reason := range hold.Reasons() {
		for _, target := range []struct {
			topic     string
			partition int32
			offset    int64
		}{{"orders", 1, 3}, {"orders", 1, -1}, {"orders", -1, -1}, {"", -1, -1}} {
			command := reason.Command(target.topic, target.partition, target.offset)
			if command == "" || target.topic == "" && reason != "paused" { // only a pause can be of everything, without a topic
				continue
			}
			seen++
			var out, errs bytes.Buffer
			args := strings.Fields(mustLoad(t, l.Config, nil).Pasted(command))
			switch code := run(t.Context(), append(args[1:], "--dry-run"), &out, &errs); code {
			case exitOK, exitRefused:
			default:
				t.Errorf("%s: exit code %d: %s", command, code, errs.String())
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d commands", seen)
	}
}

func TestPlaces(t *testing.T) {
	cfg := mustLoad(t, write(t, "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: s3://bucket/p, s3: {region: r}}\ntopics: {orders: {schema: n int}, orders-2: {schema: n int}}\n"), nil)
	for text, want := range map[string]string{
		"orders": "orders", "orders:3": "orders:3", "orders-3": "orders:3", "orders-2": "orders-2", "orders-2-0": "orders-2:0", "orders-2:0": "orders-2:0",
		"users-3": "users-3", "orders-dlq-1": "orders-dlq:1",
	} {
		if got, err := parseTarget(cfg, text); err != nil || got.String() != want {
			t.Errorf("target %s: %v %v", text, got, err)
		}
	}
	for text, want := range map[string]string{"orders:3@7": "orders:3", "orders-3@7": "orders:3", "orders-2-0@7": "orders-2:0"} {
		if got, offset, err := parseRecord(text); err != nil || got.String() != want || offset != 7 {
			t.Errorf("record %s: %v@%d %v", text, got, offset, err)
		}
	}
	for _, text := range []string{"", "orders", "orders@7", "orders:-1@7", "orders:1@-7", "orders:1@", "@7", ":1@7", "-1@7", "orders:99999999999@1"} {
		if got, offset, err := parseRecord(text); err == nil {
			t.Errorf("record %q is %v@%d", text, got, offset)
		}
	}
}
