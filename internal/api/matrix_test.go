package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"sluice/internal/admin"
	"sluice/secure/tokens"
	"sluice/sink/opslog"
)

func auditAll(ctx context.Context, a *admin.Access) (all []opslog.Entry, err error) {
	r, err := admin.Audit(ctx, a, time.Time{})
	if err != nil {
		return nil, err
	}
	for _, e := range r.Entries {
		all = append(all, e.Entry)
	}
	return all, nil
}

// row is a request that an operation of the document accepts, by operationId. A new operation without a row fails the test.
type row struct {
	path   string                // "" for that of the document
	at     func(w *world) string // path of a request that TestRoutes sends; nil for path
	body   string
	job    bool             // it starts a job
	status int              // with the right role; 0 for 200
	entry  *opslog.Kind     // the kind of the entry that it leaves
	undo   func(w *world)   // makes the request possible again; may be nil
	state  func(*world) any // what a refused request must not change; may be nil
}

func rows() map[string]row {
	kindOf := func(k opslog.Kind) *opslog.Kind { return &k }
	letters := func(action string) func(w *world) {
		return func(w *world) {
			w.send(try{method: http.MethodPost, path: prefix + "deadletters/" + action, token: "admin", body: `{"topic": "users", "reason": "undo"}`})
		}
	}
	level := func(w *world) any { return w.s.Level.Level() }
	resume := func(w *world) {
		w.send(try{method: http.MethodPost, path: prefix + "resume", token: "admin", body: `{"all": true, "reason": "undo"}`})
	}
	pause := func(w *world) {
		w.send(try{method: http.MethodPost, path: prefix + "pause", token: "admin", body: `{"all": true, "reason": "undo"}`})
	}
	return map[string]row{
		"whoami": {}, "getStatus": {}, "listHolds": {}, "listPositions": {path: prefix + "positions?topic=orders&limit=1"}, "listPartitions": {},
		"listMembers": {status: http.StatusNotFound}, "listTables": {}, "listOperations": {}, "listConfig": {}, "getLogLevel": {}, "getDocument": {},
		"recheckHolds":     {body: `{"targets": ["orders"], "reason": "the schema is right now"}`, entry: kindOf(opslog.KindRecheck)},
		"pause":            {body: `{"targets": ["orders:0"], "reason": "maintenance"}`, entry: kindOf(opslog.KindPause), undo: resume},
		"resume":           {body: `{"all": true, "reason": "over"}`, entry: kindOf(opslog.KindResume), undo: pause},
		"flush":            {body: `{"targets": ["orders"], "reason": "the report"}`, entry: kindOf(opslog.KindFlush)},
		"listFlushes":      {path: prefix + "flush?limit=1"},
		"allowDeadLetters": {body: `{"topic": "users", "for": "1h", "reason": "known"}`, entry: kindOf(opslog.KindFloodAllow)},
		"listDeadLetters":  {path: prefix + "deadletters?state=all&limit=1"},
		"getDeadLetter":    {path: prefix + "deadletters/users/0/1"},
		"discardDeadLetters": {
			body: `{"records": ["users:0@1"], "reason": "a test"}`, entry: kindOf(opslog.KindDiscard), undo: letters("reopen"),
		},
		"acknowledgeDeadLetters": {
			body: `{"topic": "users", "code": "truncated", "reason": "seen"}`, entry: kindOf(opslog.KindAcknowledge), undo: letters("reopen"),
		},
		"reopenDeadLetters": {
			body: `{"topic": "users", "states": ["discarded"], "reason": "they matter"}`, entry: kindOf(opslog.KindReopen), undo: letters("discard"),
		},
		"discardDeadLetterAt": {path: prefix + "dlq/users-dlq/0?partition=0&reason=a+test", entry: kindOf(opslog.KindDiscard), undo: letters("reopen")},
		"replayDeadLetters":   {body: `{"topic": "payments", "partition": 0, "offset": 1, "value": "{\"n\": 2}", "reason": "a test"}`, job: true},
		"replayAllDeadLetters": {
			path: prefix + "dlq/replay-all?topic=payments-dlq", body: `{"code": "truncated", "rate": 0, "reason": "a test"}`, job: true,
		},
		"listJobs": {}, "getJob": {path: prefix + "jobs/none", status: http.StatusNotFound},
		"cancelJob": {path: prefix + "jobs/none?reason=a+test", at: func(w *world) string {
			return prefix + "jobs/" + w.endedJob() + "?reason=a+test"
		}},
		"setLogLevel":  {body: `{"level": "debug", "reason": "look closer"}`, state: level},
		"listProfiles": {}, "getProfile": {path: prefix + "debug/pprof/goroutine"},
	}
}

