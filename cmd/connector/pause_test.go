package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/health"
	"sluice/internal/admin"
	"sluice/internal/app"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

const twoTopics = `topics: {orders: {}, users: {}}`

// TestPause_UntilResume expects a pause to last over several runs until resume.
func TestPause_UntilResume(t *testing.T) {
	l := newLake(t, twoTopics)
	l.Create("orders", 2)
	l.Create("users", 1)
	l.Produce("orders", 3, 0, 1)
	l.Produce("users", 3, 0)
	out, errs := l.runs(0, "pause", "orders:1", "--operator", "ada", "--reason", "hot disk", "--yes")
	if !strings.Contains(out, "paused orders:1 (operation 1)") || errs != "" {
		t.Errorf("%q %q", out, errs)
	}
	_, errs = l.runs(1, "run", "--until-current")
	if !strings.Contains(errs, `"held at the end","topic":"orders","partition":1,"reason":"paused","detail":"ada paused orders:1: hot disk","offset":0`) {
		t.Error(errs)
	}
	l.Has("orders", laketest.UpTo(3, "orders:0"))
	l.Has("users", laketest.UpTo(3, "users:0"))

	l.runs(0, "pause", "--all", "--operator", "eva", "--reason", "maintenance", "--yes")
	l.Produce("users", 3, 0)
	l.runs(1, "run", "--until-current")
	l.Has("users", laketest.UpTo(3, "users:0"))

	// A pause of everything (--all) ends only with --all.
	_, errs = l.runs(4, "resume", "orders:1", "--reason", "cool", "--yes")
	if !strings.Contains(errs, "orders:1 is paused with everything: by eva") || !strings.Contains(errs, "write --all instead of orders:1") {
		t.Error(errs)
	}
	out, _ = l.runs(0, "resume", "--all", "--reason", "done", "--yes", "--output", "json")
	var e admin.RecordedEntry
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Seq != 3 || e.Kind != opslog.KindResume || len(e.Hash) != 64 {
		t.Errorf("%v: %s", err, out)
	}
	l.runs(0, "run", "--until-current")
	l.Has("orders", laketest.UpTo(3, "orders:0", "orders:1"))
	l.Has("users", laketest.UpTo(6, "users:0"))
}

func TestPause_NothingToDo(t *testing.T) {
	l := newLake(t, twoTopics)
	pause := []string{"pause", "orders", "--operator", "ada", "--reason", "why", "--yes"}
	l.runs(0, pause...)
	if out, errs := l.runs(0, pause...); out != "" || !strings.Contains(errs, "orders is paused already: by ada since") || !strings.Contains(errs, "nothing to do") {
		t.Errorf("%q %q", out, errs)
	}
	if out, errs := l.runs(0, "resume", "users", "--reason", "why", "--yes"); out != "" || !strings.Contains(errs, "users is not paused\nnothing to do") {
		t.Errorf("%q %q", out, errs)
	}
	if out, errs := l.runs(4, "resume", "orders:0", "--reason", "why", "--yes"); out != "" || !strings.Contains(errs, "it can only be resumed as a whole: write orders instead of orders:0\n") {
		t.Errorf("%q %q", out, errs)
	}
	// One of these two targets is paused already.
	if out, errs := l.runs(0, "pause", "orders", "users:0", "--reason", "why", "--yes"); !strings.Contains(out, "paused users:0 (operation 2)") || !strings.Contains(errs, "already") {
		t.Errorf("%q %q", out, errs)
	}
	if out, _ := l.runs(0, "pause", "users", "--reason", "why", "--dry-run"); out != "pause of pipeline p: users\n" {
		t.Errorf("%q", out)
	}
	out, _ := l.runs(0, "pause", "users", "users:3", "--dry-run", "--output", "json")
	var plan admin.PausePlan
	want := admin.PausePlan{Pipeline: "p", Kind: "pause", Targets: []opslog.Target{{Topic: "users", Partition: -1}, {Topic: "users", Partition: 3}}}
	if err := json.Unmarshal([]byte(out), &plan); err != nil || !reflect.DeepEqual(plan, want) {
		t.Errorf("%+v %v, want %+v", plan, err, want)
	}
	if out, _ := l.runs(0, "audit", "list"); strings.Count(out, "pause") != 2 || !strings.Contains(out, "head 2:") {
		t.Error(out)
	}
}

