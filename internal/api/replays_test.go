package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/admin"
	"sluice/internal/laketest"
	"sluice/sink/opslog"
)

// newReplays returns a world whose topic orders has dead letters at the offsets 1, 3 and 5, which can become rows now, and
// at 6 one that never can.
func newReplays(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "topics: {orders: {unknown_fields: dead_letter, bad_records: dead_letter, dead_letters: {hold_above: 100%}}}", withTokens)
	w.Create("orders", 1)
	w.produce("orders", `{"n": 0}`, `{"n": 1, "new": 1}`, `{"n": 2}`, `{"n": 3, "new": 1}`, `{"n": 4}`, `{"n": 5, "new": 1}`, `{"n": "six"}`)
	w.run()
	w.Lake = w.As("unknown_fields: dead_letter", "unknown_fields: ignore")
	w.open()
	return w
}

func (w *world) replays(path, body, key string) reply {
	w.T.Helper()
	r := try{method: http.MethodPost, path: prefix + "dlq/" + path, token: "replayer", body: body}
	if key != "" {
		r.header = map[string]string{"Idempotency-Key": key}
	}
	return w.send(r)
}

// until waits until want returns true for a job. It fails the test if the job ends before.
func (w *world) until(id string, want func(Job) bool) {
	w.T.Helper()
	j, err := w.s.jobs.find(id)
	if err != nil {
		w.T.Fatal(err)
	}
	for v := w.s.jobs.view(j); !want(v); v = w.s.jobs.view(j) {
		if v.Ended != nil {
			w.T.Fatalf("%+v", v)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// slowly starts a replay of all dead letters of orders, and returns its job after the first commit. The rate of the
// replay makes it wait 1000 s before the next one.
func (w *world) slowly(key string) Job {
	w.T.Helper()
	got := w.replays("replay-all?topic=orders", `{"rate": 0.001, "reason": "slowly"}`, key)
	var a Started
	if err := json.Unmarshal([]byte(got.text), &a); err != nil || got.status != http.StatusAccepted || a.Job == nil || a.Job.Ended != nil {
		w.T.Fatalf("%d %s", got.status, got.text)
	}
	w.until(a.Job.ID, func(v Job) bool { return v.Rows > 0 })
	return *a.Job
}

// TestReplay: an operator makes a dry run, then replays one record, one dead letter, and all. Each becomes one row,
// and the job counts it. A dead letter that fails three times is parked, until the operator corrects its value.
func TestReplay(t *testing.T) {
	w := newReplays(t)
	plan := w.ended(w.replays("replay-all?topic=orders-dlq", `{"dry_run": true}`, "")).Plan
	want := []admin.ReplayOutcome{{Topic: "orders", Reason: "unknown_field", Rows: 3}, {Topic: "orders", Reason: "type_mismatch", Fails: 1}}
	if plan == nil || len(plan.Outcomes) != 2 || plan.Outcomes[1].Detail == "" || plan.Count != 4 || plan.Keyed != 3 {
		t.Fatalf("%+v", plan)
	}
	plan.Outcomes[1].Detail = ""
	if d := cmp.Diff(want, plan.Outcomes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	w.Has("orders", map[string][]int64{"orders:0": {0, 2, 4}})

	// A replay of one record by its coordinates: the response has the job after its end.
	got := w.replays("replay", `{"topic": "orders", "partition": 0, "offset": 3, "reason": "fixed"}`, "")
	if v := w.ended(got); got.status != http.StatusOK || v.State != jobDone || v.Rows != 1 || v.Operation != 1 || v.Selects.Topic != "orders" || *v.Selects.Offset != 3 {
		t.Errorf("%d %s", got.status, got.text)
	}
	// A replay of the dead letter that is at offset 0 of the dead-letter topic.
	if v := w.ended(w.replays("replay", `{"topic": "orders-dlq", "offset": 0, "mode": "direct", "reason": "fixed"}`, "")); v.Rows != 1 {
		t.Errorf("%+v", v)
	}
	w.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 3, 4}})

	// A replay of all others: the record at offset 6 still cannot become a row. When it fails for the third time, its
	// dead letter is parked, and later replays leave it out.
	v := w.ended(w.replays("replay-all?topic=orders", `{"reason": "all"}`, ""))
	if v.State != jobDone || v.Rows != 1 || v.Handled != 2 || v.Failed["type_mismatch"] != 1 || v.Parked != 0 || v.First["type_mismatch"].Record != "orders:0@6" {
		t.Errorf("%+v", v)
	}
	if len(v.Tables) != 1 || v.Tables[0].Table != "orders" || v.Tables[0].Rows != 1 || v.Tables[0].Version == 0 {
		t.Errorf("%+v", v.Tables)
	}
	for parked := range 2 {
		if v := w.ended(w.replays("replay", `{"topic": "orders", "reason": "again"}`, "")); v.Failed["type_mismatch"] != 1 || v.Parked != parked {
			t.Errorf("%+v", v)
		}
	}
	entries := len(w.entries())
	if v := w.ended(w.replays("replay-all?topic=orders", `{"reason": "again"}`, "key")); v.State != jobDone || v.Plan.Count != 0 || v.Operation != 0 || !strings.Contains(fmt.Sprint(v.Plan.Notes), "1 parked") {
		t.Errorf("%+v", v)
	}
	if n := len(w.entries()); n != entries {
		t.Errorf("%d entries, before %d", n, entries)
	}

	// An operator replays the parked dead letter with a corrected value, in base64. The request may use the same
	// Idempotency-Key as the one before, because that one changed nothing.
	got = w.replays("replay", `{"records": ["orders:0@6"], "value": "eyJuIjogNn0=", "value_encoding": "base64", "reason": "by hand"}`, "key")
	if v := w.ended(got); v.Rows != 1 || !v.Selects.Edited || strings.Contains(got.text, "eyJuIjogNn0=") {
		t.Errorf("%d %s", got.status, got.text)
	}
	w.Has("orders", laketest.UpTo(7, "orders:0"))
	list := w.send(try{method: http.MethodGet, path: prefix + "jobs?limit=1", token: "viewer"})
	if jobs := list.json(t)["jobs"].([]any); len(jobs) != 1 || jobs[0].(map[string]any)["reason"] != "by hand" || list.json(t)["next"] == nil {
		t.Error(list.text)
	}
	if lines := w.log.Lines(t, "replay job ended"); len(lines) != 8 || lines[7]["operator"] != "replayer" || lines[7]["state"] != "done" {
		t.Errorf("%v", lines)
	}
}

// TestReplay_Refused: a request whose fields do not fit together is refused, and one that fails has no effect: no row
// and no entry in the operations log.
func TestReplay_Refused(t *testing.T) {
	w := newReplays(t)
	for _, c := range []struct {
		path, body string
		want       code
	}{
		{"replay", `{"reason": "x"}`, codeInvalid},
		{"replay", `{"topic": "orders", "offset": 1, "reason": "x"}`, codeInvalid}, // without its partition
		{"replay", `{"topic": "orders", "partition": 0, "reason": "x"}`, codeInvalid},
		{"replay", `{"partition": 0, "offset": 1, "reason": "x"}`, codeInvalid},
		{"replay", `{"topic": "orders", "partition": 0, "offset": 1, "code": "syntax", "reason": "x"}`, codeInvalid},
		{"replay", `{"topic": "orders", "partition": 0, "offset": 1, "records": ["orders:0@3"], "reason": "x"}`, codeInvalid},
		{"replay", `{"topic": "orders", "partition": -1, "offset": 1, "reason": "x"}`, codeInvalid},
		{"replay", `{"topic": "orders", "partition": 0, "offset": -1, "reason": "x"}`, codeInvalid},
		{"replay", `{"topic": "orders", "value": "{}", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1", "orders:0@3"], "value": "{}", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "value": "{}", "value_encoding": "hex", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "value": "{}", "value_encoding": "base64", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "value_encoding": "base64", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "rate": -1, "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "mode": "both", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "mode": "topic", "reason": "x"}`, codeInvalid}, // ops.replay_secret_file is not set
		{"replay-all?topic=orders", `{"mode": "both", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@1"], "topic_id": "` + strings.Repeat("x", 1001) + `", "reason": "x"}`, codeInvalid},
		{"replay", `{"records": ["orders:0@2"], "reason": "x"}`, codeNotFound},
		{"replay", `{"topic": "orders-dlq", "offset": 99, "reason": "x"}`, codeNotFound},
		{"replay", `{"topic": "nope", "reason": "x"}`, codeInvalid},
		{"replay-all", `{"reason": "x"}`, codeInvalid},
		{"replay-all?topic=orders", `{"all": true, "reason": "x"}`, codeInvalid},
		{"replay-all?topic=orders", `{"states": ["lost"], "reason": "x"}`, codeInvalid},
		{"replay-all?topic=orders", `{"topic": "orders", "reason": "x"}`, codeInvalid}, // it is in the query
	} {
		if got := w.replays(c.path, c.body, ""); got.code() != string(c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, got.status, got.text)
		}
	}
	before := len(w.s.jobs.list())
	if got := w.replays("replay-all?topic=nope", `{"reason": "x"}`, ""); got.code() != string(codeNotFound) || !strings.Contains(got.text, "topic nope is not in topics: write one of orders") {
		t.Errorf("%d %s", got.status, got.text)
	}
	if jobs := w.s.jobs.list(); len(jobs) != before {
		t.Errorf("the request started a job: %+v", jobs)
	}
	// This mistake is found only when the job runs: the request succeeds, and the job has the error.
	if v := w.ended(w.replays("replay-all?topic=orders", `{"mode": "topic", "reason": "x"}`, "")); v.State != jobFailed || v.Error == nil || v.Error.Code != codeInvalid || v.Ended == nil {
		t.Errorf("%+v", v)
	}
	if n := len(w.entries()); n != 0 {
		t.Errorf("%d entries", n)
	}
	w.Has("orders", map[string][]int64{"orders:0": {0, 2, 4}})
}

