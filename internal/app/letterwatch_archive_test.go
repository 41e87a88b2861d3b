package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/deadletter"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

const lettersArchived = "topics: {orders: {}}\ndefaults:\n  schema: n int not null\n  commit: {every: 100ms}\n  dead_letters: {hold_above: 100%}"

// lettersLake returns a lake whose letter table has n dead letters, which are also in topic orders-dlq.
func lettersLake(t *testing.T, n int) *lake {
	t.Helper()
	l := newBadOrders(t, lettersArchived, 2*n)
	l.run() // archives what the first run wrote
	if got := len(l.Rows("orders_letters")["orders-dlq:0"]); got != n {
		t.Fatalf("%d dead letters are archived, want %d", got, n)
	}
	return l
}

// traced adds the requests of a watch to the store to the returned list.
func traced(w *letterWatch) (requests func() []string) {
	var mu sync.Mutex
	var all []string
	w.tables = objstoretest.Traced(w.tables, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, line)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		before := all
		all = nil
		return slices.DeleteFunc(before, func(line string) bool { return !strings.Contains(line, "orders_letters") })
	}
}

// TestArchivedLetters: dead letters that retention has deleted from their topic count while the letter table has them,
// in a running member and in a new one, as deadletters list counts them. Decisions and replays apply to them, too.
func TestArchivedLetters(t *testing.T) {
	l := lettersLake(t, 10)
	w := l.knowing()
	requests := traced(w)
	l.counts("before retention", w, 10, 0, 0)
	if got := requests(); len(got) > 0 {
		t.Errorf("the topic has all dead letters, and the letter table was asked: %q", got)
	}
	l.DeleteTo("orders-dlq", 4)
	l.counts("retention", w, 10, 0, 0)
	requests()
	l.counts("nothing new", w, 10, 0, 0)
	l.DeleteTo("orders-dlq", 7)
	l.counts("more retention of what is known to be archived", w, 10, 0, 0)
	if got := requests(); len(got) > 0 {
		t.Errorf("the letter table has nothing new, and was asked: %q", got)
	}
	l.badOrders(4)
	l.run()
	l.counts("new dead letters, not archived yet", w, 12, 0, 0)
	l.run()
	l.DeleteTo("orders-dlq", 12)
	l.counts("the topic has none any more", w, 12, 0, 0)
	l.replayCorrected(1)
	l.replayCorrected(23)
	l.counts("two replayed", w, 10, 0, 0)
	l.RemoveTable("orders_letters")
	l.CreateAgain("orders-dlq")
	l.counts("the dead-letter topic was created again", w, 0, 0, 0)
}

// TestArchivedLetters_Decided: an operator's decision applies to a dead letter that only the letter table has.
func TestArchivedLetters_Decided(t *testing.T) {
	l := lettersLake(t, 5)
	l.DeleteTo("orders-dlq", 5)
	w := l.knowing()
	w.poll(t.Context())
	l.decide(opslog.Discard{Letters: l.letters(1, 3)})
	w.recount(t.Context())
	if d := cmp.Diff([]string{"orders poison 3"}, unresolved(t, w)); d != "" || l.listed().Unresolved != 3 {
		t.Errorf("list says %d (-want +got):\n%s", l.listed().Unresolved, d)
	}
}

// TestArchivedLetters_Lost: dead letters that retention deleted before members archived them count in no member, and
// those that a member archives after retention deleted them count in all.
func TestArchivedLetters_Lost(t *testing.T) {
	l := lettersLake(t, 5)
	w := l.watch()
	var more []deadletter.Letter
	for i := range int64(6) { // about records with a dead letter, and without
		more = append(more, l.LetterAbout(0, i, nil))
	}
	l.WriteLetters(deadletter.Form{}, "orders-dlq", more...)
	l.counts("before retention", w, 5, 0, 0) // the other records have rows
	l.DeleteTo("orders-dlq", 7)
	l.counts("lost are copies alone", w, 5, 0, 0)
	l.SetPosition("orders", 0, 20)
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 15, nil), l.LetterAbout(0, 17, nil))
	l.counts("two more", w, 7, 0, 0)
	l.DeleteTo("orders-dlq", 12)
	l.counts("one of them is lost", w, 6, 0, 0)
}

// TestArchivedLetters_NoTable: without a letter table the gauge counts what the topic has.
func TestArchivedLetters_NoTable(t *testing.T) {
	l := newBadOrders(t, lettersArchived, 10)
	l.RemoveTable("orders_letters")
	w := l.watch()
	l.counts("before retention", w, 5, 0, 0)
	l.DeleteTo("orders-dlq", 2)
	l.counts("retention", w, 3, 0, 0)
	l.DeleteTo("orders-dlq", 5)
	l.counts("all is gone", w, 0, 0, 0)
}