func TestPauseUsage(t *testing.T) {
	l := newLake(t, twoTopics)
	for _, c := range []struct{ args, want string }{
		{"pause --reason r --yes", "write TOPIC or TOPIC:PARTITION, or --all"},
		{"pause orders --all --reason r --yes", "write TOPIC or TOPIC:PARTITION, or --all"},
		{"pause order --reason r --yes", "topic order is not in topics: write one of orders, users"},
		{"pause orders:x --reason r --yes", "names no partition"},
		{"pause orders --yes", "--reason"},
		{"resume orders --yes", "--reason"},
		{"pause orders --reason r", "--yes"},
		{"audit verify --head 3", "SEQ:HASH"},
	} {
		if out, errs := l.runs(2, strings.Fields(c.args)...); out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q %q, want %q", c.args, out, errs, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(l.Dir, "lake", "_sluice", "p")); err == nil {
		t.Error("something was written")
	}
}

func entryFile(l *lake, seq string) string {
	return filepath.Join(l.Dir, "lake", "_sluice", "p", "ops", strings.Repeat("0", 20-len(seq))+seq+".json")
}

func TestAudit(t *testing.T) {
	l := newLake(t, twoTopics)
	if out, _ := l.runs(0, "audit", "list"); !strings.Contains(out, "the log is empty") {
		t.Error(out)
	}
	l.runs(0, "pause", "orders", "--operator", "ada\x1b[2J", "--reason", "first\nsecond", "--yes")
	l.runs(0, "resume", "orders", "--operator", "eva", "--reason", "done", "--yes")
	l.runs(0, "pause", "users", "--operator", "eva", "--reason", "later", "--yes")
	out, _ := l.runs(0, "audit", "list")
	for _, want := range []string{`ada\x1b[2J@`, `first\nsecond`, "resume orders", "pause users", "\nhead 3:"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	head := strings.TrimSpace(out[strings.LastIndex(out, "head ")+len("head "):])
	if out, _ := l.runs(0, "audit", "verify", "--head", head); !strings.Contains(out, "is what was written: 3 entries, head "+head) {
		t.Error(out)
	}
	out, _ = l.runs(0, "audit", "list", "--output", "json", "--since", "1ns")
	var r admin.AuditReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Entries) != 0 || r.Head.String() != head {
		t.Errorf("%v: %s", err, out)
	}

	// A byte of an entry in the middle is changed: audit verify and audit list report that entry.
	good := read(t, entryFile(l, "2"))
	if err := os.WriteFile(entryFile(l, "2"), []byte(strings.Replace(good, "done", "dune", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.runs(1, "audit", "verify"); !strings.HasPrefix(out, "seq 2: its bytes are not those") || !strings.Contains(out, "is NOT what was written") {
		t.Error(out)
	}
	if out, _ := l.runs(1, "audit", "list"); !strings.Contains(out, "seq 2: its bytes") || !strings.Contains(out, "pause users") {
		t.Error(out)
	}
	if _, errs := l.runs(1, "pause", "orders", "--reason", "r", "--yes"); !strings.Contains(errs, "broken at seq 2") || !strings.Contains(errs, "connector audit verify") {
		t.Error(errs)
	}
	holdsEverything(t, l, hold.OperationsLog, "broken at seq 2")
	if err := os.WriteFile(entryFile(l, "2"), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}

	// Without the newest entry the log is still consistent; only --head reveals the deletion.
	if err := os.Remove(entryFile(l, "3")); err != nil {
		t.Fatal(err)
	}
	l.runs(0, "audit", "verify")
	if out, _ := l.runs(1, "audit", "verify", "--head", head, "--output", "json"); !strings.Contains(out, `"seq": 3`) || !strings.Contains(out, "cut off") {
		t.Error(out)
	}
}

// holdsEverything expects a new member to hold all topics for this reason and detail, and not to join its group.
func holdsEverything(t *testing.T, l *lake, reason hold.Reason, detail string) {
	t.Helper()
	s, err := app.New(t.Context(), mustLoad(t, l.Config, nil), app.Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var r health.Report
	l.Await("everything is held", func() bool {
		r = s.Report()
		return slices.ContainsFunc(r.Holds, func(h health.Hold) bool {
			return h.Reason == string(reason) && strings.Contains(h.Detail, detail) && h.Partition == -1
		})
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r.Joined || len(r.Partitions) > 0 {
		t.Errorf("it began: %+v", r)
	}
	if !anyDependency(r, "operations_log", detail) {
		t.Errorf("dependencies are %+v", r.Dependencies)
	}
}

func anyDependency(r health.Report, name, text string) bool {
	for _, d := range r.Dependencies {
		if d.Name == name && d.Failing != nil && strings.Contains(d.Error, text) {
			return true
		}
	}
	return false
}

func TestDescribe(t *testing.T) {
	moves := []opslog.Move{{Topic: "orders", Partition: 3, From: 7, To: 9}, {Topic: "orders", Partition: 4, From: -1, To: 0}}
	entry := func(b opslog.Body) opslog.Entry {
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		return opslog.Entry{Kind: b.Kind(), Body: raw}
	}
	for want, e := range map[string]opslog.Entry{
		"pause everything, orders:3": entry(opslog.Pause{Targets: []opslog.Target{opslog.All(), {Topic: "orders", Partition: 3}}}),
		"offsets set of table t begins: orders:3 from 7 to 9, orders:4 from no position to 0": entry(opslog.OffsetsIntent{Command: "offsets set", Table: "t", Moves: moves}),
		"offsets skip of table t: orders:3 from 7 to 9: version 12 (operation 5)": entry(opslog.OffsetsDone{
			Intent: 5, Command: "offsets skip", Table: "t", Moves: moves[:1], Version: 12, Outcome: opslog.Committed,
		}),
		"offsets skip of table t: orders:3 from 7 to 9: lost (operation 5): somebody moved it": entry(opslog.OffsetsDone{
			Intent: 5, Command: "offsets skip", Table: "t", Moves: moves[:1], Version: -1, Outcome: opslog.Conflict, Detail: "somebody moved it",
		}),
		"snapshot of the state at operation 7":           entry(opslog.Snapshot{Format: 1, Of: opslog.Head{Seq: 7, Hash: strings.Repeat("a", 64)}}),
		"part of a snapshot of the state at operation 7": entry(opslog.SnapshotPart{Of: opslog.Head{Seq: 7, Hash: strings.Repeat("a", 64)}}),
		`flood.allow {"topic":"a"}`:                      {Kind: "flood.allow", Body: json.RawMessage(`{"topic":"a"}`)},
	} {
		if got := admin.Describe(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAudit_HostileEntry has an entry of the operations log with a topic name that controls terminals. The commands
// audit list and audit verify must escape the name.
func TestAudit_HostileEntry(t *testing.T) {
	target := opslog.Topic("a\x1b[2J")
	log := opslog.Open(objstore.NewMem(), "p", opslog.Options{Guard: reliability.NewGuard("log", reliability.Config{}, slog.New(slog.DiscardHandler), nil)})
	e, err := log.Append(t.Context(), opslog.Operation{Operator: "ada", Reason: "r", Body: opslog.Pause{Targets: []opslog.Target{target}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	report := admin.AuditReport{Entries: []admin.RecordedEntry{{Entry: e, Hash: e.Hash()}}, Unreadable: []admin.UnreadableEntry{{Seq: 2, Why: "move {a\x1b[2J}"}}}
	var out strings.Builder
	if err := printAudit(&out, false, &report); err != nil {
		t.Fatal(err)
	}
	if err := printVerified(&out, opslog.Report{Findings: []opslog.Finding{{Seq: 2, Why: "move {a\x1b[2J}"}}}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), `a\x1b[2J`) {
		t.Errorf("%q", out.String())
	}
}

// TestPause_PatternTopics pauses one of two topics that a pattern matches. The pause can be ended even if the
// configuration no longer has the topic.
func TestPause_PatternTopics(t *testing.T) {
	l := newLake(t, "topics:\n  sales: {pattern: 'sales\\.[a-z]+', deny: []}")
	l.Create("sales.eu", 1)
	l.Create("sales.us", 1)
	l.Produce("sales.eu", 2, 0)
	l.Produce("sales.us", 2, 0)
	l.runs(0, "pause", "sales.eu", "--reason", "r", "--yes")
	if _, errs := l.runs(2, "pause", "users", "--reason", "r", "--yes"); !strings.Contains(errs, `write one of sales\.[a-z]+`) {
		t.Error(errs)
	}
	l.runs(1, "run", "--until-current")
	if eu, us := l.Rows("sales.eu")["sales.eu:0"], l.Rows("sales.us")["sales.us:0"]; len(eu) != 0 || len(us) != 2 {
		t.Errorf("rows of what is paused: %v, of the other: %v", eu, us)
	}
	text := read(t, l.Config)
	if err := os.WriteFile(l.Config, []byte(strings.Replace(text, "deny: []", "deny: [sales.eu]", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.runs(0, "resume", "sales.eu", "--reason", "r", "--yes"); !strings.Contains(out, "resumed sales.eu") {
		t.Error(out)
	}
	if _, errs := l.runs(0, "resume", "users", "--reason", "r", "--yes"); !strings.Contains(errs, "users is not paused") {
		t.Error(errs)
	}
}

// TestPause_StoreDown expects commands to end at their time limit while the store is down, and to name the cause.
func TestPause_StoreDown(t *testing.T) {
	l := newLake(t, twoTopics)
	path := write(t, strings.ReplaceAll(read(t, l.Config), "storage: {url: \"file://"+filepath.ToSlash(l.Dir)+"/lake\"}",
		"storage: {url: \"s3://bucket\", s3: {endpoint: \"http://127.0.0.1:1\", region: r, path_style: true, access_key: a, secret_key: s}}"))
	for _, args := range []string{"pause orders --reason r --yes", "resume --all --reason r --yes", "audit list", "audit verify"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel() // each command may take 3 s, and a busy machine needs that time for one request
			code, out, errs := connectorRun(t, append(strings.Fields(args), "--timeout", "3s", "--config", path)...)
			if code != exitDependency || out != "" || !strings.Contains(errs, "connection refused") {
				t.Errorf("exit code %d, %q %q", code, out, errs)
			}
		})
	}
}

// TestAudit_AbsurdObject expects that an object with an impossible seq in the operations log neither makes audit list
// and audit verify panic nor hides the problems of other entries.
func TestAudit_AbsurdObject(t *testing.T) {
	l := newLake(t, twoTopics)
	l.runs(0, "pause", "orders", "--operator", "ada", "--reason", "why", "--yes")
	stray := entryFile(l, "9223372036854775807")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.runs(0, "audit", "list"); !strings.Contains(out, "pause orders") || !strings.Contains(out, "head 1:") {
		t.Error(out)
	}
	if out, _ := l.runs(1, "audit", "verify"); !strings.Contains(out, "_sluice/p/ops/09223372036854775807.json: it is no entry") || !strings.Contains(out, "is NOT what was written: 1 entries, head 1:") {
		t.Error(out)
	}
	changed := entryFile(l, "1")
	body := []byte(read(t, changed))
	body[20] ^= 1
	if err := os.WriteFile(changed, body, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := l.runs(1, "audit", "verify"); !strings.Contains(out, "seq 1: its bytes are not") {
		t.Error(out)
	}
}
