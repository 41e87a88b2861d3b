package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/health"
	"sluice/internal/app"
	"sluice/internal/laketest"
	"sluice/reliability/hold"
	"sluice/secure/tokens"
	"sluice/sink/opslog"
)

// world is a lake with the API of a member. Requests go to the handler, each from another address.
type world struct {
	*laketest.Lake
	s      *Server
	log    *laketest.Log
	doc    *openapi3.T
	report func() health.Report
	sent   int
}

// canary is a part of every secret and of every record.
const canary = "s3cr3tCanary"

// secretOf returns the token of a name in the tokens file.
func secretOf(name string) string { return canary + "-" + name }

// tokenLines returns the content of a tokens file with two tokens of each role, one of them expired.
func tokenLines() string {
	var b strings.Builder
	for role := tokens.Viewer; role <= tokens.Admin; role++ {
		for name, more := range map[string]string{role.String(): "", role.String() + "-old": " expires=2020-01-01T00:00:00Z"} {
			sum := sha256.Sum256([]byte(secretOf(name)))
			fmt.Fprintf(&b, "%s %s %s%s\n", name, role, hex.EncodeToString(sum[:]), more)
		}
	}
	return b.String()
}

// newWorld returns the API of a member. sections are the other sections of config.yaml, as for [laketest.New]; ops is
// the section ops, without a tokens file for a read-only API.
func newWorld(t *testing.T, sections, ops string) *world {
	t.Helper()
	w := &world{Lake: laketest.New(t, sections), doc: loadDocument(t)}
	path := filepath.Join(w.Dir, "tokens")
	if err := os.WriteFile(path, []byte(tokenLines()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Lake = w.As(`ops: {listen: ""}`, "ops: {"+strings.ReplaceAll(ops, "TOKENS", path)+"}")
	w.open()
	return w
}

const withTokens = `listen: "127.0.0.1:0", tokens_file: "TOKENS"`

// open makes the server anew from the configuration.
func (w *world) open() {
	w.T.Helper()
	logger, log := laketest.NewLog()
	w.log, w.report = log, sampleReport
	s, err := New(w.T.Context(), Options{
		Config: laketest.Load(w.T, w.Config), Version: "v1", Member: "m1", Report: func() health.Report { return w.report() },
		Flushes: func() []connector.Flush {
			return []connector.Flush{
				{Table: "orders", Request: 3, State: connector.FlushSealed, At: time.Unix(1000, 0).UTC(), Batch: "m1-7", Partitions: 2, Offsets: 12},
				{Table: "users", Request: 3, State: connector.FlushNothing, At: time.Unix(1000, 0).UTC()},
			}
		},
		Level: &slog.LevelVar{}, Logger: logger, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.s = s
	w.T.Cleanup(s.jobs.stop)
}

// sampleReport is the report of a member with a held partition.
func sampleReport() health.Report {
	return health.Report{
		Pipeline: "p", Group: "p", Joined: true, Resumed: true,
		Partitions: []health.Partition{
			{Topic: "orders", ID: 10, Position: 3, End: 5, Table: "orders", Verdict: health.VerdictOK, Freshness: new(1.5)},
			{Topic: "orders", ID: 2, Position: -1, End: -1, Table: "orders"},
		},
		Holds: []health.Hold{{Topic: "orders", Partition: 2, Reason: string(hold.Poison), Detail: "type_mismatch at byte 5", Since: time.Unix(1000, 0).UTC(), Offset: 7}},
	}
}

// run runs a member until it is current, so that tables exist.
func (w *world) run() {
	w.T.Helper()
	m, err := app.New(w.T.Context(), laketest.Load(w.T, w.Config), app.Options{UntilCurrent: true}, w.Logger)
	if err != nil {
		w.T.Fatal(err)
	}
	defer m.Close()
	if err := m.Run(w.T.Context()); err != nil {
		w.T.Error(err)
	}
}

// try is a request that a test sends.
type try struct {
	method, path, body string
	token              string // name in the tokens file; "" for none
	header             map[string]string
	host               string
	remote             string
	contents           bool // the response may have contents of records
}

// reply is a response.
type reply struct {
	status int
	header http.Header
	text   string
}

// json returns the body.
func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(r.text), &v); err != nil {
		t.Fatalf("%v: %s", err, r.text)
	}
	return v
}

// code returns the code of a problem, "" if the response is none.
func (r reply) code() string {
	var p problem
	if r.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.text), &p) != nil {
		return ""
	}
	return string(p.Code)
}

