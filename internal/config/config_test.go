package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

// withoutOrigins makes cmp ignore the unexported fields of a configuration, in which it keeps where its values come
// from.
var withoutOrigins = cmpopts.IgnoreUnexported(Config{}, Pattern{}, Budget{})

// TestShippedFile: the values in config.yaml equal the defaults, and the file has every key, each with a comment.
func TestShippedFile(t *testing.T) {
	got, problems := Load(shipped, noEnv)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := Default()
	want.Pipeline, want.Kafka.Group = "orders", "orders"
	want.Kafka.Brokers = []string{"127.0.0.1:9092"}
	want.Storage.URL = "s3://lake/tables"
	want.Defaults.Schema = got.Defaults.Schema // the schema of the demo, which another test compares
	topic := want.Defaults
	topic.Table = "orders"
	want.Topics = map[string]Topic{"orders": topic}
	if d := cmp.Diff(want, got, withoutOrigins); d != "" {
		t.Errorf("config.yaml differs from the defaults (-want +got):\n%s", d)
	}
	entries := documented(t)
	for _, s := range got.settings() {
		if s.path[0] == "topics" {
			continue
		}
		path := strings.Join(s.path, ".")
		i := slices.IndexFunc(entries, func(e entry) bool { return e.path == path })
		if i < 0 {
			t.Errorf("config.yaml does not have %s", path)
		} else if entries[i].comment == "" {
			t.Errorf("config.yaml does not explain %s", path)
		}
	}
}

func TestDefaultsOfTopics(t *testing.T) {
	c := mustLoad(t, write(t, `
topics: {orders.v1: {start: latest, commit: {every: 5s}, schema: b bigint}}
pipeline: p
kafka: {brokers: "a:1, b:2,"}
storage: {url: "s3://lake/x/"}
defaults: {table: "bronze/{topic}", schema: a int, commit: {rows: 7}}
`), nil)
	want := Default().Defaults
	want.Table, want.Start, want.Schema = "bronze/orders.v1", "latest", "b bigint"
	want.Commit.Every, want.Commit.Rows = 5*time.Second, 7
	name, got := onlyTopic(t, c)
	if d := cmp.Diff(want, got); d != "" || name != "orders.v1" {
		t.Errorf("topic %s (-want +got):\n%s", name, d)
	}
	if got := c.TableURL(got); got != "s3://lake/x/bronze/orders.v1" {
		t.Error(got)
	}
	if d := cmp.Diff([]string{"a:1", "b:2"}, c.Kafka.Brokers); d != "" {
		t.Error(d)
	}
	if c.Kafka.Group != "p" {
		t.Errorf("group %q", c.Kafka.Group)
	}
}

// TestResumeAt: queue.resume_at is half of queue.pause_at unless it is set.
func TestResumeAt(t *testing.T) {
	for _, c := range []struct {
		file    string
		env     map[string]string
		want    int
		written string
	}{
		{"", nil, 5000, "default"},
		{"queue: {pause_at: 3000}", nil, 1500, "default, half of queue.pause_at"},
		{"queue: {pause_at: 3000, resume_at: 1000}", nil, 1000, "config.yaml:4"},
		{"", map[string]string{"MAX_QUEUED_MESSAGES": "5000"}, 2500, "default, half of queue.pause_at"},
		{"queue: {resume_at: 5000}", map[string]string{"MAX_QUEUED_MESSAGES": "5000"}, 2500, "default, half of queue.pause_at"}, // the value of the shipped file counts as not set
		{"queue: {resume_at: 400}", map[string]string{"MAX_QUEUED_MESSAGES": "5000"}, 400, "config.yaml:4"},
		{"", map[string]string{"MAX_QUEUED_MESSAGES": "5000", "RESUME_THRESHOLD": "4000"}, 4000, "env RESUME_THRESHOLD"},
	} {
		path := write(t, "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///tmp/x}\n"+c.file+"\ntopics: {orders: {schema: n int}}\n")
		got := mustLoad(t, path, c.env)
		origin := strings.TrimPrefix(got.origins["queue.resume_at"].String(), filepath.Dir(path)+"/")
		if got.Queue.ResumeAt != c.want || origin != c.written {
			t.Errorf("%q %v: %d from %s, want %d from %s", c.file, c.env, got.Queue.ResumeAt, origin, c.want, c.written)
		}
	}
}