// TestReplay_Cancel: while a job runs, no other job starts. After it is cancelled, it makes no further rows. A later
// replay makes those that are missing.
func TestReplay_Cancel(t *testing.T) {
	w := newReplays(t)
	j := w.slowly("")
	if got := w.replays("replay", `{"records": ["orders:0@5"], "reason": "x"}`, ""); got.status != http.StatusTooManyRequests || got.code() != string(codeBusy) || !strings.Contains(got.text, j.ID) {
		t.Errorf("%d %s", got.status, got.text)
	}
	cancel := func(token, query string) reply {
		t.Helper()
		return w.send(try{method: http.MethodDelete, path: prefix + "jobs/" + j.ID + query, token: token})
	}
	if got := cancel("operator", "?reason=x"); got.status != http.StatusForbidden {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := cancel("replayer", "?dry_run=true"); got.status != http.StatusOK || w.job(j.ID).State != jobReplaying {
		t.Errorf("%d %s", got.status, got.text)
	}
	got := cancel("admin", "?reason=wrong+config")
	if v := w.ended(got); got.status != http.StatusOK || v.State != jobCancelled || v.Rows != 1 || v.Handled != 1 || v.CancelledBy != "admin" || v.CancelReason != "wrong config" || v.Error != nil {
		t.Errorf("%d %s\n%+v", got.status, got.text, v)
	}
	if v := w.ended(cancel("replayer", "?reason=again")); v.CancelledBy != "admin" {
		t.Errorf("%+v", v)
	}
	if lines := w.log.Lines(t, "replay job cancelled"); len(lines) != 1 || lines[0]["operator"] != "admin" || lines[0]["job"] != j.ID {
		t.Errorf("%v", lines)
	}
	w.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 4}})
	if v := w.ended(w.replays("replay-all?topic=orders", `{"code": "unknown_field", "reason": "go on"}`, "")); v.Plan.Count != 2 || v.Rows != 2 {
		t.Errorf("%+v", v)
	}
	w.Has("orders", laketest.UpTo(6, "orders:0"))
}