// newMatrix returns a world with tables, two dead letters of users, and two of payments.
func newMatrix(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "topics: {orders: {}, users: {bad_records: dead_letter}, payments: {bad_records: dead_letter}}", withTokens)
	w.Create("orders", 2)
	w.Create("users", 1)
	w.Create("payments", 1)
	w.produce("payments", `{"n": 1}`, `{"n": `, `{"n": `)
	w.Produce("orders", 3, 0, 1)
	w.produce("users", `{"n": 1}`, `{"n": `, `{"n": `)
	w.run()
	return w
}

// operations returns the operations of the document with their paths and methods, by operationId.
func operations(doc *openapi3.T) map[string]struct {
	op           *openapi3.Operation
	method, path string
} {
	all := map[string]struct {
		op           *openapi3.Operation
		method, path string
	}{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			all[op.OperationID] = struct {
				op           *openapi3.Operation
				method, path string
			}{op, method, path}
		}
	}
	return all
}

// TestRoutes sends requests to every operation of the document: those that the API must refuse, which must have no
// effect, and those that it must accept.
func TestRoutes(t *testing.T) {
	w := newMatrix(t)
	known, all := rows(), operations(w.doc)
	for id := range known {
		if _, ok := all[id]; !ok {
			t.Errorf("the document has no operation %s", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		row, ok := known[id]
		if !ok {
			t.Errorf("operation %s has no row in the table of requests", id)
			continue
		}
		op := all[id]
		good := try{method: op.method, path: op.path, body: row.body}
		if row.path != "" {
			good.path = row.path
		}
		role, err := tokens.ParseRole(fmt.Sprint(op.op.Extensions["x-role"]))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		t.Run(id, func(t *testing.T) {
			w.T = t
			if row.undo != nil {
				row.undo(w)
			}
			if row.at != nil {
				good.path = row.at(w)
			}
			w.refused(good, row, role)
			if row.job {
				w.acceptedJob(good, role)
				return
			}
			w.accepted(good, row, role)
		})
	}
	w.T = t
	if strings.Contains(w.log.String(), canary) {
		t.Error("the log shows a secret")
	}
}

// refused sends variants of a good request, such as one without a token. Each must be refused with the right code and
// have no effect.
func (w *world) refused(good try, row row, role tokens.Role) {
	w.T.Helper()
	state := func() string {
		text := fmt.Sprint(len(w.entries()))
		if row.state != nil {
			text += fmt.Sprint(row.state(w))
		}
		return text
	}
	before := state()
	right := role.String()
	want := func(name string, status int, code code, change func(*try)) {
		w.T.Helper()
		bad := good
		bad.token, bad.header = right, map[string]string{}
		change(&bad)
		if got := w.send(bad); got.status != status || got.code() != string(code) {
			w.T.Errorf("%s: %d %s, want %d %s\n%s", name, got.status, got.code(), status, code, got.text)
		}
		if after := state(); after != before {
			w.T.Errorf("%s: a refused request had an effect: %s, before %s", name, after, before)
		}
	}
	want("no token", http.StatusUnauthorized, codeNoToken, func(r *try) { r.token = "" })
	want("wrong token", http.StatusUnauthorized, codeBadToken, func(r *try) { r.token = "nobody" })
	want("other scheme", http.StatusUnauthorized, codeBadToken, func(r *try) { r.header["Authorization"] = "Basic " + secretOf(right) })
	want("expired token", http.StatusUnauthorized, codeExpired, func(r *try) { r.token = right + "-old" })
	if role > tokens.Viewer {
		want("lesser role", http.StatusForbidden, codeForbidden, func(r *try) { r.token = (role - 1).String() })
	}
	want("wrong host", http.StatusMisdirectedRequest, codeHost, func(r *try) { r.host = "evil.example.com" })
	want("no host", http.StatusMisdirectedRequest, codeHost, func(r *try) { r.host = "[]" })
	for _, origin := range []string{"https://evil.example.com", "http://evil@127.0.0.1:8090", "null"} {
		want("origin "+origin, http.StatusForbidden, codeOrigin, func(r *try) { r.header["Origin"] = origin })
	}
	want("cross-site", http.StatusForbidden, codeOrigin, func(r *try) { r.header["Sec-Fetch-Site"] = "cross-site" })
	want("wrong method", http.StatusMethodNotAllowed, codeMethod, func(r *try) { r.method = http.MethodPatch })
	want("oversized body", http.StatusRequestEntityTooLarge, codeTooLarge, func(r *try) { r.body = `{"reason": "` + strings.Repeat("x", bodyBytes) + `"}` })
	want("unknown parameter", http.StatusBadRequest, codeInvalid, func(r *try) { r.path, _, _ = strings.Cut(r.path, "?"); r.path += "?access_token=" + secretOf(right) })
	if good.method == http.MethodDelete {
		want("no reason", http.StatusBadRequest, codeInvalid, func(r *try) { *r = withoutReason(*r) })
	}
	if good.body == "" {
		want("body", http.StatusBadRequest, codeInvalid, func(r *try) { r.body = "{}" })
		return
	}
	want("unknown field", http.StatusBadRequest, codeInvalid, func(r *try) { r.body = strings.Replace(r.body, "{", `{"surprise": 1, `, 1) })
	want("field twice", http.StatusBadRequest, codeInvalid, func(r *try) { r.body = strings.Replace(r.body, "{", `{"reason": "x", `, 1) })
	want("more JSON", http.StatusBadRequest, codeInvalid, func(r *try) { r.body += "{}" })
	want("no JSON", http.StatusBadRequest, codeInvalid, func(r *try) { r.body = "reason=x" })
	want("form", http.StatusUnsupportedMediaType, codeMediaType, func(r *try) { r.header["Content-Type"] = "text/plain" })
	want("no reason", http.StatusBadRequest, codeInvalid, func(r *try) { *r = withoutReason(*r) })
}

// withoutReason returns a change without its reason, which is in the body or in the query.
func withoutReason(r try) try {
	if r.body == "" {
		r.path = strings.Replace(r.path, "reason=a+test", "", 1)
		return r
	}
	before, after, _ := strings.Cut(r.body, `"reason": "`)
	_, after, _ = strings.Cut(after, `"`)
	r.body = strings.TrimSuffix(before, ", ") + after
	return r
}

// dryRun returns the same change as a dry run. It leaves out the reason, which a dry run does not need.
func dryRun(r try) try {
	r = withoutReason(r)
	if r.body == "" {
		r.path += "&dry_run=true"
	}
	r.body = strings.Replace(r.body, "{", `{"dry_run": true, `, 1)
	return r
}

// forOtherReason returns a change with another reason.
func forOtherReason(r try) try {
	if r.body == "" {
		r.path = strings.Replace(r.path, "reason=", "reason=not+", 1)
	}
	r.body = strings.Replace(r.body, `"reason": "`, `"reason": "not `, 1)
	return r
}

// accepted sends a request with the role that it needs, which must succeed. As a dry run it must have no effect;
// repeated with its Idempotency-Key it must have no second effect and get the same entry.
func (w *world) accepted(good try, row row, role tokens.Role) {
	w.T.Helper()
	status := max(row.status, http.StatusOK)
	good.token = role.String()
	send := func(name string, r try) reply {
		w.T.Helper()
		got := w.send(r)
		if got.status != status {
			w.T.Errorf("%s: %d, want %d\n%s", name, got.status, status, got.text)
		}
		return got
	}
	before := len(w.entries())
	if good.method != http.MethodGet {
		if got := send("dry run", dryRun(good)); got.json(w.T)["dry_run"] != true {
			w.T.Errorf("dry run: %s", got.text)
		}
	} else {
		head := good
		head.method = http.MethodHead
		send("HEAD", head)
	}
	if n := len(w.entries()); n != before {
		w.T.Errorf("%d entries after reads and dry runs, before %d", n, before)
	}
	good.header = map[string]string{"Idempotency-Key": "key of " + good.path}
	first := send("right role", good)
	again := send("again", good)
	entries := w.entries()
	if row.entry == nil {
		if len(entries) != before {
			w.T.Errorf("%d entries, before %d", len(entries), before)
		}
		return
	}
	if len(entries) != before+1 {
		w.T.Fatalf("%d entries, before %d", len(entries), before)
	}
	e := entries[before]
	if e.Kind != *row.entry || e.Operator != role.String() || e.Once == nil || e.Reason == "" {
		w.T.Errorf("%+v", e)
	}
	if fmt.Sprint(first.json(w.T)["entry"]) != fmt.Sprint(again.json(w.T)["entry"]) || again.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" {
		w.T.Errorf("the repeat: %v %s\nfirst: %s", again.header, again.text, first.text)
	}
	if got := w.send(forOtherReason(good)); got.status != http.StatusUnprocessableEntity || got.code() != string(codeKeyReused) {
		w.T.Errorf("another request with the key: %d %s", got.status, got.text)
	}
	if n := len(w.entries()); n != before+1 {
		w.T.Errorf("%d entries, before %d", n, before)
	}
}

// acceptedJob sends a request that starts a job, which must succeed. As a dry run it must write no entry; repeated with
// its Idempotency-Key it must get the same job.
func (w *world) acceptedJob(good try, role tokens.Role) {
	w.T.Helper()
	good.token = role.String()
	before := len(w.entries())
	if v := w.ended(w.send(dryRun(good))); v.State != jobDone || !v.DryRun || v.Plan == nil || v.Plan.Count == 0 || v.Handled != 0 {
		w.T.Errorf("dry run: %+v", v)
	}
	if n := len(w.entries()); n != before {
		w.T.Errorf("%d entries after a dry run, before %d", n, before)
	}
	good.header = map[string]string{"Idempotency-Key": "key of " + good.path}
	first := w.send(good)
	v := w.ended(first)
	if first.header.Get("Location") != prefix+"jobs/"+v.ID || first.header.Get("Idempotent-Replayed") != "" {
		w.T.Errorf("%v", first.header)
	}
	entries := w.entries()
	if v.State != jobDone || v.Handled != v.Plan.Count || v.Operation != int64(before+1) || len(entries) <= before {
		w.T.Fatalf("%+v, %d entries, before %d", v, len(entries), before)
	}
	for i, e := range entries[before:] {
		if e.Operator != role.String() || e.Reason != "a test" || (e.Once != nil) != (i == 0) {
			w.T.Errorf("%+v", e)
		}
	}
	again := w.send(good)
	if again.header.Get("Idempotent-Replayed") != "true" || w.ended(again).ID != v.ID {
		w.T.Errorf("the repeat: %v %s", again.header, again.text)
	}
	if got := w.send(forOtherReason(good)); got.status != http.StatusUnprocessableEntity || got.code() != string(codeKeyReused) {
		w.T.Errorf("another request with the key: %d %s", got.status, got.text)
	}
	if n := len(w.entries()); n != len(entries) {
		w.T.Errorf("%d entries, before the repeat %d", n, len(entries))
	}
}
