package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/admin"
	"sluice/internal/laketest"
)

// TestTwoTopicsTwoTables has two topics with a table each. Commands must show both tables or, with --topic, only the
// table of that topic.
func TestTwoTopicsTwoTables(t *testing.T) {
	l := newLake(t, `topics: {orders: {}, users: {table: "people/{topic}"}}`)
	l.Create("orders", 2)
	l.Create("users", 1)
	l.Produce("orders", 5, 0, 1)
	l.Produce("users", 3, 0)
	l.runs(0, "run", "--until-current")
	l.Has("orders", laketest.UpTo(5, "orders:0", "orders:1"))
	l.Has("people/users", laketest.UpTo(3, "users:0"))

	out, _ := l.runs(0, "verify")
	if strings.Count(out, "ok: no gap") != 2 || !strings.Contains(out, "lake/people/users: versions") {
		t.Error(out)
	}
	var several []admin.Verification
	out, _ = l.runs(0, "verify", "-o", "json")
	if err := json.Unmarshal([]byte(out), &several); err != nil || len(several) != 2 || several[0].Rows != 10 || several[1].Rows != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	var one admin.Inspection
	out, _ = l.runs(0, "table", "inspect", "--topic", "users", "-o", "json")
	if err := json.Unmarshal([]byte(out), &one); err != nil || one.Rows != 3 || !strings.HasSuffix(one.URL, "/lake/people/users") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _ = l.runs(0, "offsets", "show")
	want := "PARTITION  POSITION  COMMITTED  LOG START  LAST STABLE  LAG  HOLD\n" +
		"orders:0   5         5          0          5            0    -\n" +
		"orders:1   5         5          0          5            0    -\n" +
		"users:0    3         3          0          3            0    -\n"
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if out, _ = l.runs(0, "offsets", "show", "--topic", "users"); strings.Contains(out, "orders") || !strings.Contains(out, "users:0") {
		t.Error(out)
	}
	if _, errs := l.runs(2, "offsets", "show", "--topic", "nobody"); !strings.Contains(errs, "--topic nobody is not in topics: write one of orders, users") {
		t.Error(errs)
	}
	out, _ = l.runs(0, "validate")
	if !strings.Contains(out, "config.yaml: ok: 2 topics and 0 patterns as p\n") || !strings.Contains(out, "\nusers   file://") {
		t.Error(out)
	}
}

// TestTwoTopicsOneTable has two topics with the same table. Both must fill the table, and commands must show the table
// once.
func TestTwoTopicsOneTable(t *testing.T) {
	l := newLake(t, `topics: {orders: {table: all}, users: {table: all}}`)
	l.Create("orders", 2)
	l.Create("users", 2)
	l.Produce("orders", 4, 0, 1)
	l.Produce("users", 6, 0, 1)
	l.runs(0, "run", "--until-current")
	want := laketest.UpTo(4, "orders:0", "orders:1")
	maps.Copy(want, laketest.UpTo(6, "users:0", "users:1"))
	l.Has("all", want)
	out, _ := l.runs(0, "verify")
	if strings.Count(out, "ok: no gap") != 1 || !strings.Contains(out, "4 partitions, 20 rows") {
		t.Error(out)
	}
}

// TestHeldTableAlone expects a table that cannot be written to hold only the topics that feed it.
func TestHeldTableAlone(t *testing.T) {
	l := newLake(t, `
topics: {orders: {}, users: {}}
defaults: {schema: "n int", commit: {every: 100ms}}`)
	l.Create("orders", 1)
	l.Create("users", 1)
	l.Produce("orders", 2, 0)
	l.Produce("users", 2, 0)
	l.runs(0, "run", "--until-current")
	other := *l
	other.Config = write(t, strings.ReplaceAll(read(t, l.Config), "users: {}", "users: {schema: \"n bigint\"}"))
	l.Produce("orders", 3, 0)
	l.Produce("users", 3, 0)
	_, errs := other.runs(1, "run", "--until-current")
	if !strings.Contains(errs, `"held at the end","topic":"users","partition":0,"reason":"schema_conflict"`) {
		t.Error(errs)
	}
	l.Has("orders", laketest.UpTo(5, "orders:0"))
	l.Has("users", laketest.UpTo(2, "users:0"))
}

// TestManyTables expects one process to fill twenty tables, each with the records of its topic.
func TestManyTables(t *testing.T) {
	var topics []string
	for i := range 20 {
		topics = append(topics, fmt.Sprintf("t%02d: {}", i))
	}
	l := newLake(t, "topics: {"+strings.Join(topics, ", ")+"}")
	for i := range 20 {
		l.Create(fmt.Sprintf("t%02d", i), 2)
		l.Produce(fmt.Sprintf("t%02d", i), 1+i%3, 0, 1)
	}
	l.runs(0, "run", "--until-current")
	for i := range 20 {
		name := fmt.Sprintf("t%02d", i)
		l.Has(name, laketest.UpTo(int64(1+i%3), name+":0", name+":1"))
	}
}
