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
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// TestDemo_Keep: demo --keep prints five requests and a token with which the member accepts them. The file of tokens
// must not contain the token itself, and must be deleted when the command ends.
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
	lines, token, requests := bufio.NewScanner(out), "", 0
	for requests < 5 && lines.Scan() {
		command := strings.TrimSpace(lines.Text())
		if secret, found := strings.CutPrefix(command, "TOKEN="); found {
			token = secret
		}
		if !strings.HasPrefix(command, "curl ") {
			continue
		}
		requests++
		address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(command)
		if code, body := apiCurl(t, strings.Replace(command, address, "localhost:8090", 1), token, address); code != http.StatusOK {
			t.Errorf("%s: %d %s", command, code, body)
		}
	}
	content := read(t, filepath.Join(dir, "tokens"))
	if requests != 5 || token == "" || strings.Contains(content, token) {
		t.Errorf("%d requests, token %q, file of tokens %q", requests, token, content)
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "tokens")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of tokens stays: %v", err)
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
