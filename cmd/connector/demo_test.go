//go:build !nodemo

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

func runHere(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestDemo(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := runHere(t, "demo", "--records", "3000", "--dir", dir)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}
	table := filepath.Join(dir, "orders")
	for _, want := range []string{"rows      3000\n", table, "delta_scan('file://" + filepath.ToSlash(table) + "')", "polars.scan_delta", "DeltaTable(", "spark-sql"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in what it prints:\n%s", want, out)
		}
	}
	store, err := objstore.NewLocal(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	info, err := delta.Inspect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if info.Rows != 3000 {
		t.Errorf("%d rows, want 3000", info.Rows)
	}
	if code, _, errs := runHere(t, "demo", "--records", "10", "--dir", dir); code != exitRefused || !strings.Contains(errs, "already has a table") {
		t.Errorf("a second demo in the same directory: exit code %d, %q", code, errs)
	}
}

// TestDemo_Keep: demo --keep continues to produce, and prints commands and requests to try, which all work. Its files of
// tokens and configuration must not contain the token, and must be deleted when the command ends.
func TestDemo_Keep(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	dir := t.TempDir()
	out, printed := io.Pipe()
	defer func() { _ = out.Close() }()
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"demo", "--records", "100", "--dir", dir, "--keep"}, printed, &errs)
		_ = printed.Close()
	}()
	lines, token, requests, commands := bufio.NewScanner(out), "", 0, 0
	for requests < 6 && lines.Scan() {
		command := strings.TrimSpace(lines.Text())
		if secret, found := strings.CutPrefix(command, "TOKEN="); found {
			token = secret
		}
		if words, found := strings.CutPrefix(command, "connector "); found {
			commands++
			args := strings.Fields(words)
			if code, out, errs := connectorRun(t, patient(exitOK, args)...); code != exitOK {
				t.Errorf("%s: exit code %d\n%s%s", command, code, out, errs)
			}
			continue
		}
		if !strings.HasPrefix(command, "curl ") {
			continue
		}
		requests++
		address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(command)
		if strings.HasSuffix(command, "/health") {
			if code, body := get(t, "http://"+address+"/health"); !strings.Contains(body, `"pipeline": "demo"`) { // 503 until the member has joined
				t.Errorf("%s: %d %s", command, code, body)
			}
			continue
		}
		if code, body := apiCurl(t, strings.Replace(command, address, "localhost:8090", 1), token, address); code != http.StatusOK {
			t.Errorf("%s: %d %s", command, code, body)
		}
	}
	content := read(t, filepath.Join(dir, "tokens")) + read(t, filepath.Join(dir, "config.yaml"))
	if requests != 6 || commands != 5 || token == "" || strings.Contains(content, token) {
		t.Errorf("%d requests, %d commands, token %q, files %q", requests, commands, token, content)
	}
	awaitRows(t, filepath.Join(dir, "orders"), 100)
	stop()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	for _, file := range []string{"tokens", "config.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file %s stays: %v", file, err)
		}
	}
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// awaitRows waits until a table has more than some rows.
func awaitRows(t *testing.T, table string, above int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), laketest.HangGuard)
	defer cancel()
	for rowsOf(t, table) <= above {
		if err := reliability.Wait(ctx, 50*time.Millisecond); err != nil {
			t.Fatalf("the table has no more than %d rows", above)
		}
	}
}

func rowsOf(t *testing.T, table string) int64 {
	t.Helper()
	store, err := objstore.NewLocal(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	info, err := delta.Inspect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return info.Rows
}

// startDemo starts demo --keep as another process, and waits until it has printed what to try.
func startDemo(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "demo", "--records", "100", "--dir", dir, "--keep")
	cmd.Env, cmd.Stderr = append(os.Environ(), asConnector+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "/internal/v1/audit") {
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd
}

// TestDemo_KeepStopped: SIGTERM ends demo --keep with exit code 0. After kill -9 the table is whole, and the next demo
// says how to start again.
func TestDemo_KeepStopped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "stopped")
	demo := startDemo(t, dir)
	if err := demo.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := demo.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() }) {
		t.Errorf("after SIGTERM there are %v, %v", entries, err)
	}

	dir = filepath.Join(t.TempDir(), "killed")
	demo = startDemo(t, dir)
	awaitRows(t, filepath.Join(dir, "orders"), 100)
	if err := demo.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = demo.Wait() // "signal: killed"
	if rows := rowsOf(t, filepath.Join(dir, "orders")); rows <= 100 {
		t.Errorf("%d rows after kill -9", rows)
	}
	want := "orders already has a table: remove the directory with rm -r " + dir + ", or name another one with --dir"
	if code, _, errs := runHere(t, "demo", "--records", "10", "--dir", dir, "--keep"); code != exitRefused || !strings.Contains(errs, want) {
		t.Errorf("after kill -9: exit code %d, %q", code, errs)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runHere(t, "demo", "--records", "10", "--dir", dir); code != exitOK {
		t.Errorf("after rm -r: exit code %d\n%s%s", code, out, errs)
	}
}

func TestDemo_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"demo", "--records", "1000", "--dir", t.TempDir()}, &out, &errs); code == exitOK {
		t.Errorf("exit code 0\n%s", out.String())
	}
}

func TestDemo_InvalidFlags(t *testing.T) {
	if code, _, errs := runHere(t, "demo", "--records", "0"); code != exitUsage || !strings.Contains(errs, "--records") {
		t.Errorf("no records: exit code %d, %q", code, errs)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runHere(t, "demo", "--records", "1", "--dir", file); code != exitDependency && code != exitRefused {
		t.Errorf("a file as directory: exit code %d, %q", code, errs)
	}
}

func TestOrder_Deterministic(t *testing.T) {
	seen := map[string]bool{}
	for i := range 20_000 {
		_, value := order(i)
		if _, again := order(i); !bytes.Equal(value, again) {
			t.Fatalf("order %d differs", i)
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(string(value), `{"order_id":"`), `"`)
		if seen[id] {
			t.Fatalf("order id %s twice", id)
		}
		seen[id] = true
	}
}
