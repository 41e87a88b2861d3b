package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/internal/laketest"
	"sluice/reliability/deadletter"
)

// watch returns the dead-letter watch of a new member. The test calls its polls.
func (l *lake) watch() *letterWatch {
	l.T.Helper()
	s, err := New(l.T.Context(), laketest.Load(l.T, l.Config), Options{}, l.Logger)
	if err != nil {
		l.T.Fatal(err)
	}
	w, end := newLetterWatch(l.T.Context(), s)
	l.T.Cleanup(func() { end(); s.Close() })
	return w
}

// TestLetterWatch_ReadingIsNoReasonToPause: the pause after a count follows the time that it spent on tables. The first
// count of a long dead-letter topic reads for a minute; the next count must not wait 20 minutes for that.
func TestLetterWatch_ReadingIsNoReasonToPause(t *testing.T) {
	t.Parallel()
	const slow = 200 * time.Millisecond
	l := newBadOrders(t, lettersAgain, 4)
	w := l.watch()
	find := w.find
	w.find = func(ctx context.Context, names ...string) (map[string]connector.Topic, map[string]error, error) {
		time.Sleep(slow)
		return find(ctx, names...)
	}
	began := time.Now()
	spent := w.poll(t.Context())
	if left := time.Since(began) - spent; left < slow {
		t.Errorf("the poll leaves %v out of the time that it spent; reading took at least %v", left, slow)
	}
}

// unresolved gathers the gauge as lines "topic class number".
func unresolved(t *testing.T, w *letterWatch) []string {
	t.Helper()
	return gathered(t, w, "sluice_unresolved_dead_letters")
}

// gathered returns the samples of a metric: the values of the labels in the order of their names, then the value.
func gathered(t *testing.T, c prometheus.Collector, name string) (all []string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			text := ""
			for i := len(m.GetLabel()) - 1; i >= 0; i-- {
				text += m.GetLabel()[i].GetValue() + " "
			}
			all = append(all, fmt.Sprintf("%s%v", text, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	slices.Sort(all)
	return all
}

// TestLetterWatch_EqualsList: after random changes of dead letters, positions, rows and members, each member's gauge
// equals the count of deadletters list, also that of a member that just started.
func TestLetterWatch_EqualsList(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			l := newLake(t, "topics: {orders: {dead_letters: {archive: none}}}\ndefaults: {schema: \"n int not null\", commit: {every: 100ms}, dead_letters: {hold_above: 100%}}")
			l.Create("orders", 2)
			end := []int64{0, 0}
			records := func() {
				var all []*kgo.Record
				for p := range int32(2) {
					for range 1 + random.IntN(8) {
						value := `{"n":1}`
						if random.IntN(3) == 0 {
							value = "bad"
						}
						all = append(all, &kgo.Record{Topic: "orders", Partition: p, Value: []byte(value)})
						end[p]++
					}
				}
				if err := l.Client.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				l.run()
			}
			l.Create("orders-dlq", 2)
			records()
			first, second := l.watch(), l.watch()
			check := func(step string) {
				t.Helper()
				of := l.listed()
				want := []string{fmt.Sprintf("orders poison %d", of.Unresolved)}
				watches := map[string]*letterWatch{"first": first, "new": l.watch()}
				if random.IntN(2) == 0 { // second polls only now and then
					watches["second"] = second
				}
				for name, w := range watches {
					w.poll(t.Context())
					if d := cmp.Diff(want, unresolved(t, w)); d != "" || w.report().Error != "" {
						t.Fatalf("after %s, %s member (-want +got):\n%s%s\n%+v", step, name, d, w.report().Error, of)
					}
				}
			}
			check("the first run")
			for range 8 {
				p := int32(random.IntN(2))
				switch step := random.IntN(5); step {
				case 0:
					records()
					check("records")
				case 1:
					var all []deadletter.Letter
					for range 1 + random.IntN(4) {
						all = append(all, l.LetterAbout(p, random.Int64N(end[p]+2), []byte("x")))
					}
					l.WriteLetters(deadletter.Form{Pipeline: "p"}, "orders-dlq", all...)
					check("letters")
				case 2, 3:
					to := random.Int64N(end[p] + 1)
					l.SetPosition("orders", p, to)
					if step == 3 { // a run moves the position forward again before the next poll
						l.run()
					}
					check(fmt.Sprintf("a position set to %d", to))
				case 4:
					ends, err := l.Admin.ListEndOffsets(t.Context(), "orders-dlq")
					if err != nil {
						t.Fatal(err)
					}
					o, _ := ends.Lookup("orders-dlq", p)
					to := kadm.Offsets{}
					to.Add(kadm.Offset{Topic: "orders-dlq", Partition: p, At: random.Int64N(o.Offset + 1)})
					if _, err := l.Admin.DeleteRecords(t.Context(), to); err != nil {
						t.Fatal(err)
					}
					check("retention")
				}
			}
		})
	}
}