func TestSeedVariables(t *testing.T) {
	env := map[string]string{
		"KAFKA_BOOTSTRAP_SERVERS": "kafka-1:9092,kafka-2:9092", "KAFKA_GROUP_ID": "korder-consumer-group", "KAFKA_TOPIC": "keyed-messages-topic",
		"HEALTH_CHECK_PORT": "8081", "MAX_QUEUED_MESSAGES": "20000", "RESUME_THRESHOLD": "10000", "PER_KEY_CHANNEL_CAPACITY": "500",
		"Logging__LogLevel__Default": "Warning", "MAX_ACCEPTABLE_LAG": "5000", "LAG_CHECK_INTERVAL_SECONDS": "15",
	}
	c := mustLoad(t, shipped, env)
	want := mustLoad(t, shipped, nil)
	want.Kafka.Brokers, want.Kafka.Group = []string{"kafka-1:9092", "kafka-2:9092"}, "korder-consumer-group"
	want.Queue = Queue{PauseAt: 20_000, ResumeAt: 10_000, PerKey: 500}
	want.Health.Listen, want.Log.Level = ":8081", "warn"
	want.Health.Lag.Max, want.Health.Lag.Every = 5000, 15*time.Second
	topic := want.Topics["orders"]
	topic.Table = "keyed-messages-topic"
	want.Topics = map[string]Topic{"keyed-messages-topic": topic}
	if d := cmp.Diff(want, c, withoutOrigins); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for path, variable := range map[string]string{
		"kafka.brokers": "KAFKA_BOOTSTRAP_SERVERS", "health.listen": "HEALTH_CHECK_PORT", "health.lag.every": "LAG_CHECK_INTERVAL_SECONDS", "log.level": "Logging__LogLevel__Default",
		"topics.keyed-messages-topic": "KAFKA_TOPIC",
	} {
		if got := c.origins[path].String(); got != "env "+variable {
			t.Errorf("%s: origin %q", path, got)
		}
	}
}

func TestSeedLevels(t *testing.T) {
	for _, c := range []struct{ level, net, want string }{
		{"", "", "info"},
		{"debug", "", "debug"},
		{"ERROR", "Debug", "error"}, // the variable in level takes precedence over that of .NET
		{"", "Trace", "debug"},
		{"", "Information", "info"},
		{"", "Critical", "error"},
		{"", "None", "error"},
	} {
		got := mustLoad(t, shipped, map[string]string{"LOG_LEVEL": c.level, "Logging__LogLevel__Default": c.net}).Log.Level
		if got != c.want {
			t.Errorf("LOG_LEVEL=%s Logging__LogLevel__Default=%s: %s, want %s", c.level, c.net, got, c.want)
		}
	}
}

// TestSeedTopicKeepsItsEntry: if the file has an entry for the topic that the variable names, the keys of that entry
// stay in force.
func TestSeedTopicKeepsItsEntry(t *testing.T) {
	path := write(t, `
pipeline: p
kafka: {brokers: [a:1]}
storage: {url: file:///data}
defaults: {schema: a int}
topics: {orders: {}, users: {start: latest}}
`)
	c := mustLoad(t, path, map[string]string{"KAFKA_TOPIC": "users", "HEALTH_CHECK_PORT": ""})
	if name, topic := onlyTopic(t, c); name != "users" || topic.Start != "latest" || topic.Table != "users" {
		t.Errorf("%s %+v", name, topic)
	}
}

