package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"sluice/connector"
	"sluice/internal/app"
	"sluice/internal/config"
	"sluice/internal/laketest"
	"sluice/internal/terminal"
)

// newLogged returns a logger of level debug, made as a member makes its logger, and the log to which it writes.
func newLogged(t *testing.T) (*slog.Logger, *laketest.Log) {
	t.Helper()
	out := &laketest.Log{}
	logger, err := terminal.NewLogger(config.Log{Level: "debug", Format: "json"}, out)
	if err != nil {
		t.Fatal(err)
	}
	return logger, out
}

// hush is the mark: a text that tests put into the keys, values, headers and field names of records, and into the
// secrets of the configuration. No output may contain it.
const hush = "hush7f3a"

// badValues are values that do not fit the schema of TestLog_NoSecrets, one for each kind of poison.
var badValues = map[string]string{
	"bad_json":      `{"n": hush7f3a`,
	"bad_tail":      `{"n":1} hush7f3a`,
	"bad_array":     `["hush7f3a"]`,
	"bad_type":      `{"n":"hush7f3a"}`,
	"bad_nested":    `{"n":1,"o":{"p":"hush7f3a","hush7f3a":1}}`,
	"bad_range":     `{"n":99999999999999999999,"s":"hush7f3a"}`,
	"bad_timestamp": `{"n":1,"at":"hush7f3a"}`,
	"bad_missing":   `{"s":"hush7f3a"}`,
	"bad_null":      `{"n":null,"hush7f3a":1}`,
	"bad_utf8":      "{\"n\":1,\"s\":\"hush7f3a\xff\"}",
	"bad_escape":    `{"n":1,"s":"hush7f3a\ud800"}`,
	"bad_deep":      `{"n":1,"hush7f3a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
	"bad_field":     `{"n":1,"new":"hush7f3a"}`, // bad with unknown_fields: dead_letter
	"bad_key":       `{"n":1,"s":"hush7f3a"}`,   // bad with keys: required
	"bad_tombstone": "",                         // bad with tombstones: dead_letter
	"bad_twice":     `{"n":1,"n":2,"hush7f3a":"hush7f3a"}`,
}

// marked is a lake whose configuration and records have a mark in each place for user text.
func marked(t *testing.T, defaults string) *lake {
	t.Helper()
	topics := []string{"orders: {health_records: {secret_file: secret}}"}
	for topic := range badValues {
		more := ""
		switch topic {
		case "bad_field":
			more = "unknown_fields: dead_letter"
		case "bad_key":
			more = "keys: required"
		case "bad_tombstone":
			more = "tombstones: dead_letter"
		}
		topics = append(topics, topic+": {"+more+"}")
	}
	l := newLakeOn(t, `
defaults: {schema: "n int not null, s string, at timestamp, o struct<p:int>", commit: {every: 100ms}, `+defaults+`}
topics: {`+strings.Join(topics, ", ")+`}`,
		", offset_commit_interval: 100ms, sasl: {mechanism: plain, username: sluice, password: "+hush+"-sasl, insecure_plaintext: true}",
		[]kgo.Opt{kgo.SASL(saslplain.Auth{User: "sluice", Pass: hush + "-sasl"}.AsMechanism())},
		kfake.EnableSASL(), kfake.Superuser("PLAIN", "sluice", hush+"-sasl"))
	text := strings.ReplaceAll(read(t, l.Config), "health: {enabled: false}", `health: {listen: "127.0.0.1:0"}`)
	if err := os.WriteFile(l.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.Dir, "secret"), []byte(hush+"-health"), 0o600); err != nil {
		t.Fatal(err)
	}
	record := func(topic, value string, headers ...string) *kgo.Record {
		r := &kgo.Record{Topic: topic, Key: []byte(hush + "-key"), Headers: []kgo.RecordHeader{{Key: hush + "-name", Value: []byte(hush)}}}
		if value != "" {
			r.Value = []byte(value)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
		}
		return r
	}
	good := fmt.Sprintf(`{"n":1,"s":%q}`, hush)
	odd := fmt.Sprintf(`{"n":1,"s":%q,"new-field":{"%s":1}}`, hush, hush)
	l.Create("orders", 1)
	records := []*kgo.Record{
		record("orders", odd), record("orders", ""), // the second one is a tombstone
		record("orders", odd, "HEALTHCHECK", "TRUE", connector.HealthSecretHeader, hush+"-health"),
		record("orders", odd, "HEALTHCHECK", "TRUE", connector.HealthSecretHeader, hush+"-wrong"),
	}
	for topic, value := range badValues {
		l.Create(topic, 1)
		bad := record(topic, value)
		if topic == "bad_key" {
			bad.Key = nil
		}
		records = append(records, record(topic, good), bad, record(topic, good))
	}
	if err := l.Client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return l
}

// tellsNothing fails the test if the log, the metrics, the HTTP responses or the report of a member contain the text
// hush, or if its configuration shows it when printed. It returns the response of /health.
func tellsNothing(t *testing.T, l *lake, s *app.Member, out *laketest.Log) (report string) {
	t.Helper()
	address, ok := out.Lines(t, "health")[0]["address"].(string)
	if !ok {
		t.Fatal("no line says where probes are answered")
	}
	get := func(path string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{}
		defer client.CloseIdleConnections()
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	cfg := mustLoad(t, l.Config, nil)
	report = get("/health")
	for where, said := range map[string]string{
		"/health": report, "/health/ready": get("/health/ready"), "/metrics": get("/metrics"), "/actuator/health": get("/actuator/health"),
		"/health/startup": get("/health/startup"), "/actuator/metrics": get("/actuator/metrics/worker.dlq.messages"), "the log": out.String(),
		"the report": fmt.Sprintf("%+v", s.Report()), "the configuration": fmt.Sprintf("%+v %#v", cfg, cfg.Kafka),
	} {
		if i := strings.Index(said, hush); i >= 0 {
			t.Errorf("%s shows a secret:\n%s", where, said[max(0, i-200):min(len(said), i+100)])
		}
	}
	return report
}

// TestLog_NoSecrets runs the whole connector at debug level. Its records are good, bad and odd, and contain marks in
// every place that a producer can fill; its configuration contains marked secrets. No log line, metric or HTTP response
// may contain a mark. A dead letter may contain only the marks of its own record.
func TestLog_NoSecrets(t *testing.T) {
	t.Parallel()
	t.Run("hold", func(t *testing.T) {
		t.Parallel()
		l := marked(t, "bad_records: hold")
		logger, out := newLogged(t)
		l.Logger = logger
		s := l.start()
		l.Awaits("orders", map[string][]int64{"orders:0": {0, 3}})
		l.Await("every bad record is met", func() bool { return len(heldIn(s)) == len(badValues) })
		l.Await("group offsets are written", func() bool { return len(out.Lines(t, "Scheduled checkpointing of a partition")) > 0 })
		if report := tellsNothing(t, l, s, out); !strings.Contains(report, "poison") {
			t.Errorf("/health does not tell of bad records: %s", report)
		}
		for _, said := range out.Lines(t, "HOLD") {
			if id, _ := said["correlation_id"].(string); said["level"] != "ERROR" || said["reason"] != "poison" || len(id) != 16 {
				t.Errorf("a hold that needs a person: %v", said)
			}
		}
	})
	t.Run("dead letters", func(t *testing.T) {
		t.Parallel()
		l := marked(t, "bad_records: dead_letter")
		logger, out := newLogged(t)
		l.Logger = logger
		s := l.start()
		l.Awaits("orders", map[string][]int64{"orders:0": {0, 3}})
		for topic := range badValues {
			l.Awaits(topic, map[string][]int64{topic + ":0": {0, 2}})
		}
		tellsNothing(t, l, s, out)
		batches := map[any]bool{}
		for _, said := range out.Lines(t, "committed") {
			batches[said["batch_id"]] = true
		}
		ids := map[any]bool{}
		for _, said := range out.Lines(t, "DEAD LETTER") {
			ids[said["correlation_id"]] = true
			if said["level"] != "INFO" || !batches[said["batch_id"]] || said["offset"] != 1.0 {
				t.Errorf("a letter of no commit: %v", said)
			}
		}
		if causes := out.Lines(t, "non-retriable failure: such records become dead letters"); len(ids) != len(badValues) ||
			len(causes) != len(badValues) || causes[0]["level"] != "ERROR" {
			t.Errorf("%d letters and %d causes, want %d each", len(ids), len(causes), len(badValues))
		}
		for topic := range badValues {
			for _, h := range l.letter(topic + "-dlq").Headers {
				if h.Key != hush+"-name" && strings.Contains(h.Key+string(h.Value), hush) {
					t.Errorf("%s: header %s says more than why: %s", topic, h.Key, h.Value)
				}
				if id := string(h.Value); h.Key == "sluice.correlation" && !ids[id] {
					t.Errorf("%s: no line has correlation id %s", topic, id)
				}
			}
		}
		l.runs(exitOK, "verify", "--kafka") // no record is lost
	})
}

// letter returns the first record of a dead-letter topic.
func (l *lake) letter(topic string) *kgo.Record {
	l.T.Helper()
	l.Client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}})
	defer l.Client.PurgeTopicsFromConsuming(topic)
	ctx, cancel := context.WithTimeout(l.T.Context(), 20*time.Second)
	defer cancel()
	for {
		fetches := l.Client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			l.T.Fatalf("no letter in %s: %v", topic, err)
		}
		for _, r := range fetches.Records() {
			if r.Topic == topic {
				return r
			}
		}
	}
}

// TestLog_ShuttingDown expects one line "Shutting down gracefully" after a signal to stop, and none at an end without a
// signal.
func TestLog_ShuttingDown(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	const msg = "Shutting down gracefully"
	if _, errs := l.runs(exitOK, "run", "--until-current"); strings.Contains(errs, msg) {
		t.Errorf("the log has the line without a signal:\n%s", errs)
	}
	l.Produce("orders", 3, 0)
	logger, out := newLogged(t)
	s, err := app.New(t.Context(), mustLoad(t, l.Config, nil), app.Options{}, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	l.Awaits("orders", laketest.UpTo(6, "orders:0"))
	if n := len(out.Lines(t, msg)); n != 0 {
		t.Errorf("said %d times before anybody asked", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if said := out.Lines(t, msg); len(said) != 1 || said[0]["level"] != "INFO" {
		t.Errorf("%v", said)
	}
	if n := len(out.Lines(t, "drained")); n != 1 {
		t.Errorf("drained is said %d times", n)
	}
	if text := out.String(); strings.Index(text, msg) > strings.Index(text, `"drained"`) {
		t.Error("drained comes before the signal to stop")
	}
}

// spoken is a log call in the source.
type spoken struct {
	where string
	level string // the level; "" if it is not a constant
	keys  []string
	open  bool // true if the call passes a slice of attributes, so that it may have more keys than these
}

// spokenLines returns the log calls in the sources of the product, by message.
func spokenLines(t *testing.T) map[string][]spoken {
	t.Helper()
	found := map[string][]spoken{}
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == filepath.Join(root, "test") || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			level, at := speaks(call)
			if at < 0 || at >= len(call.Args) {
				return true
			}
			if msg, ok := literal(call.Args[at]); ok {
				s := spoken{where: fmt.Sprintf("%s:%d", path, fset.Position(call.Pos()).Line), level: level, open: call.Ellipsis.IsValid()}
				for _, arg := range call.Args[at+1:] {
					if key, ok := literal(arg); ok {
						s.keys = append(s.keys, key)
					}
				}
				found[msg] = append(found[msg], s)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// speaks returns the level of a log call and the index of its message argument. The level is "" if it is not a
// constant; the index is -1 if the call is not a log call.
func speaks(call *ast.CallExpr) (level string, at int) {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name, inContext := strings.CutSuffix(f.Sel.Name, "Context")
		switch {
		case name == "Log":
			return "", 2
		case name == "Failed" && len(call.Args) > 3: // Failed and Over are methods of reliability.FailureLog
			return "", 3
		case name == "Over" && len(call.Args) > 2:
			return "", 2
		case !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name):
		case inContext:
			return strings.ToUpper(name), 1
		default:
			return strings.ToUpper(name), 0
		}
	case *ast.CallExpr: // calls the function that Reason.LogFunc returned
		if of, ok := f.Fun.(*ast.SelectorExpr); ok && of.Sel.Name == "LogFunc" {
			return "", 0
		}
	}
	return "", -1
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// TestLog_ReplacedConnectors expects log calls with the key words and levels of the connectors that this one replaces,
// so that existing alarms and searches work. Other tests show that the lines are written.
func TestLog_ReplacedConnectors(t *testing.T) {
	source := spokenLines(t)
	for _, c := range []struct{ begins, level string }{
		{"Scheduled checkpointing", "INFO"},
		{"Nothing to be checkpointed", "DEBUG"}, // in the replaced connectors this line warns of a wrong call; here it means only that no record arrived
		{"Exception during checkpointing loop", ""},
		{"Received a healthcheck message. Discarding message", "DEBUG"},
		{"Skipping duplicate", "INFO"},
		{"Retry attempt", "WARN"},
		{"Giving up", "ERROR"},
		{"DEAD LETTER", "INFO"},
		{"Shutting down gracefully", "INFO"},
		{"BACKPRESSURE: PAUSED", "WARN"},
		{"BACKPRESSURE: RESUMED", "INFO"},
		{"Readiness check FAILED", "WARN"},
	} {
		i := slices.IndexFunc(slices.Sorted(maps.Keys(source)), func(msg string) bool { return strings.HasPrefix(msg, c.begins) })
		if i < 0 {
			t.Errorf("no line begins with %q", c.begins)
			continue
		}
		if s := source[slices.Sorted(maps.Keys(source))[i]][0]; s.level != c.level {
			t.Errorf("%s: %q is %s, want %s", s.where, c.begins, s.level, c.level)
		}
	}
}

// TestLogTable compares the tables of docs/operations.md with the log calls in the sources: messages, levels and keys.
func TestLogTable(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "../../docs/operations.md"), "\n## What the log says\n")
	section, _, _ = strings.Cut(section, "\n## ")
	source := spokenLines(t)
	ticked := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (all []string) {
		for _, m := range ticked.FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	documented := map[string]bool{}
	for row := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(row), "|")
		if len(cells) != 6 || !strings.HasPrefix(row, "| `") {
			continue
		}
		levels, keys := strings.Split(strings.TrimSpace(cells[2]), ", "), names(cells[3])
		for _, msg := range names(cells[1]) {
			if documented[msg] {
				t.Errorf("%q has two rows", msg)
			}
			documented[msg] = true
			if len(source[msg]) == 0 {
				t.Errorf("%q is not in the source", msg)
			}
			said := []string{"batch_id", "table"} // keys that a logger may add to all of its lines
			for _, s := range source[msg] {
				said = append(said, s.keys...)
				if s.open {
					said = append(said, keys...)
				}
				if s.level != "" && !slices.Contains(levels, s.level) {
					t.Errorf("%s: %q is %s, its row says %v", s.where, msg, s.level, levels)
				}
				for _, key := range s.keys {
					if !slices.Contains(keys, key) {
						t.Errorf("%s: %q has the key %s, its row has %v", s.where, msg, key, keys)
					}
				}
			}
			for _, key := range keys {
				if !slices.Contains(said, key) {
					t.Errorf("the row of %q has the key %s, which no line says", msg, key)
				}
			}
		}
	}
	for _, msg := range slices.Sorted(maps.Keys(source)) {
		if !documented[msg] {
			t.Errorf("%s: %q has no row in docs/operations.md, What the log says: add text, level, keys, and what to do", source[msg][0].where, msg)
		}
	}
}
