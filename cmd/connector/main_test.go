package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/reliability/panics"
)

// asConnector is a variable with which the binary of the tests is the program, for tests that need another process.
const asConnector = "SLUICE_TEST_AS_CONNECTOR"

// TestMain runs eight parallel tests at a time instead of one per core, because most of them wait for a time limit or
// for a running member. It does not do so with the race detector, with which the tests compute for longer than they
// wait, nor if the flag -parallel is given.
func TestMain(m *testing.M) {
	if os.Getenv(asConnector) != "" {
		main() // exits
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && !raceDetector {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err) // the testing package has this flag, unless it changes
		}
	}
	os.Exit(m.Run())
}

// connectorRun runs the program in this process.
func connectorRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func expect(t *testing.T, wantCode int, wantOut, wantErr string, args ...string) {
	t.Helper()
	code, out, errs := connectorRun(t, args...)
	if code != wantCode {
		t.Errorf("%v: exit code %d, want %d", args, code, wantCode)
	}
	if !strings.Contains(out, wantOut) || wantOut == "" && out != "" {
		t.Errorf("%v: stdout %q, want %q", args, out, wantOut)
	}
	if !strings.Contains(errs, wantErr) || wantErr == "" && errs != "" {
		t.Errorf("%v: stderr %q, want %q", args, errs, wantErr)
	}
}

func TestUsage(t *testing.T) {
	expect(t, 0, "Usage:", "")
	expect(t, 0, "Exit codes: 0 ok", "", "--help")
	expect(t, 0, "Available Commands:", "", "config")
	expect(t, 2, "", `connector: unknown command "rum" for "connector"`, "rum")
	expect(t, 2, "", "connector: unknown flag: --nothing", "validate", "--nothing")
	expect(t, 2, "", `unknown command "extra"`, "validate", "extra")
	expect(t, 2, "", `--output "xml" is unknown: write table or json`, "version", "--output", "xml")
	expect(t, 2, "", `--output "wide" is unknown: write table or json`, "version", "--output", "wide")
	expect(t, 2, "", `--output "xml" is unknown: write table, wide or json`, "holds", "--output", "xml")
}

// TestExitCode_Panic: a command that panics ends with an exit code of its own. The output has the stack, and not the
// data that caused the panic. The same holds for a panic that was caught below the command and returned as an error.
func TestExitCode_Panic(t *testing.T) {
	for name, op := range map[string]func() error{
		"in the command":  func() error { panic("secret") },
		"caught below it": func() error { return fail.Dependency(panics.Catch(func() error { panic("secret") })) },
	} {
		var errs bytes.Buffer
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return op() }}
		cmd.SetArgs([]string{})
		code := exitCodeOf(t.Context(), cmd, &errs)
		if code != exitInternal || !strings.Contains(errs.String(), "connector: internal error: panic of type string\nsluice/cmd/connector.") ||
			!strings.Contains(errs.String(), "main_test.go:") || strings.Contains(errs.String(), "secret") {
			t.Errorf("%s: exit code %d\n%s", name, code, &errs)
		}
	}
}