// TestReplay_Repeated: a request with the key of an earlier one starts no second job: not while the job runs, and not after
// it ended, also on a member that does not know the job.
func TestReplay_Repeated(t *testing.T) {
	w := newReplays(t)
	j := w.slowly("k")
	again := w.replays("replay-all?topic=orders", `{"rate": 0.001, "reason": "slowly"}`, "k")
	if again.status != http.StatusAccepted || again.header.Get("Idempotent-Replayed") != "true" || !strings.Contains(again.text, j.ID) {
		t.Errorf("%d %s", again.status, again.text)
	}
	for path, body := range map[string]string{
		"replay-all?topic=orders-dlq": `{"rate": 0.001, "reason": "slowly"}`, "replay-all?topic=orders": `{"reason": "slowly"}`, "replay": `{"topic": "orders", "reason": "slowly"}`,
	} {
		if got := w.replays(path, body, "k"); got.status != http.StatusUnprocessableEntity || got.code() != string(codeKeyReused) {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	w.s.jobs.stop()
	if v := w.job(j.ID); v.State != jobStopped || v.Rows != 1 || v.Error != nil {
		t.Errorf("%+v", v)
	}
	if got := w.replays("replay", `{"records": ["orders:0@5"], "reason": "x"}`, ""); got.status != http.StatusServiceUnavailable || !strings.Contains(got.text, "this member stops") {
		t.Errorf("%d %s", got.status, got.text)
	}
	w.open() // another member
	entries := w.entries()
	got := w.replays("replay-all?topic=orders", `{"rate": 0.001, "reason": "slowly"}`, "k")
	if e, _ := got.json(t)["entry"].(map[string]any); got.status != http.StatusOK || got.json(t)["job"] != nil || e == nil || e["seq"] != 1.0 || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := w.replays("replay-all?topic=orders", `{"reason": "other"}`, "k"); got.code() != string(codeKeyReused) {
		t.Errorf("%d %s", got.status, got.text)
	}
	if after := w.entries(); len(after) != len(entries) || after[0].Kind != opslog.KindReplayIntent {
		t.Errorf("%+v", after)
	}
	w.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 4}})
}

