package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/opslog"
)

// TestHoldsRecheck expects holds recheck to write its targets to the operations log, from which members read them.
func TestHoldsRecheck(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	out, errs := l.runs(0, "holds", "recheck", "orders-1", "--dry-run")
	if out != "recheck of holds of pipeline p: orders:1\n" || len(l.operations()) > 0 {
		t.Errorf("%s%s%v", out, errs, l.operations())
	}
	if out, _ = l.runs(0, "holds", "recheck", "orders:1", "--operator", "ann", "--reason", "a test"); out != "members check holds of orders:1 (operation 1); members follow within 10s\n" {
		t.Error(out)
	}
	l.runs(0, "holds", "recheck", "--operator", "ann", "--reason", "a test")
	want := []opslog.Body{opslog.Recheck{Targets: []opslog.Target{{Topic: "orders", Partition: 1}}}, opslog.Recheck{Targets: []opslog.Target{opslog.All()}}}
	if d := cmp.Diff(want, l.operations()); d != "" {
		t.Errorf("operations log (-want +got):\n%s", d)
	}
	l.runs(0, "holds", "recheck", "orders")
	out, _ = l.runs(0, "audit", "list")
	for _, want := range []string{"holds recheck orders:1  ", "holds recheck everything  ", "holds recheck orders  ", "check holds now"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	s := l.start()
	l.Await("the member has read the log", func() bool { return s.Report().Operations.Seq == 3 })
	if _, errs := l.runs(2, "holds", "recheck", "users"); !strings.Contains(errs, "topic users is not in topics: write one of orders") {
		t.Error(errs)
	}
}
