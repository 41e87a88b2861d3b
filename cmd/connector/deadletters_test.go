package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/idempotency"
	"sluice/internal/admin"
	"sluice/internal/app"
	"sluice/internal/laketest"
	"sluice/reliability/deadletter"
)

// TestLetterTables expects dead letters to become rows of letter tables without configuration.
func TestLetterTables(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter}}`)
	l.Create("orders", 2)
	l.Produce("orders", 3, 0, 1)

	// There is no problem before the first dead letter.
	out, _ := l.runs(0, "validate")
	if !strings.Contains(out, "dead letters of orders  topic orders-dlq  file://") || !strings.Contains(out, "/lake/orders_letters") {
		t.Error(out)
	}
	l.runs(0, "run", "--until-current")
	if out, errs := l.runs(0, "table", "inspect"); !strings.Contains(out, "/lake/orders\n") || !strings.Contains(errs, "orders_letters: there is no table yet: the first dead letter creates it") {
		t.Errorf("%s%s", out, errs)
	}
	l.runs(0, "verify")
	if out, _ := l.runs(0, "offsets", "show"); !strings.Contains(out, "orders-dlq: the topic comes with the first dead letter") {
		t.Error(out)
	}
	if out, _ := l.runs(0, "holds"); !strings.HasPrefix(out, "nothing is held, ") {
		t.Error(out)
	}
	if out, _ := l.runs(0, "deadletters", "list"); out != "0 dead letters of 0 records: 0 unresolved\nnote: topic orders-dlq does not exist yet: it comes with the first dead letter\n" {
		t.Error(out)
	}

	l.Create("orders-dlq", 1)
	l.WriteLetters(deadletter.Form{Pipeline: "p"}, "orders-dlq", l.LetterAbout(0, 1, []byte("{]")), l.LetterAbout(1, 1, nil))
	l.WriteLetters(deadletter.Form{Pipeline: "p", Envelope: deadletter.EnvelopeJSON}, "orders-dlq", l.LetterAbout(0, 2, []byte{0xff}))
	l.runs(0, "run", "--until-current")
	l.Has("orders", laketest.UpTo(3, "orders:0", "orders:1"))
	l.Has("orders_letters", laketest.UpTo(3, "orders-dlq:0"))
	l.runs(0, "verify", "--kafka")
	if out, _ := l.runs(0, "table", "inspect", "--topic", "orders-dlq"); !strings.Contains(out, "original_value string") || !strings.Contains(out, "orders-dlq:0 next offset 3, leader epoch 0 (pipeline p)") {
		t.Error(out)
	}
	if out, _ := l.runs(0, "offsets", "show"); !strings.Contains(out, "orders-dlq:0  3") {
		t.Error(out)
	}

	// A record of the dead-letter topic that is not a dead letter holds its partition. It does not become a dead letter
	// itself.
	l.Produce("orders-dlq", 1, 0)
	_, errs := l.runs(1, "run", "--until-current")
	if !strings.Contains(errs, `"topic":"orders-dlq","partition":0,"reason":"poison"`) || !strings.Contains(errs, "dead letter: not a dead letter") {
		t.Error(errs)
	}
	if out, _ := l.runs(1, "holds"); !strings.Contains(out, "orders-dlq:0 poison: dead letter: not a dead letter") {
		t.Error(out)
	}
	l.runs(0, "offsets", "skip", "orders-dlq:0@3", "--reason", "a test", "--yes")
	l.runs(0, "run", "--until-current")
	if _, err := l.PartitionsOf("orders-dlq-dlq"); err == nil {
		t.Error("a letter of a letter")
	}
}

// TestLettersOfARunUntilCurrent expects a run until current to read only topics that exist at its start. The
// dead-letter topic that it creates is read by the next run.
func TestLettersOfARunUntilCurrent(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}\ndefaults: {schema: \"n int not null\", commit: {every: 100ms}}")
	l.Create("orders", 1)
	l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("bad")}, &kgo.Record{Topic: "orders", Value: []byte(`{"n":1}`)})
	l.runs(0, "run", "--until-current")
	l.Has("orders", map[string][]int64{"orders:0": {1}})
	l.Has("orders_letters", map[string][]int64{})
	l.runs(0, "run", "--until-current")
	l.Has("orders_letters", laketest.UpTo(1, "orders-dlq:0"))
}

// TestLetterTopicsAppear: a member runs before its dead-letter topics exist, and must not report them as missing. Once
// they exist, it must read them and create their letter tables. The same holds for topics that match a pattern.
func TestLetterTopicsAppear(t *testing.T) {
	l := newLake(t, `