// TestUnresolvedLettersOfOthers: only dead letters about this pipeline's topics count.
func TestUnresolvedLettersOfOthers(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter, dead_letters: {archive: none, topic: dead, class: financial}},
  users: {bad_records: dead_letter, dead_letters: {archive: none}}, plain: {bad_records: hold}}`)
	l.Create("orders", 1)
	l.Create("users", 1)
	l.Create("plain", 1)
	l.Create("dead", 1)
	w := l.watch()
	if got := unresolved(t, w); len(got) > 0 || w.report().Unresolved != nil {
		t.Errorf("before it was counted: %v", got)
	}
	w.poll(t.Context())
	want := []string{"orders poison 0", "users poison 0"}
	if d := cmp.Diff(want, unresolved(t, w)); d != "" {
		t.Errorf("before any letter (-want +got):\n%s", d)
	}
	if r := w.report(); r.Unresolved == nil || len(r.Unresolved) > 0 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	if d := cmp.Diff([]string{"orders financial 1", "users standard 1"}, reordered(gathered(t, w, "sluice_topic_info"))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	l.Produce("orders", 3, 0)
	l.run()
	l.SetPosition("orders", 0, 9)
	stands, other, foreign := l.LetterAbout(0, 5, nil), l.LetterAbout(0, 6, nil), l.LetterAbout(0, 7, nil)
	other.Class = classify.Transient
	foreign.Source.Topic = "elsewhere"
	cluster := l.LetterAbout(0, 8, nil)
	cluster.Source.Cluster = "another"
	old := l.LetterAbout(0, 4, nil)
	old.Source.TopicID = idempotency.TopicID{7}
	l.WriteLetters(deadletter.Form{}, "dead", l.LetterAbout(0, 1, nil), stands, stands, other, foreign, cluster, old)
	l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "dead", Value: []byte("no letter")})
	w.poll(t.Context())
	want = []string{"orders poison 3", "orders transient 1", "users poison 0"} // the dead letters about another cluster and another topic id count as well
	if d := cmp.Diff(want, unresolved(t, w)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	r := w.report()
	if len(r.Unresolved) != 2 || r.Unresolved[0].Count != 1 || r.Unresolved[1].Count != 3 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	if got := l.listed(); got.Unresolved != 4 || got.Unknown != 2 || got.Foreign != 1 {
		t.Errorf("list says %+v", got)
	}

	// The dead-letter topic is deleted and created again, so it has no dead letters now.
	if _, err := l.Admin.DeleteTopics(t.Context(), "dead"); err != nil {
		t.Fatal(err)
	}
	l.Create("dead", 2)
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 0", "users poison 0"}, unresolved(t, w)); d != "" {
		t.Errorf("created again (-want +got):\n%s", d)
	}
}

// reordered puts the topic before the class in samples that have the labels letters_class and topic.
func reordered(samples []string) (all []string) {
	for _, s := range samples {
		f := strings.Fields(s)
		if f[0] == "financial" || f[0] == "standard" {
			f[0], f[1] = f[1], f[0]
		}
		all = append(all, strings.Join(f, " "))
	}
	return all
}

// TestUnresolvedLettersThatCannotBeCounted: if the dead letters cannot be counted, the gauge keeps the last number, and
// the failure is logged. If they were never counted, there is no series.
func TestUnresolvedLettersThatCannotBeCounted(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter, dead_letters: {archive: none}}, users: {bad_records: dead_letter, dead_letters: {archive: none}}}`)
	for _, topic := range []string{"orders", "users", "orders-dlq"} {
		l.Create(topic, 1)
	}
	l.Produce("orders", 2, 0)
	l.run()
	l.SetPosition("orders", 0, 9)
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 5, nil))
	var log bytes.Buffer
	l.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w := l.watch()
	find := w.find
	denied := classify.Mark(errors.New("not authorized to describe"), classify.Fatal)
	w.find = func(ctx context.Context, names ...string) (map[string]connector.Topic, map[string]error, error) {
		found, refused, err := find(ctx, names...)
		delete(found, "orders-dlq")
		refused["orders-dlq"] = denied
		return found, refused, err
	}
	w.poll(t.Context())
	w.poll(t.Context())
	if d := cmp.Diff([]string{"users poison 0"}, unresolved(t, w)); d != "" || w.report().Error != "topic orders: not authorized to describe" {
		t.Errorf("denied: %s\n%+v", d, w.report())
	}
	if n := strings.Count(log.String(), "failed to count dead letters"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	if got := gathered(t, w, "sluice_unresolved_dead_letters_timestamp_seconds"); len(got) > 0 {
		t.Error(got)
	}
	refused := w.find
	w.find = find
	w.poll(t.Context())
	known := []string{"orders poison 1", "users poison 0"}
	if d := cmp.Diff(known, unresolved(t, w)); d != "" || w.report().Error != "" || !strings.Contains(log.String(), "counting dead letters works again") {
		t.Errorf("%s\n%+v\n%s", d, w.report(), log.String())
	}
	if got := gathered(t, w, "sluice_unresolved_dead_letters_timestamp_seconds"); len(got) != 1 {
		t.Error(got)
	}
	for what, fails := range map[string]func() (mend func()){
		"denied again": func() func() { w.find = refused; return func() { w.find = find } },
		"Kafka is down": func() func() {
			before := w.stands
			w.stands = func(string) error { return errors.New("the circuit breaker is open") }
			return func() { w.stands = before }
		},
		"the store is down": func() func() {
			before := w.stands
			w.stands = func(table string) error {
				if table == "" {
					return nil
				}
				return errors.New("the circuit breaker is open")
			}
			return func() { w.stands = before }
		},
	} {
		mend := fails()
		l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 5, nil))
		w.poll(t.Context())
		if d := cmp.Diff(known, unresolved(t, w)); d != "" || !strings.HasPrefix(w.report().Error, "topic orders: ") {
			t.Errorf("%s: %s\n%+v", what, d, w.report())
		}
		mend()
	}
	w.poll(t.Context())
	if d := cmp.Diff(known, unresolved(t, w)); d != "" || w.report().Error != "" {
		t.Errorf("%s\n%+v", d, w.report())
	}

	// A table without the needed columns cannot show which records have a row, so all dead letters count, and the
	// report says so.
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 1, nil)) // this record has a row
	l.Alter("orders", "_kafka_offset", "_moved_offset")
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 2", "users poison 0"}, unresolved(t, w)); d != "" || !strings.Contains(w.report().Error, "table orders cannot show") {
		t.Errorf("%s\n%+v", d, w.report())
	}
	l.Alter("orders", "_moved_offset", "_kafka_offset")
	w.poll(t.Context())
	if d := cmp.Diff(known, unresolved(t, w)); d != "" || w.report().Error != "" {
		t.Errorf("%s\n%+v", d, w.report())
	}
}