// TestArchivedLetters_StoreFails: while the letter table cannot be read, a running member keeps its number and a new one
// has none, and both say why. Once the store answers, both have the number of deadletters list.
func TestArchivedLetters_StoreFails(t *testing.T) {
	broken := classify.Mark(errors.New("the store does not answer"), classify.Fatal) // it is not retried
	for name, fails := range map[string]func(w *letterWatch) (mend func()){
		"breaker": func(w *letterWatch) func() {
			stands := w.stands
			w.stands = func(table string) error {
				if table == "orders_letters" {
					return broken
				}
				return nil
			}
			return func() { w.stands = stands }
		},
		"data file": func(w *letterWatch) func() {
			var down atomic.Bool
			down.Store(true)
			w.tables = failingFiles{w.tables, &down, broken}
			return func() { down.Store(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := lettersLake(t, 5)
			w := l.watch()
			w.poll(t.Context())
			// A member that runs has read no more than these five when retention deletes six others.
			l.badOrders(12)
			l.run()
			l.run()
			l.DeleteTo("orders-dlq", 11)
			fresh := l.watch()
			mend, mendFresh := fails(w), fails(fresh)
			for range 2 {
				w.poll(t.Context())
				fresh.poll(t.Context())
				for of, gauge := range map[*letterWatch][]string{w: {"orders poison 5"}, fresh: nil} {
					if d := cmp.Diff(gauge, unresolved(t, of)); d != "" || !strings.Contains(of.report().Error, "letter table orders_letters: ") || !strings.Contains(of.report().Error, broken.Error()) {
						t.Errorf("(-want +got):\n%s%s", d, of.report().Error)
					}
				}
			}
			mend()
			mendFresh()
			l.counts("the store answers", w, 11, 0, 0)
			l.counts("the store answers", fresh, 11, 0, 0)
		})
	}
}

// failingFiles is a store in which the data files of the letter table cannot be read while down is true.
type failingFiles struct {
	objstore.Store
	down *atomic.Bool
	err  error
}

func (s failingFiles) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if s.down.Load() && strings.HasPrefix(key, "orders_letters/") && strings.HasSuffix(key, ".parquet") {
		return nil, s.err
	}
	return s.Store.Get(ctx, key, off, n)
}

// TestArchivedLetters_RetentionDuringTheCount: dead letters that retention deletes before the watch has read them from
// their topic come from the letter table with the next poll. Until then the gauge keeps its number.
func TestArchivedLetters_RetentionDuringTheCount(t *testing.T) {
	l := lettersLake(t, 5)
	w := l.watch()
	w.poll(t.Context())
	l.badOrders(12)
	l.run()
	l.run()
	p, err := l.PartitionsOf("orders-dlq")
	if err != nil {
		t.Fatal(err)
	}
	partition := connector.Partition{Cluster: p.Cluster, Topic: p.Name, TopicID: p.ID}
	bounds, err := w.reader.Bounds(partition) // before retention
	if err != nil {
		t.Fatal(err)
	}
	l.DeleteTo("orders-dlq", 9)
	o := &outlook{archives: map[string]error{}}
	if err := w.readPartition(t.Context(), o, partition, bounds); !errors.Is(err, errExpired) {
		t.Errorf("%v", err)
	}
	l.counts("the next polls", w, 11, 0, 0)
}

// TestArchivedLetters_EqualsList: after random retention, runs and losses, each member has the number of deadletters
// list.
func TestArchivedLetters_EqualsList(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			l := lettersLake(t, 3)
			w := l.watch()
			for step := range 10 {
				what := random.IntN(4)
				switch what {
				case 0:
					l.badOrders(1 + random.IntN(8))
					l.run()
				case 1:
					l.run()
				case 2:
					l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, int64(random.IntN(6)), nil))
				default:
					ends, err := l.Admin.ListEndOffsets(t.Context(), "orders-dlq")
					if err != nil {
						t.Fatal(err)
					}
					end, _ := ends.Lookup("orders-dlq", 0)
					starts, err := l.Admin.ListStartOffsets(t.Context(), "orders-dlq")
					if err != nil {
						t.Fatal(err)
					}
					start, _ := starts.Lookup("orders-dlq", 0)
					l.DeleteTo("orders-dlq", start.Offset+random.Int64N(end.Offset-start.Offset+1))
				}
				of := l.listed()
				l.counts(fmt.Sprintf("step %d: %d", step, what), w, of.Unresolved, of.Unknown, of.Pending)
			}
		})
	}
}
