package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/reliability/deadletter"
)

const lettersAgain = "topics: {orders: {dead_letters: {archive: none}}}\ndefaults: {schema: \"n int not null\", commit: {every: 100ms}, dead_letters: {hold_above: 100%}}"

// badOrders produces records to partition 0 of topic orders, every other one of them bad.
func (l *lake) badOrders(n int) {
	l.t.Helper()
	l.client.PurgeTopicsFromProducing("orders")
	var all []*kgo.Record
	for i := range n {
		value := `{"n":1}`
		if i%2 == 1 {
			value = "bad"
		}
		all = append(all, &kgo.Record{Topic: "orders", Value: []byte(value)})
	}
	if err := l.client.ProduceSync(l.t.Context(), all...).FirstErr(); err != nil {
		l.t.Fatal(err)
	}
}

// createAgain deletes a topic and creates it with one partition.
func (l *lake) createAgain(topic string) {
	l.t.Helper()
	if _, err := l.admin.DeleteTopics(l.t.Context(), topic); err != nil {
		l.t.Fatal(err)
	}
	l.create(topic, 1)
}

// deleteTo deletes the records of partition 0 of a topic below an offset.
func (l *lake) deleteTo(topic string, offset int64) {
	l.t.Helper()
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: topic, At: offset})
	if _, err := l.admin.DeleteRecords(l.t.Context(), to); err != nil {
		l.t.Fatal(err)
	}
}

// counts compares what deadletters list, the gauge and health say of topic orders: unresolved dead letters, and how many of
// them are unknown and pending.
func (l *lake) counts(step string, followed *letterWatch, unresolvedNow, unknown, pending int) {
	l.t.Helper()
	of := listed(l.t, l, 0)
	if of.Unresolved != unresolvedNow || of.Unknown != unknown || of.Pending != pending {
		l.t.Errorf("%s: list says %d unresolved, %d unknown, %d pending; want %d, %d, %d: %v", step, of.Unresolved, of.Unknown, of.Pending, unresolvedNow, unknown, pending, of.Notes)
	}
	want := []string{fmt.Sprintf("orders poison %d", unresolvedNow)}
	for name, w := range map[string]*letterWatch{"followed": followed, "new": l.watch()} {
		w.look(l.t.Context())
		if d := cmp.Diff(want, unresolved(l.t, w)); d != "" || w.report().Error != "" {
			l.t.Errorf("%s, %s member (-want +got):\n%s%s", step, name, d, w.report().Error)
		}
		var shown int64
		for _, u := range w.report().Unresolved {
			shown += u.Count
		}
		if shown != int64(unresolvedNow) {
			l.t.Errorf("%s, %s member: health shows %d", step, name, shown)
		}
	}
}

// TestLettersOfATopicThatWasCreatedAgain: dead letters of the topic that was there before count until retention takes them
// away, whatever rows the new topic gets at their offsets.
func TestLettersOfATopicThatWasCreatedAgain(t *testing.T) {
	for _, tableStays := range []bool{true, false} {
		t.Run(fmt.Sprintf("TableStays=%v", tableStays), func(t *testing.T) {
			t.Parallel()
			l := newLake(t, lettersAgain)
			l.create("orders", 1)
			l.badOrders(10)
			l.runs(0, "run", "--until-current")
			w := l.watch()
			l.counts("before", w, 5, 0, 0)
			l.createAgain("orders")
			l.counts("created again", w, 5, 0, 0) // the table is past them and has no row of them
			l.write(deadletter.Form{}, "orders-dlq", letterAbout(t, l, 0, 0, nil))
			l.produce("orders", 10, 0) // all of them good, at the same offsets
			l.counts("a dead letter of the new topic", w, 5, 0, 1)
			if !tableStays {
				l.removeTable("orders")
				l.counts("without a table", w, 5, 5, 1)
			}
			l.runs(0, "offsets", "start", "orders", "--reason", "a test", "--yes")
			l.runs(0, "run", "--until-current")
			if tableStays { // its rows do not tell which topic they are of
				l.counts("started", w, 6, 6, 0)
			} else {
				l.counts("started", w, 5, 5, 0)
			}
			of := listed(t, l, 0)
			for _, s := range of.Listed {
				if s.State != letterUnknown || !strings.Contains(s.Why, "the topic was created again") {
					t.Errorf("%+v", s)
				}
			}
			l.deleteTo("orders-dlq", 6)
			l.counts("retention", w, 0, 0, 0)
		})
	}
}

// TestLettersOfATableThatWasDeleted: a table that begins anew reads its records again, as far as Kafka has them. The others
// count.
func TestLettersOfATableThatWasDeleted(t *testing.T) {
	l := newLake(t, lettersAgain)
	l.create("orders", 1)
	l.badOrders(10)
	l.runs(0, "run", "--until-current")
	w := l.watch()
	l.counts("before", w, 5, 0, 0)
	l.removeTable("orders")
	l.counts("deleted", w, 0, 0, 5)
	l.deleteTo("orders", 4)
	l.counts("deleted, and so are records 1 and 3", w, 2, 0, 3)
	l.runs(0, "offsets", "start", "orders", "--reason", "a test", "--yes")
	l.counts("started", w, 2, 0, 3)
	l.runs(0, "run", "--until-current")
	l.counts("read again", w, 5, 0, 0)
	if got := listed(t, l, 0).states(); !slices.Contains(got, "0@1 unresolved 1") || !slices.Contains(got, "0@5 unresolved 2") {
		t.Error(got)
	}

	// A position that is set back behind the start of the log does not make them pending.
	l.forge("orders", 0, 0)
	l.counts("set back", w, 2, 0, 3)
	l.createAgain("orders")
	l.counts("set back, and created again", w, 5, 5, 0)
	if _, err := l.admin.DeleteTopics(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	l.counts("the topic is gone", w, 5, 5, 0)
}

// removeTable deletes the folder of a table.
func (l *lake) removeTable(table string) {
	l.t.Helper()
	if err := os.RemoveAll(filepath.Join(l.dir, "lake", table)); err != nil {
		l.t.Fatal(err)
	}
}
