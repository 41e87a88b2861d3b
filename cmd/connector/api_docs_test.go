//go:build !nodemo

package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/laketest"
	"sluice/secure/tokens"
)

// TestAPIPage runs the examples of docs/api.md, in their order, against the API of a running member. The API must
// accept each, and the operations log must have their entries without the token.
func TestAPIPage(t *testing.T) {
	t.Parallel()
	commands := shellBlocks(read(t, filepath.Join("..", "..", "docs", "api.md")))
	if len(commands) < 7 || !strings.HasPrefix(commands[0], "TOKEN=") {
		t.Fatalf("commands: %q", commands)
	}
	l := newLake(t, "topics: {orders: {bad_records: dead_letter}}")
	shell := exec.CommandContext(t.Context(), "sh", "-c", commands[0])
	shell.Dir = filepath.Dir(l.Config)
	out, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	token, file := strings.TrimSpace(string(out)), filepath.Join(shell.Dir, "tokens")
	if _, err := tokens.Read(file); err != nil {
		t.Fatal(err)
	}
	// The page creates an operator, but its last section needs the role above it.
	line := read(t, file)
	if err := os.WriteFile(file, []byte(strings.Replace(line, "ada operator ", "ada replayer ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	l = l.as(`ops: {listen: ""}`, `ops: {listen: "127.0.0.1:0", tokens_file: "`+filepath.ToSlash(file)+`"}`)
	logger, log := newLogged(t)
	l.Logger = logger
	l.Create("orders", 2)
	l.Produce("orders", 3, 0, 1)
	for range 2 {
		if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("no JSON")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		l.Produce("orders", 1, 0)
	}
	l.start()
	l.Awaits("orders", map[string][]int64{"orders:0": {0, 1, 2, 4, 6}, "orders:1": {0, 1, 2}})
	address, _ := log.Lines(t, "ops API")[0]["address"].(string)
	for _, command := range commands[1:] {
		code, body := apiCurl(t, command, token, address)
		if code != http.StatusOK && code != http.StatusAccepted {
			t.Errorf("%s: %d %s", command, code, body)
		}
	}
	audit, _ := l.runs(exitOK, "audit", "list", "--output", "json")
	if !strings.Contains(audit, `"operator": "ada"`) || strings.Count(audit, `"id": `) != 9 || strings.Contains(log.String()+audit, token) {
		t.Error(audit)
	}
}

// words splits a command as a shell does, with quotes.
var words = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// apiCurl sends the request of a command curl of the page. It knows the flags that the page has.
func apiCurl(t *testing.T, command, token, address string) (code int, body string) {
	t.Helper()
	args := words.FindAllString(command, -1)
	for i := range args {
		args[i] = strings.Trim(strings.ReplaceAll(args[i], "$TOKEN", token), `'"`)
	}
	if args[0] != "curl" {
		t.Fatalf("%s: no test executes this command", command)
	}
	url, ok := strings.CutPrefix(args[len(args)-1], "http://localhost:8090/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/"+url, http.NoBody)
	if err != nil || !ok {
		t.Fatalf("%s: %v", command, err)
	}
	for rest := args[1 : len(args)-1]; len(rest) > 0; rest = rest[1:] {
		switch rest[0] {
		case "-s":
			continue
		case "--oauth2-bearer":
			r.Header.Set("Authorization", "Bearer "+rest[1])
		case "-H":
			name, value, _ := strings.Cut(rest[1], ": ")
			r.Header.Set(name, value)
		case "-X":
			r.Method = rest[1]
		case "--json":
			r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader(rest[1])), int64(len(rest[1]))
			r.Header.Set("Content-Type", "application/json")
		default:
			t.Fatalf("%s: flag %s is not understood here", command, rest[0])
		}
		rest = rest[1:]
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(b)
}

// TestOpsAPI_AddressInUse: if an address that an operator configured is in use, the run ends with an error. If the
// default address is in use, the member runs without the API.
func TestOpsAPI_AddressInUse(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	busy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	other := l.as(`ops: {listen: ""}`, `ops: {listen: "`+busy.Addr().String()+`"}`)
	if _, errs := other.runs(exitUsage, "run", "--until-current"); !strings.Contains(errs, "ops.listen: listen on "+busy.Addr().String()) {
		t.Error(errs)
	}
	if held, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:8090"); err == nil { // if this fails, another program uses the address, which serves the test as well
		defer func() { _ = held.Close() }()
	}
	usual := l.as("ops: {listen: \"\"}\n", "")
	if _, errs := usual.runs(exitOK, "run", "--until-current"); !strings.Contains(errs, "its default address is in use") {
		t.Error(errs)
	}
	l.Has("orders", laketest.UpTo(3, "orders:0"))
}