// TestHelp expects a description of every command and every flag.
func TestHelp(t *testing.T) {
	c := &cli{}
	for _, cmd := range c.root().Commands() {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short text %q", cmd.Name(), cmd.Short)
		}
		for line := range strings.Lines(cmd.Long) {
			if len(line) > 81 {
				t.Errorf("%s: a line of %d characters does not fit a terminal: %s", cmd.Name(), len(line), line)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	expect(t, 0, "sluice connector ", "", "version")
	code, out, _ := connectorRun(t, "version", "-o", "json")
	var b build
	if err := json.Unmarshal([]byte(out), &b); err != nil || code != 0 || b.Version == "" || !strings.HasPrefix(b.Go, "go") {
		t.Errorf("%d %v %s", code, err, out)
	}
}

// TestVersion_Build: the version that the program prints fits the way in which it was built: from a tag, from a commit,
// with changes, with a stamp, or without version control.
func TestVersion_Build(t *testing.T) {
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "e53f2de"}, {Key: "vcs.time", Value: "2026-11-22T14:21:38Z"}, {Key: "vcs.modified", Value: modified}}
	}
	const pseudo = "v0.0.0-20261122142138-e53f2de12345"
	for what, c := range map[string]struct {
		stamp string
		info  debug.BuildInfo
		want  string
	}{
		"a tag":                        {"", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: vcs("false")}, "v1.2.3, revision e53f2de"},
		"a commit":                     {"", debug.BuildInfo{Main: debug.Module{Version: pseudo}, Settings: vcs("false")}, pseudo + ", revision e53f2de"},
		"changes":                      {"", debug.BuildInfo{Main: debug.Module{Version: pseudo + "+dirty"}, Settings: vcs("true")}, pseudo + "+dirty, revision e53f2de with changes"},
		"a stamp":                      {"v1.2.3-4-ge53f2de", debug.BuildInfo{Main: debug.Module{Version: pseudo}, Settings: vcs("false")}, "v1.2.3-4-ge53f2de, revision e53f2de"},
		"a stamp outside a repository": {"v1.2.3", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "v1.2.3, unknown revision"},
		"go run":                       {"", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "unversioned, unknown revision"},
		"a toolchain before 1.24":      {"", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("false")}, "unversioned, revision e53f2de"},
		"no build info":                {"", debug.BuildInfo{}, "unversioned, unknown revision"},
	} {
		want := "sluice connector " + c.want + ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
		if got := buildOf(c.stamp, &c.info).String(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	if stamped != "" {
		t.Errorf("go test has the stamp %q", stamped)
	}
}

func TestValidate(t *testing.T) {
	expect(t, 0, shipped+": ok: topic orders goes to s3://lake/tables/orders as orders\n", "", "validate", "--config", shipped)
	expect(t, 2, "", "nowhere.yaml: cannot be opened: no such file or directory: name the file with --config", "validate", "-c", "nowhere.yaml")
	bad := write(t, "log: {level: loud}\n")
	code, out, errs := connectorRun(t, "validate", "-c", bad)
	if code != 2 || out != "" || !strings.Contains(errs, bad+`:1: log.level: "loud" is unknown: write debug, info, warn or error`+"\n") {
		t.Error(code, out, errs)
	}
	code, out, errs = connectorRun(t, "validate", "-c", bad, "--output", "json")
	var answer struct {
		Valid    bool
		Problems []config.Problem
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	if code != 2 || errs != "" || answer.Valid || len(answer.Problems) != 5 {
		t.Errorf("%d %q %+v", code, errs, answer)
	}
	last := answer.Problems[len(answer.Problems)-1]
	if d := cmp.Diff(config.Problem{File: bad, Line: 1, Key: "log.level", Text: `"loud" is unknown: write debug, info, warn or error`}, last); d != "" {
		t.Error(d)
	}
	expect(t, 0, `"valid": true`, "", "validate", "-c", shipped, "-o", "json")
}

// TestValidateWarns expects validate to print a warning without changing its exit code.
func TestValidateWarns(t *testing.T) {
	slow := write(t, strings.Replace(read(t, shipped), "drain: 20s", "drain: 60s", 1))
	expect(t, 0, ": ok: ", "warning: shutdown.drain: Kubernetes kills a pod 30s after SIGTERM", "validate", "-c", slow)
}

func TestConfigPrint(t *testing.T) {
	t.Setenv("KAFKA_GROUP_ID", "from-the-pod")
	expect(t, 0, "  group: from-the-pod # env KAFKA_GROUP_ID\n", "", "config", "print", "-c", shipped)
	expect(t, 2, "", "zzz: unknown key", "config", "print", "-c", write(t, "zzz: 1"))
	code, out, _ := connectorRun(t, "config", "print", "-c", shipped, "-o", "json")
	var rows []struct {
		Key, Origin string
		Value       any
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	found := 0
	for _, r := range rows {
		switch r.Key {
		case "kafka.group":
			found++
			if r.Value != "from-the-pod" || r.Origin != "env KAFKA_GROUP_ID" {
				t.Errorf("%+v", r)
			}
		case "queue.pause_at":
			found++
			if r.Value != 10000.0 {
				t.Errorf("%+v", r)
			}
		case "topics.orders.metadata_columns":
			found++
			if d := cmp.Diff([]any{"topic", "partition", "offset", "timestamp", "topic_id"}, r.Value); d != "" {
				t.Error(d)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d of 3 keys in\n%s", found, out)
	}
}

func TestProbe(t *testing.T) {
	status := http.StatusOK
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		if asked == "/elsewhere" {
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"reason":"not joined"}`))
	}))
	defer server.Close()

	expect(t, 0, "ok\n", "", "probe", "live", "--url", server.URL)
	if asked != "/health/live" {
		t.Error(asked)
	}
	expect(t, 0, "ok\n", "", "probe", "--url", server.URL+"/other")
	if asked != "/other" {
		t.Error(asked)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HEALTH_CHECK_PORT", port)
	expect(t, 0, "ok\n", "", "probe", "ready", "--config", shipped)
	if asked != "/health/ready" {
		t.Error(asked)
	}
	for _, code := range []int{http.StatusServiceUnavailable, http.StatusFound, http.StatusNoContent} {
		status = code
		expect(t, 1, "", strconv.Itoa(code), "probe", "--config", shipped)
	}
	status = http.StatusServiceUnavailable
	expect(t, 1, "", `503 Service Unavailable: {"reason":"not joined"}`, "probe", "ready", "--url", server.URL+"/")
	server.Close()
	expect(t, 3, "", "connector: probe: ", "probe", "--url", server.URL)
	expect(t, 2, "", "--url", "probe", "--url", "http://a b")
	expect(t, 2, "", `invalid argument "dead"`, "probe", "dead")
	expect(t, 2, "", "if any flags in the group [config url file] are set", "probe", "--url", server.URL, "--config", shipped)
	t.Setenv("HEALTH_CHECK_PORT", "")
	off := write(t, "health: {enabled: false}\npipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///d}\n"+
		"defaults: {schema: a int}\ntopics: {t: {}}\n")
	expect(t, 4, "", "health.enabled is false", "probe", "--config", off)
}

// TestProbeTimeout expects probe to fail for a process that accepts a connection and does not respond.
func TestProbeTimeout(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	expect(t, 3, "", "context deadline exceeded", "probe", "--timeout", "50ms", "--url", "http://"+l.Addr().String())
}

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:1": "127.0.0.1:1", "[::]:2": "127.0.0.1:2", "[::1]:3": "[::1]:3", "host:4": "host:4",
	} {
		if got := admin.Reachable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
