package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/admin"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/reliability/deadletter"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

// source returns partition 0 of topic orders.
func (l *lake) source() idempotency.Partition {
	l.T.Helper()
	return l.LetterAbout(0, 0, nil).Source.Partition
}

// decide appends an entry to the operations log.
func (l *lake) decide(b opslog.Body) opslog.Entry {
	l.T.Helper()
	e, err := l.operationsLog().Append(l.T.Context(), opslog.Operation{Operator: "ann", Reason: "a test", Body: b}, nil)
	if err != nil {
		l.T.Fatal(err)
	}
	return e
}

func (l *lake) operationsLog() *opslog.Log {
	guard := reliability.NewGuard("operations_log", laketest.Load(l.T, l.Config).Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	return opslog.Open(l.Store, "p", opslog.Options{Guard: guard})
}

// decisions reads the operations log, as the follower of a member does.
func (l *lake) decisions() *opslog.State {
	state, err := l.operationsLog().State(l.T.Context())
	if err != nil {
		l.T.Error(err)
	}
	return state
}

// knowing returns the watch of a new member that has read the operations log to its end.
func (l *lake) knowing() *letterWatch {
	l.T.Helper()
	w := l.watch()
	w.decisions = l.decisions
	return w
}

// letters returns the dead letters about these offsets of partition 0 of topic orders.
func (l *lake) letters(at ...int64) []opslog.Letters {
	l.T.Helper()
	return []opslog.Letters{opslog.LettersOf(l.source(), offsets.Of(at...))}
}

// replay adds rows for these offsets of topic orders to the table, as a replay does: it writes the intent, commits the
// rows, and writes the outcome.
func (l *lake) replay(at ...int64) {
	l.T.Helper()
	guard := reliability.NewGuard("store", laketest.Load(l.T, l.Config).Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	table, err := delta.Open(objstore.Sub(l.Store, "orders"), delta.Options{Pipeline: "p", Engine: "sluice/test", Guard: guard})
	if err != nil {
		l.T.Fatal(err)
	}
	defer table.Close()
	snapshot, err := table.Load(l.T.Context())
	if err != nil {
		l.T.Fatal(err)
	}
	intent := l.decide(opslog.ReplayIntent{Table: "orders", TableID: snapshot.TableID, Letters: l.letters(at...)})
	rows, err := decode.JSON{}.Builder(snapshot.Schema)
	if err != nil {
		l.T.Fatal(err)
	}
	for _, offset := range at {
		if err := rows.Add(l.source(), &connector.Record{Value: []byte(`{"n":1}`), Offset: offset}); err != nil {
			l.T.Fatal(err)
		}
	}
	files, err := table.Stage(l.T.Context(), snapshot, "", []connector.Piece{{Rows: rows.Seal(), To: int64(len(at))}}, nil)
	if err != nil {
		l.T.Fatal(err)
	}
	commit := &connector.Commit{Operation: "STREAMING UPDATE", Staged: files, Replayed: []connector.Replayed{connector.Replayed(l.letters(at...)[0])}}
	committed, err := table.Commit(l.T.Context(), commit, func(*connector.Snapshot) error { return nil })
	if err != nil {
		l.T.Fatal(err)
	}
	l.decide(opslog.ReplayDone{Intent: intent.Seq, Table: "orders", Outcome: opslog.Committed, Version: committed.Version})
}

// replayCorrected replays a record of topic orders with a corrected value, as an operator does.
func (l *lake) replayCorrected(offset int64) {
	l.T.Helper()
	a := &admin.Access{Config: laketest.Load(l.T, l.Config)}
	plan, err := admin.PlanReplay(l.T.Context(), a, admin.ReplayQuery{
		Value: []byte(`{"n":1}`),
		LetterSelection: admin.LetterSelection{
			Records: []admin.RecordPlace{{Topic: "orders", Offset: offset}}, LetterQuery: admin.LetterQuery{Within: time.Minute},
		},
	})
	if err == nil {
		_, err = admin.Replay(l.T.Context(), a, plan, admin.By{Operator: "ann", Reason: "a test"}, func(admin.ReplayProgress) {})
	}
	if err != nil {
		l.T.Fatal(err)
	}
}

// TestLetterWatch_Decisions: discarded, acknowledged and replayed dead letters do not count as unresolved, reopened
// ones do. That holds on a member that follows the log, on one that missed some decisions, and on one that just
// started.
func TestLetterWatch_Decisions(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10) // offsets 1, 3, 5, 7 and 9 are bad
	first, second := l.knowing(), l.knowing()
	counts := func(step string, unresolvedNow, replayed int, watches map[string]*letterWatch) {
		t.Helper()
		watches["new"] = l.knowing()
		if of := l.listed(); of.Unresolved != unresolvedNow {
			t.Errorf("%s: list says %+v", step, of)
		}
		for name, w := range watches {
			w.poll(t.Context())
			want := []string{fmt.Sprintf("orders poison %d", unresolvedNow)}
			if d := cmp.Diff(want, unresolved(t, w)); d != "" || w.report().Error != "" {
				t.Errorf("%s, %s member (-want +got):\n%s%s", step, name, d, w.report().Error)
			}
			want = []string{fmt.Sprintf("orders %d", replayed)}
			if d := cmp.Diff(want, gathered(t, w, "worker_dlq_replayed_total")); d != "" {
				t.Errorf("%s, %s member, replayed (-want +got):\n%s", step, name, d)
			}
		}
	}
	both := func() map[string]*letterWatch { return map[string]*letterWatch{"first": first, "second": second} }
	one := func() map[string]*letterWatch { return map[string]*letterWatch{"first": first} }
	counts("nothing decided", 5, 0, both())
	l.decide(opslog.Discard{Letters: l.letters(1, 3)})
	counts("two discarded", 3, 0, both())
	l.decide(opslog.Acknowledge{Letters: l.letters(5)})
	counts("one acknowledged", 2, 0, one())
	l.decide(opslog.Reopen{Letters: l.letters(3, 5)})
	counts("one of each reopened", 4, 0, both())
	l.replayCorrected(7)
	counts("one replayed", 3, 1, both())
	l.replay(3)
	counts("another one", 2, 2, both())
	l.decide(opslog.Acknowledge{Letters: l.letters(5, 9, 400)})
	counts("the others acknowledged", 0, 2, one())
	l.badOrders(2)
	l.run()
	counts("a new one", 1, 2, both())

	// When a table was created anew, members read all records again. Discarded dead letters stay discarded.
	l.RemoveTable("orders")
	counts("without a table", 0, 2, both())
	l.begin("orders")
	l.run()
	counts("read again", 3, 2, both()) // unresolved are 3, 7 and 11; 1, 5 and 9 are resolved
}

// TestLetterWatch_DecisionsEqualTheirState: after random decisions, the members and deadletters list count the same
// dead letters as unresolved: those that are neither discarded, acknowledged nor replayed according to the operations
// log.
func TestLetterWatch_DecisionsEqualTheirState(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 24)
	random := rand.New(rand.NewPCG(7, 1))
	first, second := l.knowing(), l.knowing()
	replayed := map[int64]bool{}
	for step := range 20 {
		var at, anew []int64
		for offset := int64(1); offset < 24; offset += 2 {
			if random.IntN(4) == 0 {
				at = append(at, offset)
			}
		}
		if len(at) == 0 {
			continue
		}
		switch random.IntN(5) {
		case 0:
			l.decide(opslog.Discard{Letters: l.letters(at...)})
		case 1:
			l.decide(opslog.Acknowledge{Letters: l.letters(at...)})
		case 2:
			l.decide(opslog.Reopen{Letters: l.letters(at...)})
		case 3:
			l.decide(opslog.ReplayFailed{Table: "orders", Letters: l.letters(at...)})
		case 4:
			for _, offset := range at {
				if !replayed[offset] {
					anew = append(anew, offset)
					replayed[offset] = true
				}
			}
			if len(anew) > 0 {
				l.replay(anew...)
			}
		}
		states := l.decisions().Letters(l.source())
		want := 12 - offsets.Union(states.Discarded, states.Acknowledged, states.Replayed).Len()
		if of := l.listed(); int64(of.Unresolved) != want {
			t.Errorf("step %d: list says %+v", step, of)
		}
		watches := map[string]*letterWatch{"first": first, "new": l.knowing()}
		if random.IntN(3) == 0 {
			watches["second"] = second
		}
		for name, w := range watches {
			w.poll(t.Context())
			if d := cmp.Diff([]string{fmt.Sprintf("orders poison %d", want)}, unresolved(t, w)); d != "" {
				t.Fatalf("step %d, %s member (-want +got):\n%s", step, name, d)
			}
		}
	}
}

