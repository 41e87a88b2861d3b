package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/admin"
	"sluice/reliability/deadletter"
)

const lettersAgain = "topics: {orders: {dead_letters: {archive: none}}}\ndefaults:\n  schema: n int not null\n  commit: {every: 100ms}\n  dead_letters: {hold_above: 100%}"

// lettersUnnamed is lettersAgain for tables without the column topic_id.
const lettersUnnamed = lettersAgain + "\n  metadata_columns: [topic, partition, offset, timestamp]"

// badOrders produces n records to partition 0 of topic orders. Every second one is bad.
func (l *lake) badOrders(n int) {
	l.T.Helper()
	l.Client.PurgeTopicsFromProducing("orders")
	var all []*kgo.Record
	for i := range n {
		value := `{"n":1}`
		if i%2 == 1 {
			value = "bad"
		}
		all = append(all, &kgo.Record{Topic: "orders", Value: []byte(value)})
	}
	if err := l.Client.ProduceSync(l.T.Context(), all...).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

// newBadOrders returns a lake in which a member has read n records of topic orders, of which every second one is bad.
func newBadOrders(t *testing.T, config string, n int) *lake {
	t.Helper()
	l := newLake(t, config)
	l.Create("orders", 1)
	l.badOrders(n)
	l.run()
	return l
}

// counts runs deadletters list and compares how many dead letters of topic orders are unresolved, unknown and pending.
// Gauge and health must show the same number of unresolved ones, both in the watch followed and in a new watch.
func (l *lake) counts(step string, followed *letterWatch, unresolvedNow, unknown, pending int) {
	l.T.Helper()
	of := l.listed()
	if of.Unresolved != unresolvedNow || of.Unknown != unknown || of.Pending != pending {
		l.T.Errorf("%s: list says %d unresolved, %d unknown, %d pending; want %d, %d, %d: %v", step, of.Unresolved, of.Unknown, of.Pending, unresolvedNow, unknown, pending, of.Notes)
	}
	want := []string{fmt.Sprintf("orders poison %d", unresolvedNow)}
	for name, w := range map[string]*letterWatch{"followed": followed, "new": l.watch()} {
		w.poll(l.T.Context())
		if d := cmp.Diff(want, unresolved(l.T, w)); d != "" || w.report().Error != "" {
			l.T.Errorf("%s, %s member (-want +got):\n%s%s", step, name, d, w.report().Error)
		}
		var shown int64
		for _, u := range w.report().Unresolved {
			shown += u.Count
		}
		if shown != int64(unresolvedNow) {
			l.T.Errorf("%s, %s member: health shows %d", step, name, shown)
		}
	}
}

// TestLettersOfATopicThatWasCreatedAgain: dead letters of a deleted topic count until retention deletes them, even if
// the new topic of that name has rows with the same offsets.
func TestLettersOfATopicThatWasCreatedAgain(t *testing.T) {
	for _, tableStays := range []bool{true, false} {
		t.Run(fmt.Sprintf("TableStays=%v", tableStays), func(t *testing.T) {
			t.Parallel()
			l := newBadOrders(t, lettersUnnamed, 10)
			w := l.watch()
			l.counts("before", w, 5, 0, 0)
			l.CreateAgain("orders")
			l.counts("created again", w, 5, 0, 0) // the position in the table is after these dead letters, and they have no row
			l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 0, nil))
			l.Produce("orders", 10, 0) // good records, at the same offsets as those of the deleted topic
			l.counts("a dead letter of the new topic", w, 5, 0, 1)
			if !tableStays {
				l.RemoveTable("orders")
				l.counts("without a table", w, 5, 5, 1)
			}
			l.begin("orders")
			l.run()
			if tableStays { // the table cannot show of which topic id its rows are
				l.counts("started", w, 6, 6, 0)
			} else {
				l.counts("started", w, 5, 5, 0)
			}
			of := l.listed()
			for _, s := range of.Listed {
				if s.State != admin.LetterUnknown || !strings.Contains(s.Why, "the topic was created again") {
					t.Errorf("%+v", s)
				}
			}
			l.DeleteTo("orders-dlq", 6)
			l.counts("retention", w, 0, 0, 0)
		})
	}
}

// TestLettersOfATopicThatWasCreatedAgain_TopicIDs: rows with a topic id show which dead letters have rows. Those of the
// deleted topic are replayed, each once, beside rows of the new topic at the same offsets.
func TestLettersOfATopicThatWasCreatedAgain_TopicIDs(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	w := l.knowing()
	l.counts("before", w, 5, 0, 0)
	l.CreateAgain("orders")
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 0, nil))
	l.Produce("orders", 10, 0) // all of them good, at the same offsets
	l.begin("orders")
	l.run()
	l.counts("started", w, 5, 0, 0) // the dead letter of the new topic is void
	for _, s := range l.listed().Listed {
		if s.State != admin.LetterUnresolved || s.Why != "" {
			t.Errorf("%+v", s)
		}
	}
	l.replayCorrected(3)
	l.counts("one replayed", w, 4, 0, 0)
	l.Has("orders", map[string][]int64{"orders:0": {0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9}})
	l.DeleteTo("orders-dlq", 6)
	l.counts("retention", w, 0, 0, 0)
}

// TestLettersOfATableThatWasDeleted: after a table was deleted, members read the records again that Kafka still has.
// The dead letters of records that Kafka has deleted count as unresolved.
func TestLettersOfATableThatWasDeleted(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	w := l.watch()
	l.counts("before", w, 5, 0, 0)
	l.RemoveTable("orders")
	l.counts("deleted", w, 0, 0, 5)
	l.DeleteTo("orders", 4)
	l.counts("deleted, and so are records 1 and 3", w, 2, 0, 3)
	l.begin("orders")
	l.counts("started", w, 2, 0, 3)
	l.run()
	l.counts("read again", w, 5, 0, 0)
	if got := l.states(); !slices.Contains(got, "0@1 unresolved 1") || !slices.Contains(got, "0@5 unresolved 2") {
		t.Error(got)
	}

	// If the position is set back to before the start of the log, the dead letters of records 1 and 3 are not pending:
	// Kafka has deleted these records, so no member reads them again.
	l.SetPosition("orders", 0, 0)
	l.counts("set back", w, 2, 0, 3)
	l.CreateAgain("orders")
	l.counts("set back, and created again", w, 5, 5, 0)
	if _, err := l.Admin.DeleteTopics(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	l.counts("the topic is gone", w, 5, 5, 0)
}
