package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
	"sluice/internal/laketest"
	"sluice/reliability/deadletter"
)

// strictTopic has a topic whose records become dead letters if they have a field without a column.
const strictTopic = `topics: {orders: {unknown_fields: dead_letter, bad_records: dead_letter, dead_letters: {archive: none, hold_above: 100%}}}`

// newLetters returns a lake with ten records: those at odd offsets are dead letters until unknown fields are ignored,
// and that at offset 8 can never become a row.
func newLetters(t *testing.T) (l, corrected *lake) {
	t.Helper()
	l = newLake(t, strictTopic)
	l.Create("orders", 1)
	var records []*kgo.Record
	for i := range 10 {
		value := `{"n":1}`
		switch {
		case i == 8:
			value = `{"n":"eight"}`
		case i%2 == 1:
			value = fmt.Sprintf(`{"n":%d,"new":true}`, i)
		}
		records = append(records, &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}})
	}
	if err := l.Client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.runs(0, "run", "--until-current")
	l.Has("orders", map[string][]int64{"orders:0": {0, 2, 4, 6}})
	return l, l.as("unknown_fields: dead_letter", "unknown_fields: ignore")
}

// replayed runs a replay and returns its result.
func replayed(t *testing.T, l *lake, code int, args ...string) *admin.ReplayResult {
	t.Helper()
	out, _ := l.runs(code, append([]string{"deadletters"}, append(args, "--reason", "corrected", "--operator", "ada", "--yes", "--output", "json")...)...)
	var r admin.ReplayResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return &r
}

