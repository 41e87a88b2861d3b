package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/fail"
	"sluice/internal/laketest"
	"sluice/reliability/deadletter"
)

// found reads the dead letters of topic orders.
func found(t *testing.T, l *laketest.Lake) (*letterReader, *letterBook) {
	t.Helper()
	s := letterReaderOf(t, l)
	book, err := readLetters(t.Context(), s, []string{"orders-dlq"}, 0, func(*deadletter.Letter) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range book.sources {
		for i := range s.letters {
			book.set(&s.letters[i], LetterUnresolved, "")
		}
	}
	return s, book
}

// TestLetterBook_ShowsWhatIsDeleted: if retention deletes dead letters between the two reads of a list, they are listed
// with what the first read has, and a note says so.
func TestLetterBook_ShowsWhatIsDeleted(t *testing.T) {
	l := laketest.New(t, "topics: {orders: {bad_records: dead_letter}}")
	l.Create("orders", 1)
	l.Create("orders-dlq", 1)
	for offset := range int64(4) {
		l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, offset, nil))
	}
	r, book := found(t, l)
	l.DeleteTo("orders-dlq", 2)
	list, shown := book.list(&letterScope{}, LetterQuery{Limit: 3})
	if err := book.show(t.Context(), r, list, shown); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list.Listed {
		got = append(got, strings.Join([]string{s.Failed.Format(time.TimeOnly), string(s.State), s.Reason, s.Member, s.Detail}, " "))
	}
	want := []string{
		"12:00:03 unresolved type_mismatch m1 type_mismatch at byte 5 in column n",
		"12:00:02 unresolved type_mismatch m1 type_mismatch at byte 5 in column n",
		"12:00:01 unresolved type_mismatch  ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !slices.ContainsFunc(list.Notes, func(n string) bool { return strings.HasPrefix(n, "1 dead letter deleted") }) {
		t.Errorf("notes %q", list.Notes)
	}
}

// TestLetterBook_TopicCreatedAgain: other dead letters at the same offsets are never taken for those that were read.
func TestLetterBook_TopicCreatedAgain(t *testing.T) {
	l := laketest.New(t, "topics: {orders: {bad_records: dead_letter}}")
	l.Create("orders", 1)
	l.Create("orders-dlq", 1)
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 1, nil))
	r, book := found(t, l)
	l.CreateAgain("orders-dlq")
	l.Client.PurgeTopicsFromProducing("orders-dlq")
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 2, nil))
	list, shown := book.list(&letterScope{}, LetterQuery{})
	err := book.show(t.Context(), r, list, shown)
	if fail.Of(err) != fail.KindRefused || !strings.Contains(err.Error(), "orders-dlq was deleted or created again") {
		t.Error(err)
	}
}