// TestLetterWatch_Report: a running connector reports the count and the rate of its dead letters.
func TestLetterWatch_Report(t *testing.T) {
	l := newLake(t, "topics: {orders: {dead_letters: {archive: none}}}\ndefaults: {schema: \"n int not null\", commit: {every: 100ms}}")
	l.Create("orders", 1)
	s := l.start()
	if s.Report().Letters != nil {
		t.Error("a member without a health server counts dead letters")
	}
	l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("bad")}, &kgo.Record{Topic: "orders", Value: []byte(`{"n":1}`)})
	l.Awaits("orders", map[string][]int64{"orders:0": {1}})
	w, end := newLetterWatch(t.Context(), s)
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() { defer close(ended); w.run(ctx) }()
	s.letters.Store(w)
	l.Await("the letter is counted", func() bool {
		r := s.Report().Letters
		return len(r.Unresolved) == 1
	})
	stop()
	<-ended
	end()
	body, err := json.Marshal(s.Report().Letters)
	if err != nil || string(body) != `{"unresolved":[{"topic":"orders","class":"poison","count":1}],"per_minute":0.2}` {
		t.Errorf("%v %s", err, body)
	}
}

// TestLetterWatch_Canceled: if ctx ends during a poll, the poll returns and the published numbers do not change.
func TestLetterWatch_Canceled(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter, dead_letters: {archive: none}}}`)
	l.Create("orders", 1)
	w := l.watch()
	ctx, cancel := context.WithCancel(t.Context())
	w.find = func(ctx context.Context, _ ...string) (map[string]connector.Topic, map[string]error, error) {
		cancel()
		<-ctx.Done()
		return nil, nil, context.Cause(ctx)
	}
	w.run(ctx)
	if w.report().Unresolved != nil || w.report().Error != "" {
		t.Errorf("%+v", w.report())
	}
}

// TestLetterWatch_ReadDenied: a member that may describe a dead-letter topic but not read it soon logs that, and still
// counts the dead letters of other topics.
func TestLetterWatch_ReadDenied(t *testing.T) {
	l := newLake(t, `topics: {orders: {bad_records: dead_letter, dead_letters: {archive: none}}, users: {bad_records: dead_letter, dead_letters: {archive: none}}}`)
	for _, topic := range []string{"orders", "users", "orders-dlq", "users-dlq"} {
		l.Create(topic, 1)
	}
	l.WriteLetters(deadletter.Form{}, "orders-dlq", l.LetterAbout(0, 5, nil))
	var refuses atomic.Bool
	refuses.Store(true)
	l.Broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		l.Broker.KeepControl()
		if !refuses.Load() {
			return nil, nil, false
		}
		fetch := req.(*kmsg.FetchRequest)
		resp := fetch.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range fetch.Topics {
			of := kmsg.NewFetchResponseTopic()
			of.Topic, of.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				refused := kmsg.NewFetchResponseTopicPartition()
				refused.Partition, refused.ErrorCode, refused.RecordBatches = p.Partition, kerr.TopicAuthorizationFailed.Code, []byte{}
				of.Partitions = append(of.Partitions, refused)
			}
			resp.Topics = append(resp.Topics, of)
		}
		return resp, nil, true
	})
	w := l.watch()
	w.poll(t.Context())
	if d := cmp.Diff([]string{"users poison 0"}, unresolved(t, w)); d != "" || !strings.Contains(w.report().Error, "topic orders: ") || strings.Contains(w.report().Error, "within") {
		t.Errorf("%s\n%+v", d, w.report())
	}
	refuses.Store(false)
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 1", "users poison 0"}, unresolved(t, w)); d != "" || w.report().Error != "" {
		t.Errorf("%s\n%+v", d, w.report())
	}
}

// TestUnresolvedLettersOfPatterns: dead letters about a topic that a pattern matches count from the creation of the
// topic on. Those about topics that Kafka does not have count, too, but for at most maxStrange topics. If a topic was
// created again, dead letters about the old one count even if a row has the same offset.
func TestUnresolvedLettersOfPatterns(t *testing.T) {
	l := newLake(t, `