// TestLetterWatch_ReplayReadsNoTable: a member that follows a table learns of replayed rows from the commits, and reads
// no data file for them.
func TestLetterWatch_ReplayReadsNoTable(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	w := l.knowing()
	var read atomic.Int64
	w.tables = objstoretest.Traced(w.tables, func(line string) {
		if strings.Contains(line, ".parquet") {
			read.Add(1)
		}
	})
	w.poll(t.Context())
	before := read.Load()
	l.replay(1, 3)
	l.replayCorrected(5)
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 2"}, unresolved(t, w)); d != "" || read.Load() != before || before == 0 {
		t.Errorf("%d and then %d requests for data files (-want +got):\n%s", before, read.Load(), d)
	}
}

// TestLetterWatch_ReplayOfAnotherTopicID: a table has positions of two topic ids of one name. If its rows have no
// topic id, replayed rows make no dead letters void, because they may be of either topic. If they have a topic id,
// they do. A member that follows the table and one that just started count the same.
func TestLetterWatch_ReplayOfAnotherTopicID(t *testing.T) {
	for config, want := range map[string]int{lettersUnnamed: 5, lettersAgain: 3} {
		replayOfAnotherTopicID(t, config, want)
	}
}

func replayOfAnotherTopicID(t *testing.T, config string, want int) {
	t.Helper()
	l := newBadOrders(t, config, 10)
	other := l.source()
	other.TopicID = idempotency.TopicID{3}
	l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":9}}`, other.AppID("p")))
	w := l.knowing()
	w.poll(t.Context())
	l.replay(1, 3)
	if of := l.listed(); of.Unresolved != want {
		t.Errorf("list says %+v", of)
	}
	for name, w := range map[string]*letterWatch{"followed": w, "new": l.knowing()} {
		w.poll(t.Context())
		if d := cmp.Diff([]string{fmt.Sprintf("orders poison %d", want)}, unresolved(t, w)); d != "" {
			t.Errorf("%s member (-want +got):\n%s", name, d)
		}
	}
}