// TestServer_Draining: the running job ends when the member begins to drain, while the API is still served.
func TestServer_Draining(t *testing.T) {
	w := newReplays(t)
	j := w.slowly("")
	draining, ended := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	defer stop()
	go func() { ended <- w.s.Run(ctx, draining) }()
	close(draining)
	w.until(j.ID, func(v Job) bool { return v.State == jobStopped })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// jobsOf returns the jobs of a member that has had none yet. They log nothing.
func jobsOf() *jobs { return &jobs{logger: slog.New(slog.DiscardHandler)} }

// TestJobs_Bound: a member remembers the last keptJobs jobs, and forgets older ones.
func TestJobs_Bound(t *testing.T) {
	js := jobsOf()
	var first *job
	for i := range keptJobs + 1 {
		j, _, err := js.start(t.Context(), Job{}, opslog.Once{}, func(context.Context, *job) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		<-j.done
		if i == 0 {
			first = j
		}
	}
	if n := len(js.list()); n != keptJobs {
		t.Errorf("%d jobs", n)
	}
	if _, err := js.find(first.view.ID); problemOf(err).Code != codeNotFound {
		t.Error(err)
	}
}

// TestJobs_Ends: a job that returns an error or panics has failed, without the text of the error. A job that ends
// because of a cancellation is cancelled. A job that succeeds although it was cancelled is done.
func TestJobs_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js := jobsOf()
		run := func(do func(context.Context, *job) error) Job {
			t.Helper()
			j, repeated, err := js.start(t.Context(), Job{}, opslog.Once{}, do)
			if err != nil || repeated {
				t.Fatal(err)
			}
			synctest.Wait()
			js.requestCancel(j, admin.By{Operator: "ada"}) // those that still run
			<-j.done
			return js.view(j)
		}
		if v := run(func(context.Context, *job) error { return errors.New("inside") }); v.State != jobFailed || v.Error.Code != codeInternal || strings.Contains(v.Error.Detail, "inside") {
			t.Errorf("%+v", v)
		}
		if v := run(func(context.Context, *job) error { panic("inside") }); v.State != jobFailed || v.Error.Code != codeInternal {
			t.Errorf("%+v", v)
		}
		if v := run(func(ctx context.Context, _ *job) error { <-ctx.Done(); return ctx.Err() }); v.State != jobCancelled || v.Error != nil || v.CancelledBy != "ada" {
			t.Errorf("%+v", v)
		}
		if v := run(func(ctx context.Context, _ *job) error { <-ctx.Done(); return nil }); v.State != jobDone {
			t.Errorf("%+v", v)
		}
	})
}
