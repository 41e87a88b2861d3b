//go:build !nodemo

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
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