// TestLetterWatch_DecisionsCountAtOnce: a decision changes gauge and health without another poll. Until a member has
// read the operations log, it counts all dead letters as unresolved, and the counter of replayed dead letters has no
// series.
func TestLetterWatch_DecisionsCountAtOnce(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	m, err := New(t.Context(), laketest.Load(t, l.Config), Options{}, l.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	w, end := newLetterWatch(t.Context(), m)
	defer end()
	l.decide(opslog.Acknowledge{Letters: l.letters(1)})
	l.replay(9)
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 4"}, unresolved(t, w)); d != "" || len(gathered(t, w, "worker_dlq_replayed_total")) > 0 {
		t.Errorf("before the operations log was read (-want +got):\n%s%v", d, gathered(t, w, "worker_dlq_replayed_total"))
	}
	w.stands = func(table string) error {
		if table == "" {
			t.Error("another poll")
		}
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	resting, following := make(chan bool), make(chan struct{})
	go func() { resting <- w.rest(ctx, time.Hour) }()
	go func() { defer close(following); m.operations.Run(ctx) }()
	l.Await("the first read of the operations log is counted", func() bool {
		return cmp.Equal([]string{"orders poison 3"}, unresolved(t, w))
	})
	stop()
	if <-resting {
		t.Error("it would poll after its context ended")
	}
	<-following
	if got := w.report().Unresolved; len(got) != 1 || got[0].Count != 3 {
		t.Errorf("health shows %+v", got)
	}
	if d := cmp.Diff([]string{"orders 1"}, gathered(t, w, "worker_dlq_replayed_total")); d != "" {
		t.Errorf("replayed (-want +got):\n%s", d)
	}
}

// TestLetterWatch_DecisionsWhileATopicFails: a topic that the last poll could not count keeps its number until a poll
// can.
func TestLetterWatch_DecisionsWhileATopicFails(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	w := l.knowing()
	w.poll(t.Context())
	stands := w.stands
	w.stands = func(string) error { return errors.New("the circuit breaker is open") }
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 5, nil))
	w.poll(t.Context())
	l.decide(opslog.Discard{Letters: l.letters(1)})
	w.recount(t.Context())
	if d := cmp.Diff([]string{"orders poison 5"}, unresolved(t, w)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	w.stands = stands
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 4"}, unresolved(t, w)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestLetterWatch_Alarm: the first unresolved dead letter of a topic is logged at WARN, or at ERROR if its class is
// financial. When the topic has no unresolved dead letters any more, a line says so.
func TestLetterWatch_Alarm(t *testing.T) {
	for class, want := range map[string]laketest.Line{
		"standard":  {"level": "WARN", "severity": "warning"},
		"financial": {"level": "ERROR", "severity": "critical"},
	} {
		t.Run(class, func(t *testing.T) {
			l := newBadOrders(t, "topics: {orders: {dead_letters: {archive: none, class: "+class+"}}}\ndefaults: {schema: \"n int not null\", commit: {every: 100ms}, dead_letters: {hold_above: 100%}}", 10)
			var log *laketest.Log
			l.Logger, log = laketest.NewLog()
			w := l.knowing()
			logged := func(step, what string, want ...laketest.Line) {
				t.Helper()
				w.poll(t.Context())
				var got []laketest.Line
				for _, line := range log.Lines(t, what) {
					delete(line, "time")
					delete(line, "msg")
					got = append(got, line)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s (-want +got):\n%s", step, d)
				}
			}
			const arrived, over = "unresolved dead letters; replay, discard or acknowledge them", "no unresolved dead letters any more"
			line := func(n, before float64) laketest.Line {
				return laketest.Line{"level": want["level"], "severity": want["severity"], "topic": "orders", "unresolved": n, "before": before, "letters_class": class, "left_out": 0.0}
			}
			logged("the first ones", arrived, line(5, 0))
			l.badOrders(2)
			l.run()
			logged("more of them, soon after", arrived, line(5, 0))
			l.decide(opslog.Discard{Letters: l.letters(1, 3)})
			l.decide(opslog.Acknowledge{Letters: l.letters(5, 7, 9)})
			logged("one is left", over)
			l.decide(opslog.Acknowledge{Letters: l.letters(11)})
			w.recount(t.Context())
			end := laketest.Line{"level": "INFO", "topic": "orders", "before": 1.0}
			logged("the last one", over, end)
			l.decide(opslog.Reopen{Letters: l.letters(1)})
			logged("one reopened", arrived, line(5, 0), line(1, 0))
			w.rises["orders"] = rise{1, time.Now().Add(-riseEvery)}
			l.decide(opslog.Reopen{Letters: l.letters(3, 5)})
			logged("more of them, later", arrived, line(5, 0), line(1, 0), line(3, 1))
		})
	}
}

// TestLetterWatch_DecisionsAboutDeletedTopics: a topic that Kafka no longer has, and that the configuration has only by
// a pattern, shows 0 once all of its dead letters are resolved. So its alert ends.
func TestLetterWatch_DecisionsAboutDeletedTopics(t *testing.T) {
	l := newLake(t, `topics: {sales: {pattern: 'orders.*', deny: [], bad_records: dead_letter, dead_letters: {topic: dead, archive: none, class: financial}}}`)
	l.Create("orders", 1)
	l.Create("dead", 1)
	gone := l.LetterAbout(0, 1, nil)
	gone.Source.Topic = "orders.gone"
	l.WriteLetters(deadletter.Form{}, "dead", gone)
	w := l.knowing()
	shows := func(n int) {
		t.Helper()
		w.poll(t.Context())
		if d := cmp.Diff([]string{"orders poison 0", fmt.Sprintf("orders.gone poison %d", n)}, unresolved(t, w)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	shows(1)
	if d := cmp.Diff([]string{"orders financial 1", "orders.gone financial 1"}, reordered(gathered(t, w, "sluice_topic_info"))); d != "" {
		t.Errorf("its class (-want +got):\n%s", d)
	}
	l.decide(opslog.Discard{Letters: []opslog.Letters{opslog.LettersOf(gone.Source.Partition, offsets.Of(1))}})
	shows(0)
	shows(0)
}
