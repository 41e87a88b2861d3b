package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sluice/internal/admin"
	"sluice/sink/opslog"
)

// TestDeadLettersAllow gives, shortens, ends and plans an allowance for floods of a topic. The operations log must have
// each allowance except the planned one, and the last one must be in force.
func TestDeadLettersAllow(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter}, users: {bad_records: hold}}`)
	allow := []string{"deadletters", "allow", "orders", "--operator", "ada", "--reason", "bad deploy", "--yes"}
	out, errs := l.runs(0, allow...)
	if !strings.HasPrefix(out, "any number of records of orders may become dead letters until ") || !strings.Contains(out, "(operation 1); members follow within") || errs != "" {
		t.Errorf("%q %q", out, errs)
	}
	state := l.state()
	a, ok := state.FloodAllowance("orders")
	if left := time.Until(a.Until); !ok || left < 59*time.Minute || left > time.Hour || a.Operator != "ada" || a.Reason != "bad deploy" {
		t.Errorf("%+v %v", a, ok)
	}

	// A shorter allowance replaces a longer one, with a note.
	out, errs = l.runs(0, "dlq", "allow", "orders", "--for", "5m", "--operator", "eva", "--reason", "enough", "--yes", "--output", "json")
	var e admin.RecordedEntry
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Seq != 2 || e.Kind != opslog.KindFloodAllow {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(errs, "by ada: bad deploy; this takes its place") {
		t.Error(errs)
	}
	l.runs(0, "deadletters", "allow", "orders", "--for", "0s", "--reason", "over", "--yes")
	if l.state().FloodAllowed("orders", time.Now()) {
		t.Error("it is still allowed")
	}
	if out, errs = l.runs(0, "deadletters", "allow", "orders", "--for", "0s", "--reason", "over", "--yes"); out != "" || !strings.Contains(errs, "orders has no allowance\nnothing to do") {
		t.Errorf("%q %q", out, errs)
	}
	out, _ = l.runs(0, "deadletters", "allow", "orders", "--dry-run", "--output", "json")
	var plan admin.AllowPlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil || plan.Topic != "orders" || plan.Kind != opslog.KindFloodAllow || plan.Pipeline != "p" || plan.Until.IsZero() {
		t.Errorf("%v: %s", err, out)
	}
	if out, _ = l.runs(0, "audit", "list"); strings.Count(out, "deadletters allow orders until") != 3 {
		t.Error(out)
	}
}

// state returns the state that the entries of the operations log lead to.
func (l *lake) state() *opslog.State {
	l.T.Helper()
	s, err := admin.Operations(l.T.Context(), &admin.Access{Config: mustLoad(l.T, l.Config, nil)})
	if err != nil {
		l.T.Fatal(err)
	}
	return s
}

func TestDeadLettersAllowUsage(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter}, users: {bad_records: hold}}`)
	for _, c := range []struct{ args, want string }{
		{"deadletters allow order --reason r --yes", "topic order is not in topics: write one of orders, users"},
		{"deadletters allow orders:1 --reason r --yes", "as a whole"},
		{"deadletters allow users --reason r --yes", "bad_records: hold"},
		{"deadletters allow orders --yes", "--reason"},
		{"deadletters allow orders --for 10000h --reason r --yes", "--for"},
		{"deadletters allow orders --for -1s --reason r --yes", "--for"},
		{"deadletters allow orders --reason r", "--yes"},
		{"deadletters allow --reason r --yes", "accepts 1 arg"},
	} {
		if out, errs := l.runs(2, strings.Fields(c.args)...); out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q %q, want %q", c.args, out, errs, c.want)
		}
	}
	if head := l.state().Head(); head.Seq != 0 {
		t.Errorf("something was written: %v", head)
	}
}
