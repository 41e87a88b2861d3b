package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/decode"
)

// lettersConfig loads a configuration with these topics. Bad records become dead letters unless a topic's entry says
// otherwise.
func lettersConfig(t *testing.T, sections string) *Config {
	t.Helper()
	return mustLoad(t, write(t, "pipeline: p\nkafka: {brokers: [k:9092]}\nstorage: {url: file:///data}\n"+sections), nil)
}

// TestLetterTopics: a topic without an entry feeds a letter table if it is the dead-letter topic of a configured topic.
func TestLetterTopics(t *testing.T) {
	c := lettersConfig(t, `
defaults: {schema: a int, bad_records: dead_letter, commit: {every: 5s}}
topics:
  orders: {}
  calm: {bad_records: hold}
  gone: {dead_letters: {archive: none}}
  paid: {dead_letters: {topic: all.dead, archive: "archive/{topic}"}}
  sent: {dead_letters: {topic: all.dead, archive: "archive/{topic}"}}
  mine: {}
  mine-dlq: {format: dead_letter, table: my_letters, commit: {every: 7s}}
  sales: {pattern: "sales\\..+", deny: [sales.test]}
  dead: {pattern: "x.*", deny: [], dead_letters: {topic: "x.dead.{topic}", archive: "x/{topic}"}}
`)
	if d := cmp.Diff([]string{"all.dead", "orders-dlq"}, c.letterTopics()); d != "" {
		t.Errorf("named letter topics (-want +got):\n%s", d)
	}
	for _, want := range []struct {
		topic, table, every string
		letters, later      bool
	}{
		{"orders-dlq", "orders_letters", "5s", true, true},
		{"all.dead", "archive/all.dead", "5s", true, true},
		{"mine-dlq", "my_letters", "7s", true, false},
		{"sales.eu-dlq", "sales.eu_letters", "5s", true, true},
		{"x.dead.xa", "x/xa", "5s", true, true},
		{"sales.eu_lettersx", "sales.eu_lettersx", "5s", false, false},
		{"sales.eu", "sales.eu", "5s", false, false},
		{"calm-dlq", "", "", false, false},
		{"gone-dlq", "", "", false, false},
		{"sales.test-dlq", "", "", false, false}, // the pattern that would match denies sales.test
		{"orders-dlq-dlq", "", "", false, false}, // this is the dead-letter topic of a dead-letter topic, which does not exist
		{"mine-dlq-dlq", "", "", false, false},
		{"x.dead.a", "x.dead.a", "5s", false, false}, // no pattern matches a
	} {
		topic, meant, err := c.Route(want.topic)
		if err != nil || meant != (want.table != "") || topic.Table != want.table {
			t.Errorf("%s feeds %q (%v), want %q: %v", want.topic, topic.Table, meant, want.table, err)
			continue
		}
		if !meant {
			continue
		}
		if topic.IsLetters() != want.letters || c.ComesLater(want.topic) != want.later || FormatDuration(topic.Commit.Every) != want.every {
			t.Errorf("%s: letters %v, comes later %v, commits every %v", want.topic, topic.IsLetters(), c.ComesLater(want.topic), topic.Commit.Every)
		}
		if want.letters && (topic.BadRecords != "hold" || topic.Schema != decode.DeadLetterDDL || topic.Start != "earliest" || topic.HealthRecords.Drop ||
			topic.Tombstones != "skip" || topic.Keys != "any") {
			t.Errorf("%s: %+v", want.topic, topic)
		}
		if _, ok := topic.Decoder(nil).(decode.DeadLetters); ok != want.letters {
			t.Errorf("%s is decoded by %T", want.topic, topic.Decoder(nil))
		}
	}
}

// TestLetterTable_TopicWithItsName: if a topic that matches a pattern has the name of a letter table, the topic is
// refused. The letter table stays with the dead letters.
func TestLetterTable_TopicWithItsName(t *testing.T) {
	c := lettersConfig(t, `
defaults: {schema: a int, bad_records: dead_letter}
topics:
  orders: {}
  all: {pattern: ".+", deny: []}
`)
	for _, topic := range []string{"orders_letters", "users_letters"} {
		if _, meant, err := c.Route(topic); !meant || err == nil || !strings.Contains(err.Error(), "deny the topic in its pattern") {
			t.Errorf("%s: %v %v", topic, meant, err)
		}
	}
	for topic, table := range map[string]string{"orders-dlq": "orders_letters", "users-dlq": "users_letters", "users": "users", "_letters": "_letters"} {
		if got, meant, err := c.Route(topic); !meant || err != nil || got.Table != table {
			t.Errorf("%s feeds %q (%v): %v", topic, got.Table, meant, err)
		}
	}
}

