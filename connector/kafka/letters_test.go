package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// lettersConformance lists tests of a writer of dead letters that must pass on every cluster. TestLetters runs them on
// the in-process cluster in virtual time, TestLettersLab on a real one.
var lettersConformance = []struct {
	name string
	run  func(*testing.T, *cluster)
}{
	{"CreatedOnRequest", testLettersCreatedOnRequest},
	{"Missing", testLettersMissing},
	{"Compacted", testLettersCompacted},
	{"FailedFirst", testLettersFailedFirst},
	{"LargeForTheTopic", testLettersLargeForTheTopic},
	{"LimitLowered", testLettersLimitLowered},
	{"Order", testLettersOrder},
	{"OldRecords", testLettersOldRecords},
	{"JSON", testLettersJSON},
}

func TestLetters(t *testing.T) {
	for _, tt := range lettersConformance {
		t.Run(tt.name, func(t *testing.T) { inBubble(t, tt.run) })
	}
}

func (w *cluster) createWith(topic string, partitions int32, configs ...string) {
	w.t.Helper()
	all := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		all[configs[i]] = &configs[i+1]
	}
	if _, err := w.admin.CreateTopic(w.t.Context(), partitions, -1, all, w.prefix+topic); err != nil {
		w.t.Fatal(err)
	}
}

// shelf is a bucket in memory for records that are too large for their dead-letter topic.
type shelf struct {
	mu      sync.Mutex
	objects map[string][]byte
	err     error
}

func (s *shelf) Put(_ context.Context, key string, object []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.objects[key] = bytes.Clone(object)
	}
	return s.err
}

// desk is a writer of dead letters in a cluster. It writes dead letters of a topic to the topic "<topic>-dlq".
type desk struct {
	*DeadLetters
	w     *cluster
	shelf *shelf
	guard *reliability.Guard
	logs  *logBuffer
	now   int64
}

func (w *cluster) desk(change ...func(*LetterTopic)) *desk {
	w.t.Helper()
	return w.deskWith(func(*Config) {}, change...)
}

func (w *cluster) deskWith(configure func(*Config), change ...func(*LetterTopic)) *desk {
	w.t.Helper()
	cfg := Config{Brokers: w.addrs, Dial: w.dial}
	configure(&cfg)
	client, err := NewClient(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	d := &desk{w: w, shelf: &shelf{objects: map[string][]byte{}}, logs: &logBuffer{}, now: time.Now().UnixMilli()}
	logger := slog.New(slog.NewTextHandler(d.logs, nil))
	d.guard = reliability.NewGuard("dead_letters", reliability.Config{
		Backoff: reliability.Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Jitter: 0.25}, Failures: 5, OpenFor: 2 * time.Second, Successes: 3,
	}, logger, nil)
	d.DeadLetters = NewDeadLetters(client, DeadLettersConfig{
		Pipeline: "p", Objects: d.shelf, Guard: d.guard,
		Topic: func(source string) (LetterTopic, error) {
			t := LetterTopic{Name: source + "-dlq", Create: true, Retention: 30 * 24 * time.Hour}
			for _, fn := range change {
				fn(&t)
			}
			return t, nil
		},
	}, logger, prometheus.NewRegistry())
	return d
}

// letter returns a dead letter about the record at an offset of a source partition.
func (d *desk) letter(topic string, partition int32, offset int64, value string) deadletter.Letter {
	at := time.UnixMilli(d.now).UTC()
	return deadletter.Letter{
		Source: idempotency.Coordinates{
			Partition: connector.Partition{Cluster: "c", Topic: d.w.prefix + topic, TopicID: idempotency.TopicID{7}, ID: partition}, Offset: offset,
		},
		Timestamp: d.now - 1000 + offset, Key: []byte{0xff, byte(offset)}, Value: []byte(value),
		Headers: []deadletter.Header{{Key: "h", Value: []byte("x")}, {Key: "null"}},
		Class:   classify.Poison, Reason: "syntax", Detail: "not JSON", Trace: "decode", FirstFailure: at, LastFailure: at, Member: "m",
	}
}

func (d *desk) write(letters ...deadletter.Letter) {
	d.w.t.Helper()
	if err := d.Write(d.w.t.Context(), letters); err != nil {
		d.w.t.Fatalf("%v\n%s", err, d.logs)
	}
}