topics: {sales: {pattern: 'sales\..+|orders', deny: [], bad_records: dead_letter, dead_letters: {topic: "dead", archive: none}}}
defaults: {schema: "n int not null", commit: {every: 100ms}, metadata_columns: [topic, partition, offset, timestamp]}`)
	l.Create("orders", 1)
	l.Create("dead", 1)
	w := l.watch()
	w.poll(t.Context())
	if d := cmp.Diff([]string{"orders poison 0"}, unresolved(t, w)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	l.Create("sales.eu", 1)
	l.Produce("orders", 3, 0)
	l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "sales.eu", Value: []byte("bad")})
	l.run()
	var forged []deadletter.Letter
	for i := range 2 * maxStrange {
		letter := l.LetterAbout(0, 1, nil)
		letter.Source.Topic = fmt.Sprintf("sales.of-nobody-%d", i)
		forged = append(forged, letter)
	}
	l.WriteLetters(deadletter.Form{}, "dead", append(forged, l.LetterAbout(0, 1, nil))...)
	w.poll(t.Context())
	want, gone := []string{"orders poison 0", "sales.eu poison 1"}, 0
	there := func(w *letterWatch) []string {
		all := unresolved(t, w)
		gone = len(all)
		all = slices.DeleteFunc(all, func(s string) bool {
			return strings.HasPrefix(s, "sales.of-nobody-") && strings.HasSuffix(s, " poison 1")
		})
		gone -= len(all)
		return all
	}
	if d := cmp.Diff(want, there(w)); d != "" || gone != maxStrange || !strings.Contains(w.report().Error, "dead letters about 100 topics that do not exist are not counted") {
		t.Errorf("(-want +got):\n%s%s", d, w.report().Error)
	}
	infos := slices.DeleteFunc(reordered(gathered(t, w, "sluice_topic_info")), func(s string) bool { return strings.HasPrefix(s, "sales.of-nobody-") })
	if d := cmp.Diff([]string{"orders standard 1", "sales.eu standard 1"}, infos); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	other := l.LetterAbout(0, 1, nil).Source.Partition
	other.TopicID = idempotency.TopicID{3} // the id of an earlier topic of this name
	l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":9}}`, other.AppID("p")))
	for name, w := range map[string]*letterWatch{"followed": w, "new": l.watch()} {
		w.poll(t.Context())
		if d := cmp.Diff([]string{"orders poison 1", "sales.eu poison 1"}, there(w)); d != "" || gone != maxStrange {
			t.Errorf("%s, created again (-want +got):\n%s", name, d)
		}
	}
}
