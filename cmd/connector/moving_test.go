package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/laketest"
)

// This file tests topics and partitions that are added and deleted while a connector runs.

// TestPattern expects topics that match a pattern to feed their tables, and topics that are denied or do not match to
// feed none. A topic that is created while the connector runs must be read from its first record, even with start
// latest.
func TestPattern(t *testing.T) {
	l := newLake(t, `
topics:
  sales.own: {table: own}
  sales: {pattern: 'sales\..+', deny: [sales.test], table: "s/{topic}"}
defaults: {schema: "n int", commit: {every: 100ms}, start: latest, bad_records: hold}`)
	for _, topic := range []string{"sales.own", "sales.a", "sales.test", "sales.a-dlq", "other"} {
		l.Create(topic, 1)
		l.Produce(topic, 2, 0)
	}
	s := l.start()
	l.Await("it has started", func() bool { return s.Report().Resumed && len(s.Report().Partitions) == 2 })
	l.Create("sales.b", 2)
	l.Produce("sales.b", 3, 0, 1)
	l.Produce("sales.a", 1, 0)
	l.Produce("sales.own", 1, 0)
	l.Awaits("s/sales.b", laketest.UpTo(3, "sales.b:0", "sales.b:1"))
	l.Awaits("s/sales.a", map[string][]int64{"sales.a:0": {2}})
	l.Awaits("own", map[string][]int64{"sales.own:0": {2}})
	for _, table := range []string{"s/sales.test", "s/sales.own", "s/sales.a-dlq", "s/other", "other"} {
		l.Has(table, map[string][]int64{})
	}
	if held := heldIn(s); len(held) > 0 {
		t.Errorf("holds %v", held)
	}
}

// TestPatternCommands: for topics that match a pattern, commands show the tables of the topics that exist. They refuse
// a denied topic, and a run until current fails if no topic matches.
func TestPatternCommands(t *testing.T) {
	l := newLake(t, `topics: {all: {pattern: ".*", deny: [nobody]}}`)
	if _, errs := l.runs(1, "run", "--until-current"); !strings.Contains(errs, "no topic matches a pattern now") {
		t.Error(errs)
	}
	l.Create("orders", 1)
	l.Create("users", 2)
	l.Produce("orders", 2, 0)
	l.Produce("users", 3, 0, 1)
	l.runs(0, "run", "--until-current")
	l.Has("orders", laketest.UpTo(2, "orders:0"))
	l.Has("users", laketest.UpTo(3, "users:0", "users:1"))
	out, _ := l.runs(0, "verify")
	if strings.Count(out, "ok: no gap") != 2 {
		t.Error(out)
	}
	if out, _ = l.runs(0, "offsets", "show"); strings.Count(out, "\n") != 4 {
		t.Error(out)
	}
	if out, _ = l.runs(0, "table", "inspect", "--topic", "users"); !strings.Contains(out, "/lake/users\n") || strings.Contains(out, "/lake/orders\n") {
		t.Error(out)
	}
	if _, errs := l.runs(2, "verify", "--topic", "nobody"); !strings.Contains(errs, "--topic nobody is not in topics: write one of .*") {
		t.Error(errs)
	}
	if out, _ = l.runs(0, "validate"); !strings.Contains(out, "ok: 0 topics and 1 pattern as p\n.*  file://") {
		t.Error(out)
	}
}

// TestTooManyTopics expects members, commands and a run until current to report topics beyond max_topics.
func TestTooManyTopics(t *testing.T) {
	t.Parallel()
	l := newLake(t, `topics: {all: {pattern: "t.*", deny: [], max_topics: 1}}`)
	l.Create("tb", 1)
	l.Create("tc", 1)
	l.Produce("tb", 2, 0)
	l.Produce("tc", 2, 0)
	if _, errs := l.runs(1, "run", "--until-current"); !strings.Contains(errs, "too_many_topics") {
		t.Error(errs)
	}
	l.Create("ta", 1)
	l.Has("tb", laketest.UpTo(2, "tb:0"))
	l.Has("tc", map[string][]int64{})
	ends := func(topic string) string {
		return topic + " too_many_topics at - from table and Kafka: "
	}
	l.wantHolds(1, []string{ends("ta"), ends("tc")})
	if out, _ := l.runs(0, "check"); !strings.Contains(out, "the pattern of topics.all matches 3 topics and may stand for 1 (max_topics)") {
		t.Error(out)
	}
	s := l.start()
	l.Produce("tb", 1, 0)
	l.Awaits("tb", laketest.UpTo(3, "tb:0"))
	if d := cmp.Diff(map[string][]int32{"ta too_many_topics": {-1}, "tc too_many_topics": {-1}}, heldIn(s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPartitionsAdded expects a member to read added partitions from their first record.
func TestPartitionsAdded(t *testing.T) {
	l := newLake(t, `
topics: {orders: {}}
defaults: {schema: "n int", commit: {every: 100ms}, start: latest, bad_records: hold}`)
	l.Create("orders", 4)
	s := l.start()
	l.Await("it has started", func() bool { return s.Report().Resumed && len(s.Report().Partitions) == 4 })
	if _, err := l.Admin.UpdatePartitions(t.Context(), 16, "orders"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for id := range int32(16) {
		l.Produce("orders", 3, id)
		names = append(names, fmt.Sprintf("orders:%d", id))
	}
	l.Awaits("orders", laketest.UpTo(3, names...))
}

// TestTopicDeletedAndCreatedAgain expects a member to give up the claims of a deleted topic, and to report a hold while
// a configured topic does not exist. A new topic of the same name counts as another topic: its partitions must be held,
// whether it has fewer or more records than the old one. Other topics must continue.
func TestTopicDeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, records := range map[string]int{"fewer records": 2, "more records": 9} {
		t.Run(name, func(t *testing.T) {
			l := newLake(t, `topics: {orders: {table: all}, rest: {pattern: '.+', deny: []}, users: {table: all}}`)
			for _, topic := range []string{"orders", "users", "visits"} {
				l.Create(topic, 2)
				l.Produce(topic, 5, 0, 1)
			}
			s := l.start()
			both := laketest.UpTo(5, "orders:0", "orders:1", "users:0", "users:1")
			l.Awaits("all", both)
			l.Awaits("visits", laketest.UpTo(5, "visits:0", "visits:1"))

			for _, topic := range []string{"orders", "visits"} {
				if _, err := l.Admin.DeleteTopic(t.Context(), topic); err != nil {
					t.Fatal(err)
				}
			}
			l.Await("only what is listed is missed", func() bool {
				return len(s.Report().Partitions) == 2 && cmp.Equal(heldIn(s), map[string][]int32{"orders topic_missing": {-1}})
			})
			for _, topic := range []string{"orders", "visits"} {
				l.Create(topic, 2)
				l.Produce(topic, records, 0, 1)
			}
			want := map[string][]int32{"orders topic_recreated": {0, 1}, "visits topic_recreated": {0, 1}}
			l.Await("the new topics are held", func() bool { return cmp.Equal(heldIn(s), want) })
			l.Produce("users", 3, 0, 1)
			maps.Copy(both, laketest.UpTo(8, "users:0", "users:1"))
			l.Awaits("all", both)
			l.Has("visits", laketest.UpTo(5, "visits:0", "visits:1"))
			out, _ := l.runs(1, "offsets", "show", "--topic", "orders")
			if !slices.Contains(strings.Fields(out), "topic_recreated") {
				t.Error(out)
			}
		})
	}
}