topics:
  orders: {}
  sales: {pattern: 'sales\..+', deny: [], dead_letters: {topic: "dead.{topic}"}}
defaults: {schema: "n int not null", commit: {every: 100ms}}`)
	l.Create("orders", 1)
	l.Create("sales.eu", 1)
	l.Produce("orders", 2, 0)
	s := l.start()
	l.Awaits("orders", laketest.UpTo(2, "orders:0"))
	rejoins := func() float64 { return sumOf(t, s, "sluice_group_rejoins_total") }
	before := rejoins()
	l.Awaits("sales.eu", map[string][]int64{})
	if held := heldIn(s); len(held) > 0 || rejoins() != before {
		t.Errorf("holds %v, %v rejoins", held, rejoins())
	}
	tables := 0
	for _, d := range s.Report().Dependencies {
		if d.Name == "store" {
			tables++
		}
	}
	if tables != 2 {
		t.Errorf("%d tables are open before there is a letter", tables)
	}
	for _, topic := range []string{"orders", "sales.eu"} {
		l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("bad")}, &kgo.Record{Topic: topic, Value: []byte(`{"n":1}`)})
	}
	l.Awaits("orders", map[string][]int64{"orders:0": {0, 1, 3}})
	l.Awaits("sales.eu", map[string][]int64{"sales.eu:0": {1}})
	l.Awaits("orders_letters", laketest.UpTo(1, "orders-dlq:0"))
	l.Awaits("sales.eu_letters", laketest.UpTo(1, "dead.sales.eu:0"))
	if held := heldIn(s); len(held) > 0 || rejoins() > before+2 {
		t.Errorf("holds %v, %v rejoins", held, rejoins()-before)
	}
	if c := listed(t, l, 0); c.Unresolved != 2 || c.Distinct != 2 || c.Letters != 2 {
		t.Errorf("%+v", c)
	}
}

// sumOf adds up a metric over its labels.
func sumOf(t *testing.T, s *app.Member, name string) (sum float64) {
	t.Helper()
	families, err := s.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func listed(t *testing.T, l *lake, code int, args ...string) *admin.LetterList {
	t.Helper()
	out, _ := l.runs(code, append([]string{"deadletters", "list", "--output", "json"}, args...)...)
	var list admin.LetterList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return &list
}

// statesOf returns the dead letters in the list, each as "partition@offset state copies".
func statesOf(l *admin.LetterList) (all []string) {
	for _, s := range l.Listed {
		all = append(all, fmt.Sprintf("%d@%d %s %d", s.Partition, s.Offset, s.State, s.Copies))
	}
	return all
}

// TestDeadLettersList expects the list to distinguish void dead letters from unresolved ones.
func TestDeadLettersList(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter, dead_letters: {archive: none}}, users: {bad_records: hold}}`)
	l.Create("orders", 2)
	l.Create("users", 1)
	l.Create("orders-dlq", 2)
	l.Produce("orders", 3, 0)
	l.runs(0, "run", "--until-current")
	l.Produce("orders", 5, 0)
	l.runs(0, "offsets", "set", "orders:0", "5", "--reason", "as if two letters were passed", "--yes")

	form := deadletter.Form{Pipeline: "p"}
	l.WriteLetters(form, "orders-dlq",
		l.LetterAbout(0, 1, []byte("x")),
		l.LetterAbout(0, 3, []byte("x")),
		l.LetterAbout(0, 3, []byte("x")),
		l.LetterAbout(0, 7, []byte("x")),
		l.LetterAbout(1, 0, []byte("x")),
	)
	old := l.LetterAbout(0, 2, []byte("x"))
	old.Source.TopicID = idempotency.TopicID{7} // the id of a deleted topic of the same name
	foreign := l.LetterAbout(0, 9, []byte("x"))
	foreign.Source.Topic, foreign.Reason = "elsewhere", "syntax"
	l.WriteLetters(form, "orders-dlq", old, foreign)
	l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders-dlq", Value: []byte("no letter")})

	all := listed(t, l, 0, "--state", "all")
	want := []string{"0@9 foreign 1", "0@7 pending 1", "0@3 unresolved 2", "0@2 unknown 1", "0@1 void 1", "1@0 unknown 1"}
	if d := cmp.Diff(want, statesOf(all)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if all.Letters != 7 || all.Distinct != 6 || all.Unresolved != 3 || all.Void != 1 || all.Pending != 1 || all.Unknown != 2 || all.Foreign != 1 {
		t.Errorf("%+v", all)
	}
	if notes := strings.Join(all.Notes, "\n"); !strings.Contains(notes, "1 record of topic orders-dlq: no dead letter, first at orders-dlq:") ||
		!strings.Contains(notes, "1 dead letter: topic elsewhere is not in topics") || !strings.Contains(notes, "1 dead letter: the topic was created again") ||
		!strings.Contains(notes, "1 dead letter: the log of orders:1 ends at 0: the brokers lost the record") {
		t.Error(notes)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"0@9 foreign 1", "0@3 unresolved 2", "0@2 unknown 1", "1@0 unknown 1"}},
		{[]string{"orders"}, []string{"0@3 unresolved 2", "0@2 unknown 1", "1@0 unknown 1"}},
		{[]string{"orders-dlq"}, []string{"0@9 foreign 1", "0@3 unresolved 2", "0@2 unknown 1", "1@0 unknown 1"}},
		{[]string{"--code", "syntax"}, []string{"0@9 foreign 1"}},
		{[]string{"--limit", "1"}, []string{"0@9 foreign 1"}},
		{[]string{"--since", "2026-03-01T12:00:04Z"}, []string{"0@9 foreign 1"}},
		{[]string{"--since", "0s"}, nil},
	} {
		if d := cmp.Diff(c.want, statesOf(listed(t, l, 0, c.args...))); d != "" {
			t.Errorf("%v (-want +got):\n%s", c.args, d)
		}
	}
	out, _ := l.runs(0, "dlq", "list", "orders")
	if !strings.Contains(out, "orders:0@3  unresolved  type_mismatch  2026-03-01T12:00:03Z  2       orders-dlq:") ||
		!strings.Contains(out, "6 dead letters of 5 records: 3 unresolved (2 of them unknown), 1 void, 1 pending\n") || strings.Contains(out, "\n  x") {
		t.Error(out)
	}
	for _, c := range []struct{ args, want string }{
		{"list nothing", "topic nothing is not in topics"},
		{"list users", "bad_records: hold, so it has no dead letters"},
		{"list --since yesterday", "--since: \"yesterday\": write a duration back"},
		{"list --limit -1", "--limit -1"},
	} {
		if _, errs := l.runs(2, strings.Fields("deadletters "+c.args)...); !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s", c.args, errs)
		}
	}
}

