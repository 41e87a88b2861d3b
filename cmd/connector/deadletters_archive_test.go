package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
	"sluice/reliability/deadletter"
)

// archiving is strictTopic with a letter table.
const archiving = `topics: {orders: {unknown_fields: dead_letter, bad_records: dead_letter, dead_letters: {hold_above: 100%}}}`

// newArchive returns a lake with ten records. Those at odd offsets are dead letters, at offsets 0 to 4 of the
// dead-letter topic and in the letter table. At offset 5 is a newer dead letter of the last record; its value, large,
// is in the bucket. corrected is the same lake with unknown fields ignored.
func newArchive(t *testing.T) (l, corrected *lake, large []byte) {
	t.Helper()
	l = newLake(t, archiving)
	l.Create("orders", 1)
	var records []*kgo.Record
	for i := range 10 {
		value := `{"n":1}`
		if i%2 == 1 {
			value = fmt.Sprintf(`{"n":%d,"new":true}`, i)
		}
		records = append(records, &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("\xff")}}})
	}
	if err := l.Client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.runs(0, "run", "--until-current")
	large = fmt.Appendf(nil, `{"n":9,"new":%q}`, strings.Repeat("x", 2<<20))
	letter := l.LetterAbout(0, 9, large)
	letter.Reason, letter.LastFailure = "unknown_field", time.Now().Add(time.Hour)
	l.WriteLetters(deadletter.Form{Pipeline: "p"}, "orders-dlq", letter)
	l.runs(0, "run", "--until-current")
	l.Has("orders_letters", map[string][]int64{"orders-dlq:0": {0, 1, 2, 3, 4, 5}})
	return l, l.as("unknown_fields: dead_letter", "unknown_fields: ignore"), large
}

// exported returns the dead letters that deadletters export writes.
func exported(t *testing.T, l *lake) (all []deadletter.Letter) {
	t.Helper()
	out, _ := l.runs(0, "deadletters", "export", "orders")
	for line := range strings.Lines(out) {
		letter, err := deadletter.Parse(deadletter.Record{Value: []byte(line)})
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []*time.Time{&letter.FirstFailure, &letter.LastFailure} {
			*at = at.Truncate(time.Microsecond)
		}
		all = append(all, letter)
	}
	slices.SortFunc(all, func(a, b deadletter.Letter) int { return int(a.Source.Offset - b.Source.Offset) })
	return all
}

// TestDeadLetters_Archived: retention has deleted dead letters from their topic. The commands must list, show, export
// and replay the same dead letters as before, from the letter table.
func TestDeadLetters_Archived(t *testing.T) {
	l, corrected, large := newArchive(t)
	before, letters := listed(t, l, 0, "orders"), exported(t, l)
	if len(letters) != 5 || string(letters[4].Value) != string(large) {
		t.Fatalf("%d dead letters", len(letters))
	}
	for _, start := range []int64{3, 5, 6} {
		l.DeleteTo("orders-dlq", start)
		after := listed(t, l, 0, "orders")
		for _, of := range [][]admin.ListedLetter{before.Listed, after.Listed} {
			for i := range of {
				at := of[i].Failed.Truncate(time.Microsecond)
				of[i].Failed = &at
			}
		}
		if d := cmp.Diff(before, after, cmpopts.IgnoreUnexported(admin.LetterList{})); d != "" {
			t.Errorf("list from log start %d (-before +after):\n%s", start, d)
		}
		if d := cmp.Diff(letters, exported(t, l)); d != "" {
			t.Errorf("export from log start %d (-before +after):\n%s", start, d)
		}
		for _, at := range []string{"orders:0@3", "orders-dlq:0@1"} {
			if out, _ := l.runs(0, "deadletters", "show", "--value", at); out != `{"n":3,"new":true}` {
				t.Errorf("show %s from log start %d: %s", at, start, out)
			}
		}
		if out, _ := l.runs(0, "deadletters", "show", "--value", "orders:0@9"); out != string(large) {
			t.Errorf("a large value has %d bytes", len(out))
		}
	}
	if r := replayed(t, corrected, 0, "replay", "orders:0@5"); r.Rows != 1 {
		t.Errorf("%+v", r)
	}
	if r := replayed(t, corrected, 0, "replay-all", "orders"); r.Rows != 4 {
		t.Errorf("%+v", r)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}})
	if of := listed(t, l, 0, "orders", "--state", "all"); of.Replayed != 5 || of.Unresolved != 0 {
		t.Errorf("%+v", of)
	}
	if out, errs := corrected.runs(0, "deadletters", "replay-all", "orders", "--reason", "r", "--operator", "ada", "--yes"); !strings.Contains(out+errs, "nothing to do") {
		t.Errorf("%s%s", out, errs)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}})
}

// TestDeadLetters_ArchivedValueGone: a dead letter whose value is not in the bucket any more stays unresolved, and the
// error names the object.
func TestDeadLetters_ArchivedValueGone(t *testing.T) {
	l, corrected, _ := newArchive(t)
	l.DeleteTo("orders-dlq", 6)
	key := deadletter.LinkKey("p", l.LetterAbout(0, 9, nil).Source)
	if err := l.Store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	_, errs := corrected.runs(1, "deadletters", "replay", "orders:0@9", "--reason", "r", "--operator", "ada", "--yes")
	if !strings.Contains(errs, "the value of the record is not in the bucket any more: "+key) {
		t.Error(errs)
	}
	if of := listed(t, l, 0, "orders"); of.Unresolved != 5 {
		t.Errorf("%+v", of)
	}
	if r := replayed(t, corrected, 0, "replay", "orders:0@1"); r.Rows != 1 {
		t.Errorf("%+v", r)
	}
}

// TestDeadLetters_NotArchived: if dead letters are in neither the topic nor the letter table, the notes of the list and
// the error of deadletters show must name their offsets.
func TestDeadLetters_NotArchived(t *testing.T) {
	l, _, _ := newArchive(t)
	said := func(want string) {
		t.Helper()
		of := listed(t, l, 0, "orders")
		if !slices.ContainsFunc(of.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no %q in %q", want, of.Notes)
		}
	}
	letter := l.LetterAbout(0, 2, nil)
	l.WriteLetters(deadletter.Form{}, "orders-dlq", letter, letter, letter)
	l.DeleteTo("orders-dlq", 8)
	said("dead letters of orders-dlq:0 at offsets [6, 8) are in neither topic nor letter table: retention deleted them before members archived them")
	_, errs := l.runs(1, "deadletters", "show", "orders-dlq:0@6")
	if !strings.Contains(errs, "there is no dead letter for orders-dlq:0@6; dead letters of orders-dlq:0 at offsets [6, 7) are in neither") {
		t.Error(errs)
	}
	if of := listed(t, l, 0, "orders"); of.Distinct != 6 {
		t.Errorf("%+v", of)
	}

	// The dead-letter topic is created again. The letter table has dead letters of the deleted topic at these offsets,
	// which must not count as those of the new one.
	l.CreateAgain("orders-dlq")
	l.Client.PurgeTopicsFromProducing("orders-dlq")
	l.WriteLetters(deadletter.Form{}, "orders-dlq", letter, letter, letter)
	l.DeleteTo("orders-dlq", 2)
	said("dead letters of orders-dlq:0 at offsets [0, 2) are in neither")
	if of := listed(t, l, 0, "orders"); of.Letters != 1 {
		t.Errorf("%+v", of)
	}

	l.RemoveTable("orders_letters")
	said("dead letters of orders-dlq:0 before offset 2 are in neither topic nor letter table: retention deleted them, and letter table file://")
}
