package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/reliability/deadletter"
)

// lettersIn reads n dead letters of a dead-letter topic.
func (l *lake) lettersIn(topic string, n int) (letters []deadletter.Letter) {
	l.T.Helper()
	l.Client.AddConsumeTopics(topic)
	defer l.Client.PurgeTopicsFromConsuming(topic)
	for len(letters) < n {
		fetches := l.Client.PollFetches(l.T.Context())
		if err := fetches.Err(); err != nil {
			l.T.Fatal(err)
		}
		fetches.EachRecord(func(k *kgo.Record) {
			r := deadletter.Record{Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
			for _, h := range k.Headers {
				r.Headers = append(r.Headers, deadletter.Header{Key: h.Key, Value: h.Value})
			}
			letter, err := deadletter.Parse(r)
			if err != nil {
				l.T.Fatal(err)
			}
			letters = append(letters, letter)
		})
	}
	return letters
}

// TestBadRecords_DeadLetters expects bad records to become dead letters as configured for each topic and pattern. A
// record that is too large for the dead-letter topic must be in the bucket.
func TestBadRecords_DeadLetters(t *testing.T) {
	t.Parallel()
	l := newLake(t, `defaults: {schema: "n int not null", commit: {every: 100ms}, dead_letters: {archive: none}}
topics:
  orders: {}
  users: {dead_letters: {topic: "dead.{topic}", envelope: json, class: financial}}
  sales: {pattern: 'sales\..+', deny: [], dead_letters: {topic: "{topic}.dlq", retention: 1d}}
`)
	limit := "3000"
	if _, err := l.Admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, "orders-dlq"); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{
		"orders": append([]byte{0xff}, strings.Repeat("no JSON", 1000)...), "users": {0xfe, 0}, "sales.eu": []byte(`{"n":"x"}`),
	}
	for topic, value := range want {
		l.Create(topic, 2)
		l.Produce(topic, 2, 0, 1)
		bad := &kgo.Record{Topic: topic, Partition: 1, Key: []byte("key"), Value: value, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
		if err := l.Client.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
			t.Fatal(err)
		}
		l.Produce(topic, 1, 1)
	}
	l.runs(0, "run", "--until-current")
	for topic, dead := range map[string]string{"orders": "orders-dlq", "users": "dead.users", "sales.eu": "sales.eu.dlq"} {
		l.Has(topic, map[string][]int64{topic + ":0": {0, 1}, topic + ":1": {0, 1, 3}})
		letter := l.lettersIn(dead, 1)[0]
		if letter.Source.String() != topic+":1@2" || letter.Source.Cluster == "" || string(letter.Key) != "key" || letter.Member == "" ||
			!cmp.Equal(letter.Headers, []deadletter.Header{{Key: "h", Value: []byte("v")}}) {
			t.Errorf("%s: %+v", topic, letter)
		}
		if topic == "orders" {
			if !strings.HasPrefix(letter.Link.Key, "_sluice/p/letters/") {
				t.Fatalf("no link: %+v", letter.Link)
			}
			object, err := os.ReadFile(filepath.Join(l.Dir, "lake", filepath.FromSlash(letter.Link.Key)))
			if err != nil {
				t.Fatal(err)
			}
			if letter, err = deadletter.Whole(letter, object); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(letter.Value, want[topic]) {
			t.Errorf("%s: another value: %x", topic, letter.Value)
		}
	}
	configs, err := l.Admin.DescribeTopicConfigs(t.Context(), "dead.users", "sales.eu.dlq")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs {
		for _, entry := range c.Configs {
			if kept := map[string]string{"dead.users": "-1", "sales.eu.dlq": "86400000"}[c.Name]; entry.Key == "retention.ms" && *entry.Value != kept {
				t.Errorf("%s keeps letters for %s, want %s", c.Name, *entry.Value, kept)
			}
		}
	}
	l.runs(0, "verify", "--kafka")
}