func TestInterpolate(t *testing.T) {
	env := lookup(map[string]string{"A": "1", "EMPTY": "", "NESTED": "${A}"})
	for _, c := range []struct{ in, want, vars string }{
		{"plain $ {A} $A", "plain $ {A} $A", ""},
		{"${A}", "1", "A"},
		{"x${A}y${A}z", "x1y1z", "A,A"},
		{"${EMPTY}", "", "EMPTY"},
		{"${EMPTY:-d}", "d", "EMPTY"},
		{"${MISSING:-}", "", "MISSING"},
		{"${MISSING:-a:-b}", "a:-b", "MISSING"},
		{"${A:-d}", "1", "A"},
		{"$${A}", "${A}", ""},
		{"$$${A}", "$${A}", ""},
		{"${NESTED}", "${A}", "NESTED"}, // the value of a variable may look like another variable; it is not interpolated again
	} {
		got, variables, err := interpolate(c.in, env)
		var vars []string
		for _, v := range variables {
			vars = append(vars, v.variable)
		}
		if err != nil || got != c.want || strings.Join(vars, ",") != c.vars {
			t.Errorf("%s: %q %v %v, want %q %s", c.in, got, vars, err, c.want, c.vars)
		}
	}
}

func TestSchemaFromFile(t *testing.T) {
	path := write(t, `
pipeline: p
kafka: {brokers: [a:1]}
storage: {url: file:///data}
defaults: {schema: ddl/orders.ddl}
topics: {orders: {}}
`)
	dir := filepath.Join(filepath.Dir(path), "ddl")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "orders.ddl"), []byte("a int,\nb string\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, path, nil)
	if _, topic := onlyTopic(t, c); topic.Schema != "a int,\nb string\n" || topic.SchemaFile != "ddl/orders.ddl" {
		t.Errorf("%q from %q", topic.Schema, topic.SchemaFile)
	}
}