// TestDeadLettersReplay: after the configuration is corrected, a replay makes rows of the records that fit it. The
// other record stays unresolved, and is parked after three failed replays. A replay with a corrected value makes it a
// row.
func TestDeadLettersReplay(t *testing.T) {
	l, corrected := newLetters(t)
	states := func(want ...string) {
		t.Helper()
		got := statesOf(listed(t, corrected, 0, "--state", "all"))
		slices.Sort(got) // sorted, because several records may have failed in the same millisecond
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	// With the configuration that made them dead letters, a dry run shows that nothing would change.
	out, errs := l.runs(0, "deadletters", "replay-all", "orders", "--dry-run")
	if !strings.Contains(out, "orders  unknown_field  0            5           unknown_field at byte") || !strings.Contains(out, "replay 6 dead letters into orders\n") || !strings.Contains(errs, "nothing was changed") {
		t.Error(out, errs)
	}
	// With the corrected configuration, a dry run shows which records become rows and which fail again.
	out, _ = corrected.runs(0, "deadletters", "replay-all", "--dry-run", "--output", "json")
	var plan admin.ReplayPlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err, out)
	}
	if len(plan.Outcomes) != 2 || plan.Outcomes[0].Rows != 5 || plan.Outcomes[1].Fails != 1 || plan.Outcomes[1].Reason != "type_mismatch" || plan.Keyed != 4 {
		t.Errorf("%+v", plan)
	}
	if r := replayed(t, corrected, 0, "replay", "orders:0@3"); r.Rows != 1 || len(r.Commits) != 1 {
		t.Errorf("%+v", r)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 2, 3, 4, 6}})
	states("0@1 unresolved 1", "0@3 replayed 1", "0@5 unresolved 1", "0@7 unresolved 1", "0@8 unresolved 1", "0@9 unresolved 1")

	// This replay takes all other dead letters. The record of one of them still cannot become a row, so the exit code
	// is 1.
	if r := replayed(t, corrected, 1, "replay-all", "orders"); r.Rows != 4 || r.Failed["type_mismatch"] != 1 || r.First["type_mismatch"].Record != "orders:0@8" {
		t.Errorf("%+v", r)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 3, 4, 5, 6, 7, 9}})
	for range 2 {
		replayed(t, corrected, 1, "replay-all", "orders")
	}
	if d := cmp.Diff([]string{"0@8 parked 1"}, statesOf(listed(t, corrected, 0))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	out, errs = corrected.runs(0, "deadletters", "replay-all", "--reason", "again", "--yes")
	if out != "" || !strings.Contains(errs, "left out: 1 parked\nleft out: 5 replayed\nnothing to do") {
		t.Error(out, errs)
	}

	// With a corrected value, the record becomes a row. The dead letter keeps the old value.
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(`{"n":8}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := replayed(t, corrected, 0, "replay", "orders:0@8", "--value-file", file); r.Rows != 1 {
		t.Errorf("%+v", r)
	}
	l.Has("orders", laketest.UpTo(10, "orders:0"))
	if list := listed(t, corrected, 0); list.Unresolved != 0 || list.Replayed != 6 {
		t.Errorf("%+v", list)
	}
	if out, _ = corrected.runs(0, "deadletters", "show", "orders:0@8", "--value"); out != `{"n":"eight"}` {
		t.Error(out)
	}
	// verify finds nothing wrong in the table, and the operations log has all replays.
	if out, errs := corrected.runs(0, "verify", "--kafka"); !strings.Contains(out, "ok") {
		t.Error(out, errs)
	}
	corrected.runs(0, "audit", "verify")
	if out, _ := corrected.runs(0, "audit", "list", "-o", "json"); !strings.Contains(out, `"edited": [`) && !strings.Contains(out, `"edited":[`) {
		t.Errorf("the hashes of the edited value are missing: %s", out)
	}
	out, _ = corrected.runs(0, "audit", "list")
	for _, want := range []string{"replay into table orders begins: 1 dead letter: orders:0@3", "replay into table orders (operation 1): version", "replay into table orders failed: 1 dead letter: orders:0@8", "ada@"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
}

// TestDeadLettersDecisions: discard, acknowledge and reopen change the states of dead letters. A decision or replay is
// refused if the state of a dead letter does not allow it.
func TestDeadLettersDecisions(t *testing.T) {
	_, l := newLetters(t)
	decide := func(code int, args ...string) (string, string) {
		t.Helper()
		return l.runs(code, append([]string{"deadletters"}, append(args, "--reason", "r", "--operator", "eva", "--yes")...)...)
	}
	if out, _ := decide(0, "discard", "orders:0@1", "orders:0@3"); !strings.HasPrefix(out, "discarded 2 dead letters (operation 1)") {
		t.Error(out)
	}
	if out, _ := decide(0, "acknowledge", "--topic", "orders", "--code", "type_mismatch"); !strings.HasPrefix(out, "acknowledged 1 dead letter (operation 2)") {
		t.Error(out)
	}
	list := listed(t, l, 0)
	if list.Unresolved != 3 || list.Discarded != 2 || list.Acknowledged != 1 {
		t.Errorf("%+v", list)
	}
	// A replay leaves out discarded dead letters. It includes acknowledged ones only if they are named, or selected by
	// their state.
	if r := replayed(t, l, 0, "replay-all"); r.Rows != 3 {
		t.Errorf("%+v", r)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 2, 4, 5, 6, 7, 9}})
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{0, "discard orders:0@1", "nothing to do"},
		{0, "discard --topic orders --code unknown_field", "left out: 2 discarded\nleft out: 3 replayed\nnothing to do"},
		{4, "discard orders:0@5", "orders:0@5 is replayed: this is for dead letters that are unresolved, unknown, parked, acknowledged, replaying"},
		{4, "replay orders:0@1", "orders:0@1 is discarded: this is for dead letters that are unresolved"},
		{4, "reopen orders:0@5", "orders:0@5 is replayed"},
		{1, "discard orders:0@2", "there is no dead letter for orders:0@2"},
		{2, "discard users:0@2", "topic users is not in topics"},
		{2, "discard orders", "is not a record"},
		{2, "discard", "or --topic"},
		{2, "discard orders:0@1 --topic orders", "or --topic"},
		{2, "discard orders:0@1 --code syntax", "named one by one"},
		{2, "discard --topic orders --state gone", `"gone" is none of all, unresolved`},
		{2, "replay orders:0@1 orders:0@3 --value-file /dev/null", "name one record"},
		{2, "replay-all --rate -1", "--rate"},
		{2, "discard orders-dlq:0@0", "is in a dead-letter topic"},
	} {
		if _, errs := decide(c.code, strings.Fields(c.args)...); !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s", c.args, errs)
		}
	}
	if out, _ := decide(0, "reopen", "--topic", "orders", "--state", "discarded"); !strings.HasPrefix(out, "reopened 2 dead letters") {
		t.Error(out)
	}
	if r := replayed(t, l, 0, "replay", "orders:0@1", "orders:0@3"); r.Rows != 2 {
		t.Errorf("%+v", r)
	}
	if list := listed(t, l, 0); list.Unresolved != 0 || list.Acknowledged != 1 || list.Replayed != 5 {
		t.Errorf("%+v", list)
	}
	out, _ := l.runs(0, "deadletters", "acknowledge", "orders:0@8", "--dry-run", "--output", "json")
	if out != "" {
		t.Errorf("it is acknowledged already: %s", out)
	}
}

// TestDeadLettersExport expects export to write each selected dead letter as a line of JSON.
func TestDeadLettersExport(t *testing.T) {
	l, _ := newLetters(t)
	out, errs := l.runs(0, "deadletters", "export", "orders", "--code", "unknown_field")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 5 || strings.Contains(errs, "left out") {
		t.Fatalf("%d lines, %s", len(lines), errs)
	}
	for i, line := range lines {
		letter, err := deadletter.Parse(deadletter.Record{Key: []byte("k"), Value: []byte(line)})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`{"n":%d,"new":true}`, 2*i+1); string(letter.Value) != want || letter.Source.Offset != int64(2*i+1) || len(letter.Headers) != 1 {
			t.Errorf("%s", line)
		}
	}
}
