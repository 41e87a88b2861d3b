package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/laketest"
)

// remote is a running member, and the flags with which commands use its API.
type remote struct {
	*lake
	log     *laketest.Log
	dir     string // of the files with the tokens
	address string
}

// startRemote starts a member of the lake with the API and a token for each role, which is the name of the role.
func startRemote(t *testing.T, l *lake) *remote {
	t.Helper()
	dir := t.TempDir()
	var lines strings.Builder
	for _, role := range []string{"viewer", "operator", "replayer", "admin"} {
		token := hush + "-" + role
		fmt.Fprintf(&lines, "%s %s %x\n", role, role, sha256.Sum256([]byte(token)))
		if err := os.WriteFile(filepath.Join(dir, role), []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &remote{dir: dir, lake: l.as(`ops: {listen: ""}`, `ops: {listen: "127.0.0.1:0", tokens_file: "`+filepath.ToSlash(file)+`"}`)}
	r.Logger, r.log = newLogged(t)
	r.start()
	r.Await("the API", func() bool { return len(r.log.Lines(t, "ops API")) > 0 })
	address, _ := r.log.Lines(t, "ops API")[0]["address"].(string)
	r.address = "http://" + address
	return r
}

// asks runs a command over the API with the token of a role, without a configuration file, and expects an exit code.
func (r *remote) asks(code int, role string, args ...string) (stdout, stderr string) {
	r.T.Helper()
	file := filepath.Join(r.dir, role)
	got, out, errs := connectorRun(r.T, append(args, "--server", r.address, "--token-file", file)...)
	if got != code {
		r.T.Errorf("%v: exit code %d, want %d\n%s\n%s", args, got, code, out, errs)
	}
	if strings.Contains(out+errs, hush) {
		r.T.Errorf("%v shows the token:\n%s\n%s", args, out, errs)
	}
	return out, errs
}

// TestServer: with --server a command shows what it shows without, and a change is in the operations log under the name
// of the token.
func TestServer(t *testing.T) {
	t.Parallel()
	_, corrected := newLetters(t)
	r := startRemote(t, corrected)
	for _, args := range []string{
		"offsets show", "offsets show --topic orders", "deadletters show orders:0@3", "deadletters list --limit 1 --code type_mismatch",
		"deadletters list --since 24h --state pending,void", "config print",
	} {
		args := append(strings.Fields(args), "--output", "json")
		if args[1] == "show" && args[0] == "deadletters" {
			args = args[:len(args)-2]
		}
		want, _ := r.runs(0, args...)
		got, _ := r.asks(0, "replayer", args...)
		var locally, remotely any
		if err := errors.Join(json.Unmarshal([]byte(want), &locally), json.Unmarshal([]byte(got), &remotely)); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if d := cmp.Diff(locally, remotely); d != "" {
			t.Errorf("%v (-without +over the API):\n%s", args, d)
		}
	}
	if out, _ := r.asks(0, "viewer", "deadletters", "list", "--limit", "2"); !strings.Contains(out, "orders:0@1 ") || strings.Contains(out, "orders:0@5 ") || !strings.Contains(out, "6 unresolved") {
		t.Error(out)
	}
	if out, _ := r.asks(0, "viewer", "config", "print"); !strings.Contains(out, "\npipeline: \"p\" # ") && !strings.HasPrefix(out, "pipeline: \"p\" # ") {
		t.Error(out)
	}

	out, errs := r.asks(0, "operator", "pause", "orders", "--reason", "hot disk", "--yes")
	if !strings.Contains(out, "orders (operation 1); members follow within") || errs != "" {
		t.Errorf("%q %q", out, errs)
	}
	if out, errs := r.asks(0, "operator", "pause", "orders", "--reason", "hot disk", "--yes"); out != "" || !strings.Contains(errs, "paused already: by operator") || !strings.Contains(errs, "nothing to do") {
		t.Errorf("%q %q", out, errs)
	}
	if out, errs := r.asks(4, "operator", "resume", "orders:0", "--reason", "why", "--yes"); out != "" || !strings.Contains(errs, r.address+": refused: ") || !strings.Contains(errs, "write orders instead of orders:0") {
		t.Errorf("%q %q", out, errs)
	}
	if out, _ := r.asks(1, "viewer", "holds", "--topic", "orders", "--timeout", "5m"); !strings.Contains(out, "paused") || !strings.Contains(out, "resume orders") {
		t.Error(out)
	}
	if out, _ := r.asks(0, "operator", "resume", "orders", "--dry-run"); out != "resume of pipeline p: orders\n" {
		t.Errorf("%q", out)
	}
	if out, _ := r.asks(0, "operator", "resume", "--all", "--reason", "cool", "--yes", "--output", "json"); !strings.Contains(out, `"operator": "operator"`) || !strings.Contains(out, `"once": {`) {
		t.Error(out)
	}
	r.asks(0, "operator", "holds", "recheck")
	r.asks(0, "operator", "flush", "orders", "--reason", "now", "--yes")
	r.asks(0, "operator", "deadletters", "allow", "orders", "--for", "10m", "--reason", "deploy", "--yes")
	r.asks(0, "replayer", "deadletters", "acknowledge", "orders:0@8", "--reason", "called", "--yes")
	r.asks(0, "replayer", "deadletters", "reopen", "--topic", "orders", "--state", "acknowledged", "--reason", "again", "--yes")
	r.asks(0, "replayer", "deadletters", "discard", "--topic", "orders", "--code", "type_mismatch", "--reason", "test", "--yes")
	r.asks(0, "replayer", "deadletters", "reopen", "orders:0@8", "--reason", "again", "--yes")
	want, _ := r.runs(0, "audit", "list")
	if got, _ := r.asks(0, "viewer", "audit", "list"); got != want || strings.Count(got, "operator@") != 5 || !strings.Contains(got, "head 9:") {
		t.Errorf("over the API\n%s\nwithout\n%s", got, want)
	}
}

// TestServer_Replay: with --server a replay is a job of the member. The command waits for its end, and prints what it
// prints without --server.
func TestServer_Replay(t *testing.T) {
	t.Parallel()
	_, corrected := newLetters(t)
	r := startRemote(t, corrected)
	out, errs := r.asks(0, "replayer", "deadletters", "replay-all", "orders", "--dry-run")
	if !strings.Contains(out, "replay 6 dead letters into ") || !strings.Contains(errs, "dry run: nothing was changed") {
		t.Errorf("%q %q", out, errs)
	}
	if out, errs := r.asks(0, "replayer", "deadletters", "replay-all", "orders", "--code", "syntax", "--reason", "why", "--yes"); out != "" || !strings.Contains(errs, "nothing to do") {
		t.Errorf("%q %q", out, errs)
	}
	out, _ = r.asks(1, "replayer", "deadletters", "replay-all", "--reason", "corrected", "--yes", "--output", "json")
	var result admin.ReplayResult
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Rows != 5 || result.Failed["type_mismatch"] != 1 || len(result.Commits) != 1 || result.Operation != 1 {
		t.Errorf("%+v %v: %s", result, err, out)
	}
	value := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(value, []byte(`{"n":8}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = r.asks(0, "replayer", "deadletters", "replay", "orders:0@8", "--value-file", value, "--reason", "by hand", "--yes")
	if !strings.Contains(out, "1 dead letter replayed\n") {
		t.Error(out)
	}
	r.Has("orders", laketest.UpTo(10, "orders:0"))
	if out, errs := r.asks(1, "replayer", "deadletters", "replay", "orders:0@77", "--reason", "why", "--yes"); out != "" || !strings.Contains(errs, ": not_found: there is no dead letter") {
		t.Errorf("%q %q", out, errs)
	}
}

// TestServer_JobEnds: the end of a job decides the exit code and the text of the command.
func TestServer_JobEnds(t *testing.T) {
	t.Parallel()
	states := map[string]struct {
		job  string
		code int
		want string
	}{
		"failed":    {`"state": "failed", "error": {"code": "dependency_unavailable", "detail": "the store is down"}`, exitDependency, "job j7: dependency_unavailable: the store is down"},
		"cancelled": {`"state": "cancelled", "cancelled_by": "eva", "cancel_reason": "wrong topic"`, exitRefused, "job j7 was cancelled by eva: wrong topic; repeat the command for the rest"},
		"stopped":   {`"state": "stopped", "member": "m3"`, exitDependency, "job j7: member m3 stopped; repeat the command for the rest"},
		"elsewhere": {"", exitDependency, "another member has begun this replay, as operation 12"},
	}
	for name, test := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && r.Header.Get("Idempotency-Key") == "" {
					t.Error("a request without a key")
				}
				body := `{"job": {"id": "j7", "ended": "2026-01-01T00:00:00Z", "rows": 2, ` + test.job + `}}`
				if test.job == "" {
					body = `{"job": null, "entry": {"seq": 12}}`
				}
				_, _ = w.Write([]byte(body))
			}))
			defer server.Close()
			code, out, errs := connectorRun(t, "deadletters", "replay-all", "--reason", "why", "--yes", "--server", server.URL)
			if code != test.code || !strings.Contains(errs, test.want) || (test.job != "") != strings.HasPrefix(out, "2 dead letters replayed\n") {
				t.Errorf("%d %q %q, want %d %q", code, out, errs, test.code, test.want)
			}
		})
	}
}

// TestServer_Usage: what --server does not go with is refused before a request is sent.
func TestServer_Usage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a request: %s", r.URL) }))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(hush), 0o644); err != nil { // others may read it: that is the test
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"table inspect --server URL", "connector table inspect always works itself, with the configuration, and has no --server: docs/commands.md lists the commands that have it"},
		{"audit verify --token-file TOKEN", "connector audit verify always works itself, with the configuration, and has no --token-file"},
		{"check --ca-file TOKEN", "has no --ca-file"},
		{"pause orders --reason r --yes --server URL --config x.yaml", "--config has no effect with --server: leave it out"},
		{"pause orders --reason r --yes --server URL --operator ada", "--operator has no effect with --server"},
		{"holds --server URL --member http://x:8080", "--member has no effect with --server"},
		{"deadletters show orders:0@1 --value --server URL", "--value has no effect with --server"},
		{"pause orders --reason r --yes --token-file TOKEN", "--token-file and --ca-file belong to --server"},
		{"members m1 --server URL", "leave out the ID"},
		{"pause orders --yes --server URL", `write --reason "why"`},
		{"loglevel", "write --server URL"},
		{"loglevel debug --server URL", `write --reason "why"`},
		{"loglevel loud --server URL", `invalid argument "loud"`},
		{"holds --server URL --token-file nowhere", "no such file"},
		{"holds --server=", "not the URL of a member"},
		{"holds --server http://ops.example.com:8090 --token-file TOKEN", "use https"},
	} {
		args := strings.Fields(strings.NewReplacer("URL", server.URL, "TOKEN", token).Replace(test.args))
		if code, out, errs := connectorRun(t, args...); code != exitUsage || out != "" || !strings.Contains(errs, test.want) || strings.Contains(errs, hush) {
			t.Errorf("%s: %d %q %q, want %q", test.args, code, out, errs, test.want)
		}
	}
	silent := httptest.NewServer(http.NotFoundHandler())
	defer silent.Close()
	code, _, errs := connectorRun(t, "holds", "--server", silent.URL, "--token-file", token)
	if code != exitDependency || !strings.Contains(errs, "404 Not Found, and not by an ops API") || !strings.Contains(errs, "chmod 600") || strings.Contains(errs, hush) {
		t.Errorf("%d %q", code, errs)
	}
}

// TestServer_LogLevel: an admin sets the level of the log of a running member; others may not.
func TestServer_LogLevel(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}")
	r := startRemote(t, l)
	if out, _ := r.asks(0, "viewer", "loglevel"); out != "info\n" {
		t.Errorf("%q", out)
	}
	if out, errs := r.asks(2, "viewer", "loglevel", "debug", "--reason", "why"); out != "" || !strings.Contains(errs, ": forbidden: this needs the role admin") {
		t.Errorf("%q %q", out, errs)
	}
	if out, _ := r.asks(0, "admin", "loglevel", "debug", "--dry-run"); out != "debug, before info\n" {
		t.Errorf("%q", out)
	}
	if out, _ := r.asks(0, "admin", "loglevel", "debug", "--reason", "why", "--output", "json"); !strings.Contains(out, `"before": "info"`) {
		t.Errorf("%q", out)
	}
	if out, _ := r.asks(0, "viewer", "loglevel"); out != "debug\n" {
		t.Errorf("%q", out)
	}
}

// TestServer_Documented: docs/commands.md lists exactly the commands that have --server.
func TestServer_Documented(t *testing.T) {
	t.Parallel()
	var have []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("server") != nil {
			have = append(have, strings.TrimPrefix(cmd.CommandPath(), "connector "))
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&cli{}).root())
	slices.Sort(have)
	page := read(t, filepath.Join("..", "..", "docs", "commands.md"))
	_, list, _ := strings.Cut(page, "These commands have `--server`: ")
	list, _, _ = strings.Cut(list, ".\n")
	documented := strings.Split(strings.ReplaceAll(strings.Trim(list, "`"), "\n", " "), "`, `")
	slices.Sort(documented)
	if !slices.Equal(have, documented) {
		t.Errorf("commands %q\ndocumented %q", have, documented)
	}
}