func TestKeyFiles(t *testing.T) {
	path := write(t, `
pipeline: p
kafka: {brokers: [a:1]}
storage: {url: "s3://lake", s3: {access_key_file: access, secret_key_file: secret}}
defaults: {schema: a int}
topics: {orders: {}}
`)
	dir := filepath.Dir(path)
	for name, text := range map[string]string{"access": "k\n", "secret": " \n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, problems := Load(path, noEnv)
	if len(problems) != 1 || !strings.Contains(problems[0].Text, "is empty: write the key into it") {
		t.Error(problems)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := mustLoad(t, path, nil); c.Storage.S3.AccessKeyFile != filepath.Join(dir, "access") {
		t.Error(c.Storage.S3)
	}
}

// TestGroupIsALabel: the group must be valid UTF-8. It is a metric label, and with invalid UTF-8 the first scrape would
// end the process.
func TestGroupIsALabel(t *testing.T) {
	path := write(t, `
pipeline: p
kafka: {brokers: [a:1], group: "${G:-}"}
storage: {url: "s3://lake"}
defaults: {schema: a int}
topics: {orders: {}}
`)
	for _, variable := range []string{"G", "KAFKA_GROUP_ID"} {
		_, problems := Load(path, func(name string) (string, bool) { v, ok := map[string]string{variable: "a\xff"}[name]; return v, ok })
		if len(problems) != 1 || problems[0].Key != "kafka.group" || !strings.Contains(problems[0].Text, "is not UTF-8") {
			t.Errorf("%s: %v", variable, problems)
		}
	}
}

// TestSecretsStayHidden: a Config shows no secret as YAML, as JSON or with a verb of package fmt.
func TestSecretsStayHidden(t *testing.T) {
	c := mustLoad(t, write(t, `
pipeline: p
kafka: {brokers: [a:1], tls: {enabled: true}, sasl: {mechanism: plain, username: u, password: "${P}"}}
storage: {url: "s3://lake", s3: {access_key: "${K}", secret_key: "${S}"}}
defaults: {schema: a int}
topics: {orders: {}}
`), map[string]string{"K": "geheim1", "S": "geheim2", "P": "geheim3"})
	if c.Storage.S3.AccessKey != "geheim1" || string(c.Storage.S3.SecretKey) != "geheim2" || c.Kafka.SASL.Password != "geheim3" {
		t.Fatal("the secrets did not arrive")
	}
	var out bytes.Buffer
	for _, print := range []func() error{
		func() error { return c.PrintYAML(&out) },
		func() error { return encodeValues(&out, c) },
		func() error { return json.NewEncoder(&out).Encode(c) },
		func() error {
			_, err := fmt.Fprintf(&out, "%v %+v %#v %s", c, c, c, c.Storage.S3.AccessKey)
			return err
		},
	} {
		if err := print(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(out.String(), "geheim") {
		t.Errorf("a secret is shown:\n%s", out.String())
	}
	if n := strings.Count(out.String(), "***"); n < 12 {
		t.Errorf("only %d of the places show ***:\n%s", n, out.String())
	}
}

// TestPrintRoundTrip: config print prints a configuration that has the same values when it is loaded.
func TestPrintRoundTrip(t *testing.T) {
	first := mustLoad(t, write(t, `
pipeline: p
kafka: {brokers: [a:1], rack: "true", group: "a: b # c"}
storage: {url: "s3://lake"}
defaults: {table: "b/{topic}", schema: c int}
retry: {jitter: 12.5%, initial: 1500ms}
topics:
  orders.v1:
    commit: {bytes: 1000KiB}
    schema: |
      a int,
      b string
  sales: {pattern: 'sales\..+', deny: [sales.x, 'sales\.y.*'], start: latest}
  rest: {pattern: '.*', deny: []}
`), map[string]string{"MAX_QUEUED_MESSAGES": "77777"})
	var out bytes.Buffer
	if err := first.PrintYAML(&out); err != nil {
		t.Fatal(err)
	}
	second := mustLoad(t, write(t, out.String()), nil)
	if d := cmp.Diff(first, second, withoutOrigins); d != "" {
		t.Errorf("(-first +second):\n%s\n%s", d, &out)
	}
	for _, want := range []string{"pause_at: 77777 # env MAX_QUEUED_MESSAGES", "bytes: 1000KiB # config.yaml:9", "level: info # default\n"} {
		if got := strings.ReplaceAll(out.String(), filepath.Dir(first.origins["pipeline"].File)+string(filepath.Separator), ""); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestGuardOfConfig(t *testing.T) {
	g := Default().Guard()
	if g.Initial != time.Second || g.Max != 30*time.Second || g.Jitter != 0.25 || g.Failures != 5 || g.OpenFor != time.Minute || g.Successes != 3 {
		t.Errorf("%+v", g)
	}
}

// TestLaterKeysAreUnknown: this version does not accept a key that is planned for a later version.
func TestLaterKeysAreUnknown(t *testing.T) {
	c := Default()
	known := map[string]bool{}
	for _, f := range slices.Concat(c.keys(), c.Defaults.keys()) {
		if known[f.path] {
			t.Errorf("%s is there twice", f.path)
		}
		known[f.path] = true
	}
	for _, k := range laterKeys {
		for path := range maps.Keys(known) {
			if path == k || strings.HasPrefix(path, k+".") {
				t.Errorf("%s is a key of this version, %s is not later", path, k)
			}
		}
	}
	for name, path := range defaultNames {
		if path != "topics" && !known[path] {
			t.Errorf("usual name %s stands for %s, which is no key", name, path)
		}
	}
}

// TestBeyond: a pattern covers at most max_topics topics. Topics with an entry of their own, and dead-letter topics, do
// not count.
func TestBeyond(t *testing.T) {
	c := mustLoad(t, write(t, `
pipeline: p
kafka: {brokers: [a:1]}
storage: {url: file:///data}
defaults: {schema: a int}
topics:
  s.own: {}
  some: {pattern: 's\..+', deny: [], max_topics: 2, dead_letters: {topic: "s.dead.{topic}"}}
  rest: {pattern: '.*', deny: []}
`), nil)
	got := c.Beyond([]string{"s.own", "s.c", "s.dead.s.c", "a", "s.b", "b", "c", "s.a", "s.x-canary", "s.d"})
	want := map[string]string{
		"s.a": "the pattern of topics.some matches 4 topics and may stand for 2 (max_topics)",
		"s.d": "the pattern of topics.some matches 4 topics and may stand for 2 (max_topics)",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	if got := c.Beyond(many); len(got) != 1 || got["t1000"] == "" {
		t.Errorf("without the key: %v", got)
	}
}

// TestRoute: a topic's own entry takes precedence over all patterns. Without one, the first pattern in the file that
// matches the topic and does not deny it is used.
func TestRoute(t *testing.T) {
	c := mustLoad(t, write(t, `
pipeline: p
kafka: {brokers: [a:1]}
storage: {url: file:///data}
defaults: {table: "{topic}", schema: a int}
topics:
  sales: {pattern: 'sales\.[a-z]+', deny: [sales.test, 'sales\.tmp.*'], table: "s/{topic}"}
  sales.own: {table: own}
  orders-dlq: {table: letters}
  plain: {pattern: plain.name, deny: []}
  rest: {pattern: 'sales.*|zoo|.*dlq|__.*|.{249}', deny: [], table: "rest-{topic}"}
`), nil)
	for topic, want := range map[string]string{
		"sales.eu": "s/sales.eu", "sales.own": "own", "sales.EU": "rest-sales.EU", "sales.eu.x": "rest-sales.eu.x", "xsales.eu": "",
		"sales.test": "rest-sales.test", "sales.tmpx": "rest-sales.tmpx", "zoo": "rest-zoo", "zoom": "", "other": "",
		// The entry with this name is a pattern, so it is not an entry of the topic.
		"sales": "rest-sales",
		// A pattern that is a legal topic name matches only the topic of that name.
		"plain.name": "plain.name", "plainxname": "",
		"orders-dlq": "letters", "users-dlq": "", "users.dlq": "", "usersdlq": "rest-usersdlq", "__consumer_offsets": "",
	} {
		got, meant, err := c.Route(topic)
		if err != nil || meant != (want != "") || got.Table != want {
			t.Errorf("%s: %q %v %v, want %q", topic, got.Table, meant, err, want)
		}
	}
	if _, meant, err := c.Route(strings.Repeat("x", 249)); !meant || err == nil {
		t.Errorf("a name that makes no folder: %v %v", meant, err)
	}
	only := mustLoad(t, c.origins["pipeline"].File, map[string]string{"KAFKA_TOPIC": "sales.eu"})
	if name, topic := onlyTopic(t, only); name != "sales.eu" || topic.Table != "sales.eu" || len(only.Patterns) > 0 {
		t.Errorf("KAFKA_TOPIC: %s %+v %v", name, topic, only.Patterns)
	}
}

// FuzzLoadConfig: for any file, the loader returns a configuration that can be printed, or the reason why not.
func FuzzLoadConfig(f *testing.F) {
	data, err := os.ReadFile(shipped)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add("a: &a [*a]\nb: *a\n<<: *a\nkafka: *a\ntopics: {? [a] : b, c: *a}")
	f.Add("topics: {o: {schema: a}}\nlog: {level: ${A:-x}}\n---\n")
	f.Add("\ufeffpipeline: x\ndefaults: &d {schema: a int}\ntopics: {a: *d}\nkafka: {brokers: 'a:1'}\nstorage: {url: 'file:///x'}")
	f.Add("pipeline: x\ntopics:\n  s: {pattern: 's.*', deny: [s.a, '(b'], table: 'x/{topic}'}\n  t: {pattern: '(', deny: }\n  s.y: {table: x/z}")
	f.Fuzz(func(t *testing.T, text string) {
		l := &loader{file: filepath.Join("testdata", "nowhere", "c.yaml"), env: lookup(map[string]string{"A": "1"}), config: Default()}
		c, problems := l.load([]byte(text))
		if c == nil {
			if len(problems) == 0 {
				t.Error("refused without a reason")
			}
			for _, p := range problems {
				if p.Text == "" || p.File == "" {
					t.Errorf("%+v says nothing", p)
				}
			}
			return
		}
		var out bytes.Buffer
		if err := c.PrintYAML(&out); err != nil {
			t.Error(err)
		}
		var again yaml.Node
		if err := yaml.Unmarshal(out.Bytes(), &again); err != nil {
			t.Errorf("%v in\n%s", err, &out)
		}
	})
}