// send sends a request and checks the response against the OpenAPI document.
func (w *world) send(try try) reply {
	w.T.Helper()
	w.sent++
	var body io.Reader
	if try.body != "" {
		body = strings.NewReader(try.body)
	}
	r := httptest.NewRequestWithContext(w.T.Context(), try.method, "http://127.0.0.1:8090"+try.path, body)
	r.RemoteAddr = fmt.Sprintf("127.0.%d.%d:4000", w.sent/250, w.sent%250+1)
	if try.remote != "" {
		r.RemoteAddr = try.remote
	}
	if try.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if try.token != "" {
		r.Header.Set("Authorization", "Bearer "+secretOf(try.token))
	}
	for name, value := range try.header {
		r.Header.Set(name, value)
	}
	if try.host != "" {
		r.Host = try.host
	}
	got := httptest.NewRecorder()
	w.s.handler().ServeHTTP(got, r)
	reply := reply{got.Code, got.Header(), got.Body.String()}
	w.conforms(try, reply)
	if strings.Contains(reply.text, canary) && !try.contents || strings.Contains(fmt.Sprint(reply.header), canary) {
		w.T.Errorf("%s %s shows a secret: %s", try.method, try.path, reply.text)
	}
	return reply
}

// conforms fails the test unless a response matches the schema that the OpenAPI document has for its status. If the
// document has no operation for the request, the response must be a problem.
func (w *world) conforms(try try, got reply) {
	w.T.Helper()
	path, _, _ := strings.Cut(try.path, "?")
	schema := w.doc.Components.Schemas["Problem"].Value
	op := operation(w.doc, try.method, path)
	media, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	switch {
	case op == nil && got.status < 400:
		w.T.Errorf("%s %s: %d without an operation in the document", try.method, path, got.status)
		return
	case op != nil:
		response := op.Responses.Value(fmt.Sprint(got.status))
		if response == nil {
			w.T.Errorf("%s %s: the document has no status %d: %s", try.method, path, got.status, got.text)
			return
		}
		content := response.Value.Content.Get(media)
		if content == nil {
			w.T.Errorf("%s %s: the document has no %s for %d", try.method, path, media, got.status)
			return
		}
		schema = content.Schema.Value
	}
	if !strings.HasSuffix(media, "json") {
		return
	}
	var v any
	if err := json.Unmarshal([]byte(got.text), &v); err != nil {
		w.T.Errorf("%s %s: %v: %s", try.method, path, err, got.text)
		return
	}
	if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
		w.T.Errorf("%s %s: %d is not what the document describes: %v\n%s", try.method, path, got.status, err, got.text)
	}
}

// operation returns the operation of the OpenAPI document that describes a request, nil if there is none.
func operation(doc *openapi3.T, method, path string) *openapi3.Operation {
	item := doc.Paths.Value(path)
	for template, other := range doc.Paths.Map() {
		if item == nil && strings.Contains(template, "{") && fits(template, path) {
			item = other
		}
	}
	if item == nil {
		return nil
	}
	return item.GetOperation(strings.Replace(method, http.MethodHead, http.MethodGet, 1))
}

// fits reports whether a path matches a path template such as /debug/pprof/{profile}.
func fits(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	for i := range want {
		if len(want) != len(got) || got[i] == "" && want[i] != "" || want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

// produce writes records to a topic, each with a key and a header.
func (w *world) produce(topic string, values ...string) {
	w.T.Helper()
	for _, value := range values {
		r := &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
		if err := w.Client.ProduceSync(w.T.Context(), r).FirstErr(); err != nil {
			w.T.Fatal(err)
		}
	}
}

// entries returns the operations log.
func (w *world) entries() (all []opslog.Entry) {
	w.T.Helper()
	a := w.s.access(true)
	defer a.Close()
	found, err := auditAll(context.WithoutCancel(w.T.Context()), a)
	if err != nil {
		w.T.Fatal(err)
	}
	return found
}

// ended waits until the job of a response has ended, and returns it.
func (w *world) ended(got reply) Job {
	w.T.Helper()
	var a Started
	if err := json.Unmarshal([]byte(got.text), &a); err != nil || a.Job == nil {
		w.T.Fatalf("%d %s: %v", got.status, got.text, err)
	}
	j, err := w.s.jobs.find(a.Job.ID)
	if err != nil {
		w.T.Fatal(err)
	}
	<-j.done
	return w.job(a.Job.ID)
}

// job returns a job as the API shows it.
func (w *world) job(id string) (v Job) {
	w.T.Helper()
	got := w.send(try{method: http.MethodGet, path: prefix + "jobs/" + id, token: "viewer"})
	if err := json.Unmarshal([]byte(got.text), &v); err != nil || got.status != http.StatusOK {
		w.T.Fatalf("%d %s: %v", got.status, got.text, err)
	}
	return v
}

// endedJob returns the id of a job that has ended.
func (w *world) endedJob() string {
	w.T.Helper()
	return w.ended(w.send(try{method: http.MethodPost, path: prefix + "dlq/replay-all", token: "replayer", body: `{"all": true, "dry_run": true}`})).ID
}
