package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/internal/laketest"
	"sluice/sink/opslog"
)

// TestFlush expects flush to write its targets to the operations log, and a member to commit at once what would wait an
// hour.
func TestFlush(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {commit: {every: 1h}}}")
	l.Create("orders", 1)
	l.Produce("orders", 1, 0)
	s := l.start()
	l.Await("the record is read", func() bool {
		p := s.Report().Partitions
		return len(p) == 1 && p[0].Freshness != nil && *p[0].Freshness > 0
	})
	if out, errs := l.runs(0, "flush", "orders", "--dry-run"); out != "flush of pipeline p: orders\n" || len(l.operations()) > 0 || len(s.Flushes()) > 0 {
		t.Errorf("%s%s%v", out, errs, l.operations())
	}
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{2, "flush --reason x", "or --all"},
		{2, "flush orders:0 --reason x", "orders:0 is a partition, and a batch has all partitions of a table: write orders"},
		{2, "flush users --reason x", "topic users is not in topics: write one of orders"},
		{2, "flush orders --yes", "--reason"},
	} {
		if _, errs := l.runs(c.code, strings.Fields(c.args)...); !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s", c.args, errs)
		}
	}
	if out, _ := l.runs(0, "flush", "--all", "--operator", "ann", "--reason", "a test", "--yes"); out != "members commit what they have of everything (operation 1); members follow within 10s\n" {
		t.Error(out)
	}
	if d := cmp.Diff([]opslog.Body{opslog.Flush{Targets: []opslog.Target{opslog.All()}}}, l.operations()); d != "" {
		t.Errorf("operations log (-want +got):\n%s", d)
	}
	l.Awaits("orders", laketest.UpTo(1, "orders:0"))
	all := s.Flushes()
	if len(all) != 1 || all[0].Table != "orders" || all[0].Request != 1 || all[0].State != connector.FlushSealed || all[0].Offsets != 1 || all[0].Partitions != 1 || all[0].Batch == "" {
		t.Errorf("%+v", all)
	}
	if out, _ := l.runs(0, "audit", "list"); !strings.Contains(out, "flush everything  ") {
		t.Error(out)
	}
}