func TestLetterTablesInTheFile(t *testing.T) {
	for name, c := range map[string]struct{ sections, want string }{
		"its own schema": {
			"topics: {orders-dlq: {format: dead_letter, schema: a int}}",
			"topics.orders-dlq.schema: does not go with format: dead_letter: a letter table has columns of its own: remove it",
		},
		"what letters have not": {
			"topics: {orders-dlq: {format: dead_letter, tombstones: skip, health_records: {drop: true}}}",
			"topics.orders-dlq.health_records.drop: does not go with format: dead_letter: letters are taken as they are: remove it",
		},
		"letters of letters": {
			"topics: {orders-dlq: {format: dead_letter, bad_records: dead_letter}}",
			"topics.orders-dlq.bad_records: does not go with format: dead_letter: there is no letter of a letter: write hold, or remove it",
		},
		"the table of another": {
			"defaults: {schema: a int, bad_records: dead_letter}\ntopics: {orders: {dead_letters: {archive: users}}, users: {bad_records: hold}}",
			`the letter table "users" of topics.orders may be that of topics.users, too: write another dead_letters.archive, or another table`,
		},
		"its own table": {
			"defaults: {schema: a int, bad_records: dead_letter}\ntopics: {orders: {dead_letters: {archive: \"{topic}\"}}}",
			`the letter table "orders" of topics.orders may be that of topics.orders, too`,
		},
		"the tables of a pattern": {
			"defaults: {schema: a int, bad_records: dead_letter}\ntopics: {sales: {pattern: s.+, deny: [], dead_letters: {archive: \"{topic}\"}}}",
			`the letter table "{topic}" of topics.sales may be that of topics.sales, too`,
		},
		"inside another": {
			"defaults: {schema: a int, bad_records: dead_letter}\ntopics: {orders: {dead_letters: {archive: orders/letters}}}",
			"lie one inside the other: give each its own folder",
		},
		"two tables": {
			"defaults: {schema: a int, bad_records: dead_letter, dead_letters: {topic: all-dlq}}\ntopics: {orders: {}, users: {dead_letters: {archive: other}}}",
			`the letters of topics.orders and topics.users go to the topic all-dlq, which feeds one table, not "all-dlq_letters" and "other": write the same for both`,
		},
		"a bad name": {
			"defaults: {schema: a int, bad_records: dead_letter}\ntopics: {orders: {dead_letters: {archive: \"{tpic}\"}}}",
			`"{tpic}" has an unknown placeholder`,
		},
		"no table": {
			"defaults: {schema: a int, bad_records: dead_letter}\ntopics: {orders: {dead_letters: {archive: none, retention: 7d}}}",
			"warning: topics.orders.dead_letters.archive: Kafka deletes the dead letters 7d after they were written",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "pipeline: p\nkafka: {brokers: [k:9092]}\nstorage: {url: file:///data}\n"+c.sections)
			_, problems := Load(path, noEnv)
			var all []string
			for _, p := range problems {
				all = append(all, p.String())
			}
			if text := strings.Join(all, "\n"); !strings.Contains(text, c.want) {
				t.Errorf("%s\nwant %s", text, c.want)
			}
		})
	}
}

// TestLettersInPrint: the output of config print can be loaded again, and notes which topic feeds which letter table.
func TestLettersInPrint(t *testing.T) {
	c := lettersConfig(t, `
defaults: {schema: a int, start: latest}
topics: {orders: {}, users: {}, users-dlq: {format: dead_letter, table: t}, sales: {pattern: "s.+", deny: []}}
`)
	var b strings.Builder
	if err := c.PrintYAML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"archive: '{topic}_letters' # default: topic orders-dlq feeds table orders_letters",
		"archive: '{topic}_letters' # default, users-dlq has an entry of its own",
		"archive: '{topic}_letters' # default: topic {topic}-dlq feeds table {topic}_letters",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	again := mustLoad(t, write(t, b.String()), nil)
	for _, topic := range []string{"orders-dlq", "users-dlq", "s1-dlq"} {
		was, _, _ := c.Route(topic)
		is, meant, err := again.Route(topic)
		if d := cmp.Diff(was, is); d != "" || !meant || err != nil {
			t.Errorf("%s: %v %v %s", topic, meant, err, d)
		}
	}
}

// TestFills: fills reports whether a text is a template filled with a topic, and unfill returns that topic.
func TestFills(t *testing.T) {
	for _, c := range []struct{ template, topic, text string }{
		{"{topic}-dlq", "a", "a-dlq"},
		{"dead.{topic}.x", "a.b", "dead.a.b.x"},
		{"{topic}.{topic}", "ab", "ab.ab"},
	} {
		if !fills(c.template, c.topic, c.text) || unfill(c.template, c.text) != c.topic {
			t.Errorf("%s of %s: %v, back %q", c.template, c.topic, fills(c.template, c.topic, c.text), unfill(c.template, c.text))
		}
		if fills(c.template, c.topic+"x", c.text) || fills(c.template, c.topic, c.text+"x") {
			t.Errorf("%s takes anything", c.template)
		}
	}
	for _, c := range []struct{ template, text string }{{"{topic}-dlq", "-dlq"}, {"{topic}-dlq", "a"}, {"{topic}.{topic}", "ab.cd"}, {"{topic}-dlq", ""}} {
		if got := unfill(c.template, c.text); got != "" {
			t.Errorf("%s of %s: %q", c.template, c.text, got)
		}
	}
}