// TestDeadLettersList_TableWithoutCoordinates has a table without the columns by which the command finds rows. Its dead
// letters must be unknown, with a note that names the column.
func TestDeadLettersList_TableWithoutCoordinates(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter, metadata_columns: [topic, partition, offset, timestamp]}}`)
	l.Create("orders", 1)
	l.Create("orders-dlq", 1)
	l.Produce("orders", 3, 0)
	l.runs(0, "run", "--until-current")
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 1, []byte("x")))
	other := l.LetterAbout(0, 1, nil).Source.Partition
	other.TopicID = idempotency.TopicID{3} // the id of an earlier topic of the same name
	l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":9}}`, other.AppID("p")))
	if of := listed(t, l, 0, "orders"); len(of.Listed) != 1 || of.Listed[0].State != admin.LetterUnknown || !strings.Contains(of.Listed[0].Why, "the topic was created again") {
		t.Errorf("%+v", of.Listed)
	}
	l.Alter("orders", "_kafka_offset", "_moved_offset")
	list := listed(t, l, 0, "orders")
	if d := cmp.Diff([]string{"0@1 unknown 1"}, statesOf(list)); d != "" || !strings.Contains(strings.Join(list.Notes, "\n"), "_kafka_offset") {
		t.Errorf("%s\n%v", d, list.Notes)
	}
}