// holds writes dead letters, and fails the test unless Write returns a hold whose detail contains all words.
func (d *desk) holds(letters []deadletter.Letter, words ...string) {
	d.w.t.Helper()
	err := d.Write(d.w.t.Context(), letters)
	h, ok := errors.AsType[*hold.Error](err)
	if !ok || h.Reason != hold.DeadLettersUnavailable || classify.Of(err) != classify.Fatal {
		d.w.t.Fatalf("no hold: %v", err)
	}
	for _, word := range words {
		if !strings.Contains(h.Detail, word) {
			d.w.t.Errorf("%q is not in: %s", word, h.Detail)
		}
	}
}

// records reads n records of a topic and returns them by partition.
func (w *cluster) records(topic string, n int) map[int32][]deadletter.Record {
	w.t.Helper()
	w.until(fmt.Sprintf("%d records in %s", n, topic), func() bool {
		ends, err := w.admin.ListEndOffsets(w.t.Context(), w.prefix+topic)
		if err != nil {
			return false
		}
		sum := int64(0)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		if sum > int64(n) {
			w.t.Fatalf("%s has %d records, want %d", topic, sum, n)
		}
		return sum == int64(n)
	})
	all := map[int32][]deadletter.Record{}
	cl := w.franz(kgo.ConsumeTopics(w.prefix+topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for got := 0; got < n; {
		fetches := cl.PollFetches(w.t.Context())
		if err := fetches.Err(); err != nil {
			w.t.Fatal(err)
		}
		fetches.EachRecord(func(k *kgo.Record) {
			r := deadletter.Record{Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
			for _, h := range k.Headers {
				r.Headers = append(r.Headers, deadletter.Header{Key: h.Key, Value: h.Value})
			}
			all[k.Partition] = append(all[k.Partition], r)
			got++
		})
	}
	return all
}

// letters reads n dead letters in the order of partitions and offsets.
func (w *cluster) letters(topic string, n int) (all []deadletter.Letter) {
	w.t.Helper()
	records := w.records(topic, n)
	for _, p := range slices.Sorted(maps.Keys(records)) {
		for _, r := range records[p] {
			l, err := deadletter.Parse(r)
			if err != nil {
				w.t.Fatal(err)
			}
			all = append(all, l)
		}
	}
	return all
}

func (w *cluster) same(want, got []deadletter.Letter) {
	w.t.Helper()
	got = slices.Clone(got)
	for i := range got {
		if at := got[i].Written; at.Before(got[i].LastFailure) || at.After(time.Now()) {
			w.t.Errorf("letter %d was written %v, failed %v", i, at, got[i].LastFailure)
		}
		got[i].Written = time.Time{}
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("other letters (-want +got):\n%s", d)
	}
}

// testLettersCreatedOnRequest: if dead_letters.create is true, the first dead letter creates its topic, with
// cleanup.policy=delete, the configured retention, as many partitions as the source topic, and a size limit that admits
// the largest record of the source. The dead letter has the key, value, headers and timestamp of its record.
func testLettersCreatedOnRequest(t *testing.T, w *cluster) {
	w.createWith("s", 3, "max.message.bytes", "2000000")
	w.createWith("wide", 20)
	d := w.desk()
	w.until("the brokers know the topics", func() bool {
		for _, name := range []string{"s", "wide"} {
			if _, err := d.client.Topic(t.Context(), w.prefix+name); err != nil {
				return false
			}
		}
		return true
	})
	l := d.letter("s", 2, 17, "not json")
	null := d.letter("s", 0, 18, "")
	null.Key, null.Value, null.Headers = nil, nil, nil
	d.write(l, null, d.letter("wide", 19, 1, "v"))
	w.same([]deadletter.Letter{null, l}, w.letters("s-dlq", 2))
	records := w.records("s-dlq", 2)
	if r := records[2][0]; !bytes.Equal(r.Key, l.Key) || !bytes.Equal(r.Value, l.Value) || r.Timestamp != l.Timestamp ||
		!cmp.Equal(r.Headers[:2], l.Headers) {
		t.Errorf("the record is another one: %+v", r)
	}
	if r := records[0][0]; r.Key != nil || r.Value != nil {
		t.Errorf("null became %v, %v", r.Key, r.Value)
	}
	s, err := d.client.TopicSettings(t.Context(), w.prefix+"s-dlq")
	if want := (TopicSettings{Delete: true, RetentionTime: 30 * 24 * time.Hour, RetentionBytes: -1, MaxBatch: 2_000_000 + 64<<10}); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	for name, want := range map[string]int{"s-dlq": 3, "wide-dlq": 16} {
		if topic, err := d.client.Topic(t.Context(), w.prefix+name); err != nil || len(topic.Partitions) != want {
			t.Errorf("%s: %v, %v", name, topic.Partitions, err)
		}
	}
	forever := w.desk(func(t *LetterTopic) { t.Name, t.Retention = strings.Replace(t.Name, "-dlq", ".dlq", 1), -1 })
	forever.write(l)
	if s, err := d.client.TopicSettings(t.Context(), w.prefix+"s.dlq"); err != nil || s.RetentionTime != -1 {
		t.Errorf("for ever: %+v, %v", s, err)
	}
}

// testLettersMissing: with dead_letters.create false, a missing dead-letter topic is a hold until the topic exists. If
// the retention of the topic is shorter than the configured one, this is logged.
func testLettersMissing(t *testing.T, w *cluster) {
	w.create("s", 1)
	d := w.desk(func(t *LetterTopic) { t.Create = false })
	l := []deadletter.Letter{d.letter("s", 0, 1, "v")}
	d.holds(l, w.prefix+"s-dlq does not exist", "create it", "dead_letters.create: true")
	if w.exists("s-dlq") {
		t.Error("it was created")
	}
	w.createWith("s-dlq", 1, "retention.ms", "3600000")
	for d.Write(t.Context(), l) != nil { // brokers learn of a new topic one after the other, so early writes may fail
		if err := reliability.Wait(t.Context(), 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	w.same(l, w.letters("s-dlq", 1))
	if n := d.logs.count("keeps dead letters shorter than dead_letters.retention"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, d.logs)
	}
}

func testLettersCompacted(t *testing.T, w *cluster) {
	w.create("s", 1)
	w.createWith("s-dlq", 1, "cleanup.policy", "compact,delete")
	d := w.desk()
	d.holds([]deadletter.Letter{d.letter("s", 0, 1, "v")}, "cleanup.policy=compact", "set cleanup.policy=delete")
	w.records("s-dlq", 0)
}

// testLettersFailedFirst: a record too large for the dead-letter topic goes into the bucket; its dead letter and the
// object together contain the whole record. If the write to one topic fails, a retry does not write the dead letters of
// the other topics again.
func testLettersFailedFirst(t *testing.T, w *cluster) {
	for _, source := range []string{"a", "b", "c"} {
		w.create(source, 1)
	}
	w.createWith("b-dlq", 1, "cleanup.policy", "compact")
	d := w.desk()
	letters := []deadletter.Letter{d.letter("a", 0, 1, "one"), d.letter("b", 0, 2, "two"), d.letter("c", 0, 3, "three")}
	for range 3 {
		d.holds(letters, "b-dlq")
	}
	w.same(letters[:1], w.letters("a-dlq", 1))
	value := "delete"
	if _, err := w.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &value}}, w.prefix+"b-dlq"); err != nil {
		t.Fatal(err)
	}
	for d.Write(t.Context(), letters) != nil { // brokers learn of a new topic one after the other, so early writes may fail
		if err := reliability.Wait(t.Context(), 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	w.same(letters[1:2], w.letters("b-dlq", 1))
	w.same(letters[2:], w.letters("c-dlq", 1))
	w.letters("a-dlq", 2)
}

func testLettersLargeForTheTopic(t *testing.T, w *cluster) {
	w.create("s", 1)
	w.createWith("s-dlq", 1, "max.message.bytes", "3000")
	w.createWith("tiny", 1)
	w.createWith("tiny-dlq", 1, "max.message.bytes", "700")
	d := w.desk()
	small, large := d.letter("s", 0, 1, "small"), d.letter("s", 0, 2, strings.Repeat("x", 5000))
	tight := d.letter("s", 0, 3, strings.Repeat("y", 1000))
	tight.Trace = strings.Repeat("t", 500)
	tight.Detail = strings.Repeat("d", 900)
	d.write(small, large, tight, d.letter("s", 0, 4, "last"))
	got := w.letters("s-dlq", 4)
	if got[1].Value != nil || !bytes.Equal(got[1].Key, large.Key) || len(d.shelf.objects) != 1 {
		t.Errorf("the large one is %+v, with %d objects", got[1], len(d.shelf.objects))
	}
	whole, err := deadletter.Whole(got[1], d.shelf.objects[got[1].Link.Key])
	if err != nil {
		t.Fatal(err)
	}
	w.same([]deadletter.Letter{small, large}, []deadletter.Letter{got[0], whole})
	if string(got[2].Value) != string(tight.Value) || len(got[2].Trace) >= 500 || got[2].Detail == "" {
		t.Errorf("the texts should have given way: %+v", got[2])
	}
	tiny := []deadletter.Letter{d.letter("tiny", 0, 1, "v")}
	d.holds(tiny, "tiny-dlq", "at most 700 bytes", "raise its max.message.bytes")
	d.shelf.err = hold.New(hold.StoreDenied, "no", nil)
	d.holds([]deadletter.Letter{large}, "failed to put it into the bucket", "store_denied")
	w.records("s-dlq", 4)
}

// testLettersLimitLowered: if the size limit of the dead-letter topic is lowered between two writes, the writer sends
// smaller batches.
func testLettersLimitLowered(t *testing.T, w *cluster) {
	w.create("s", 1)
	d := w.desk()
	var want []deadletter.Letter
	for i := range int64(20) {
		want = append(want, d.letter("s", 0, i, strings.Repeat("v", 3000)))
	}
	d.write(want[0])
	value := "10000"
	if _, err := w.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, w.prefix+"s-dlq"); err != nil {
		t.Fatal(err)
	}
	w.until("the lower limit", func() bool {
		s, err := d.client.TopicSettings(t.Context(), w.prefix+"s-dlq")
		return err == nil && s.MaxBatch == 10_000
	})
	d.write(want[1:]...)
	w.same(want, w.letters("s-dlq", 20))
	if w.fake != nil && d.logs.count("takes smaller batches than its settings say") == 0 {
		t.Error("no batch was too large")
	}
}

// testLettersOrder: dead letters about one source partition keep the order of their offsets, however many partitions
// and batches there are.
func testLettersOrder(t *testing.T, w *cluster) {
	w.createWith("s-dlq", 3)
	d := w.desk()
	var all []deadletter.Letter
	want := map[int32][]int64{}
	for i := range int64(3000) {
		p := int32(i % 7)
		all = append(all, d.letter("s", p, i, strings.Repeat("v", int(i%5)*1000)))
		want[p] = append(want[p], i)
	}
	d.write(all...)
	got, at := map[int32][]int64{}, map[int32]int32{}
	for in, records := range w.records("s-dlq", len(all)) {
		for _, r := range records {
			l, err := deadletter.Parse(r)
			if err != nil {
				t.Fatal(err)
			}
			p := l.Source.ID
			if before, ok := at[p]; ok && before != in {
				t.Fatalf("letters of partition %d are in %d and %d", p, before, in)
			}
			at[p], got[p] = in, append(got[p], l.Source.Offset)
		}
	}
	if !cmp.Equal(want, got) {
		t.Error("the order is another one")
	}
}

// testLettersOldRecords: Kafka deletes records by their timestamps, so a dead letter with the timestamp of an old
// record would be deleted at once. It gets a new timestamp, and a header keeps the timestamp of the record.
func testLettersOldRecords(t *testing.T, w *cluster) {
	w.create("s", 1)
	d := w.desk()
	old, young := d.letter("s", 0, 1, "old"), d.letter("s", 0, 2, "young")
	old.Timestamp -= (16 * 24 * time.Hour).Milliseconds()
	young.Timestamp -= (14 * 24 * time.Hour).Milliseconds()
	began := time.Now().UnixMilli()
	d.write(old, young)
	records := w.records("s-dlq", 2)[0]
	if records[0].Timestamp < began || records[1].Timestamp != young.Timestamp {
		t.Errorf("stamped %d and %d, the records %d and %d", records[0].Timestamp, records[1].Timestamp, old.Timestamp, young.Timestamp)
	}
	w.same([]deadletter.Letter{old, young}, w.letters("s-dlq", 2))
}

func testLettersJSON(t *testing.T, w *cluster) {
	w.create("s", 1)
	d := w.desk(func(t *LetterTopic) { t.Envelope = deadletter.EnvelopeJSON })
	l := d.letter("s", 0, 1, "not json")
	d.write(l)
	r := w.records("s-dlq", 1)[0][0]
	if !bytes.Equal(r.Key, l.Key) || !bytes.Contains(r.Value, []byte(`"original_value":"not json"`)) {
		t.Errorf("key %x, value %s", r.Key, r.Value)
	}
	w.same([]deadletter.Letter{l}, w.letters("s-dlq", 1))
}