func TestDeadLettersShow(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter}}`)
	l.Create("orders", 1)
	l.Create("orders-dlq", 1)
	value := []byte("a\x00\xffb")
	large := make([]byte, 2<<20)
	for i := range large {
		large[i] = byte(i * 7)
	}
	l.WriteLetters(deadletter.Form{Pipeline: "p"}, "orders-dlq", l.LetterAbout(0, 4, []byte("older")), l.LetterAbout(0, 4, value), l.LetterAbout(0, 5, large), l.LetterAbout(0, 6, nil))
	for _, at := range []string{"orders:0@4", "orders-0@4", "orders-dlq:0@1", "orders-dlq-0@1"} {
		out, errs := l.runs(0, "deadletters", "show", at)
		var doc map[string]any
		if err := json.Unmarshal([]byte(out), &doc); err != nil || doc["original_topic"] != "orders" || doc["original_offset"] != 4.0 || doc["dlq_version"] != "1.0" ||
			doc["original_value_encoding"] != "base64" || errs != "" {
			t.Errorf("%v: %v\n%s%s", at, err, out, errs)
		}
		if out, _ := l.runs(0, "deadletters", "show", "--value", at); out != string(value) {
			t.Errorf("%v: the value is %q", at, out)
		}
	}
	if out, _ := l.runs(0, "deadletters", "show", "orders:0@5"); !strings.Contains(out, `"original_value_link"`) || len(out) > 10_000 {
		t.Error(out)
	}
	if out, _ := l.runs(0, "deadletters", "show", "orders:0@5", "--value"); out != string(large) {
		t.Errorf("%d bytes came back of %d", len(out), len(large))
	}
	if out, errs := l.runs(0, "deadletters", "show", "orders:0@6", "--value"); out != "" || errs != "the value is null\n" {
		t.Errorf("%q %q", out, errs)
	}
	again := l.LetterAbout(0, 5, []byte("of the new topic"))
	again.Source.TopicID, again.LastFailure = idempotency.TopicID{9}, again.LastFailure.Add(time.Hour)
	l.WriteLetters(deadletter.Form{}, "orders-dlq", again)
	if out, errs := l.runs(0, "deadletters", "show", "orders:0@5", "--value"); out != "of the new topic" || !strings.Contains(errs, "dead letters of 2 topics of this name") {
		t.Errorf("%.20q %s", out, errs)
	}
	link := l.LetterAbout(0, 5, nil).Source
	if out, errs := l.runs(0, "deadletters", "show", "orders:0@5", "--value", "--topic-id", link.TopicID.String()); out != string(large) || errs != "" {
		t.Errorf("%d bytes, %s", len(out), errs)
	}
	if err := l.Store.Delete(t.Context(), deadletter.LinkKey("p", link)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{1, "orders:0@99", "there is no dead letter for orders:0@99"},
		{1, "orders-dlq:0@99", "there is no dead letter for orders-dlq:0@99"},
		{1, "orders:0@5 --value --topic-id " + link.TopicID.String(), "not in the bucket any more"},
		{2, "orders:x@5", "no partition"},
		{2, "orders@5", "no partition"},
		{2, "orders:0@x", "not an offset"},
		{2, "orders:0", "is not a record: write TOPIC:PARTITION@OFFSET"},
		{2, "users:0@1", "not in topics"},
	} {
		if out, errs := l.runs(c.code, append([]string{"deadletters", "show"}, strings.Fields(c.args)...)...); out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %.100q %q", c.args, out, errs)
		}
	}
}
