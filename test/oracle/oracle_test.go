//go:build lab

// Package oracle_test tests the oracle: it accepts a table that deltalake wrote from records that librdkafka read, and
// it detects each kind of damage to a single row.
package oracle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"sluice/test/gen"
	"sluice/test/lab"
)

func TestOracle(t *testing.T) {
	ctx := t.Context()
	kafka, err := lab.StartKafka(ctx, lab.KafkaOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, kafka.Stop)
	minio, err := lab.StartMinIO(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, minio.Stop)
	if _, err := lab.CreateBucket(ctx, minio.Endpoint, "oracle"); err != nil {
		t.Fatal(err)
	}
	ledger := produce(ctx, t, kafka)

	const good = "s3://oracle/good"
	write(ctx, t, kafka, good, minio.Endpoint, "")
	out, err := check(ctx, lab.Python, ledger, good, minio.Endpoint, "--predicates", "3")
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the oracle refuses a good table: %v", err)
	}
	// --held says that a partition was held, so records of it must be missing. The oracle must refuse a table with all
	// records.
	out, err = check(ctx, lab.Python, ledger, good, minio.Endpoint, "--readers", "polars", "--held", "0:100")
	if err == nil || !strings.Contains(string(out), "foreign") {
		t.Errorf("the oracle accepts rows beyond a hold: %s", out)
	}
	testCopies(ctx, t, ledger, good, minio.Endpoint)
	readers := []string{"deltalake", "duckdb", "polars"}
	for i, damage := range []string{"missing", "foreign", "duplicate", "altered", "disordered"} {
		table := filepath.Join(t.TempDir(), damage)
		write(ctx, t, kafka, table, "", damage)
		out, err := check(ctx, lab.Python, ledger, table, "", "--readers", readers[i%len(readers)])
		if err == nil || !strings.Contains(string(out), `"`+damage+`": 1,`) {
			t.Errorf("the oracle does not see a row %s: %s", damage, out)
		}
	}
	checkWithMore(ctx, t, ledger, good, minio.Endpoint)
}

// testCopies takes records out of the ledger and calls them copies. Of all copies of the same record, the oracle must
// accept exactly one row.
func testCopies(ctx context.Context, t *testing.T, ledger *gen.Ledger, table, endpoint string) {
	t.Helper()
	text, err := os.ReadFile(ledger.Path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	rest := &gen.Ledger{Path: filepath.Join(t.TempDir(), "rest.csv")}
	if err := os.WriteFile(rest.Path, []byte(lines[0]+strings.Join(lines[3:], "")), 0o644); err != nil {
		t.Fatal(err)
	}
	first, second := strings.TrimSpace(lines[1]), strings.TrimSpace(lines[2])
	absent := "orders,0,1000000000," + strings.Repeat("0", 32)
	for _, c := range []struct{ copies, finding string }{
		{first + ",a\n" + absent + ",a\n" + second + ",b\n", ""},
		{first + ",a\n" + second + ",a\n", `"duplicate": 1,`},
		{first + ",a\n" + second + ",b\n" + absent + ",c\n", `"missing": 1,`},
		{first + ",a\n" + second[:len(second)-1] + "x,b\n", `"altered": 1,`},
	} {
		path := filepath.Join(t.TempDir(), "copies.csv")
		if err := os.WriteFile(path, []byte("topic,partition,offset,hash,of\n"+c.copies), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := check(ctx, lab.Python, rest, table, endpoint, "--readers", "duckdb", "--no-order", "--copies", path)
		if (err == nil) != (c.finding == "") || !strings.Contains(string(out), c.finding) {
			t.Errorf("copies %q: %v: %s", c.copies, err, out)
		}
	}
}

// produce fills a topic with every codec and with transactions, some of which it aborts.
func produce(ctx context.Context, t *testing.T, kafka *lab.Kafka) *gen.Ledger {
	t.Helper()
	if err := kafka.CreateTopic(ctx, "orders", 4, nil); err != nil {
		t.Fatal(err)
	}
	ledger, err := gen.NewLedger(filepath.Join(t.TempDir(), "ledger.csv"))
	if err != nil {
		t.Fatal(err)
	}
	orders := gen.Orders{Seed: 11, Span: 5000, Odd: 200}
	var producers errgroup.Group
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd", "lz4"} {
		p := gen.Producer{
			Brokers: []string{kafka.Addr}, Topic: "orders", Orders: orders, From: int64(i) * 2000, Records: 2000, Codec: codec,
		}
		if i == 5 {
			p.Transaction, p.Name = 100, "oracle"
		}
		producers.Go(func() error { return p.Run(ctx, ledger) })
	}
	if err := errors.Join(producers.Wait(), ledger.Close()); err != nil {
		t.Fatal(err)
	}
	// Of 20 transactions of 100 records every third is aborted.
	if want := int64(5*2000 + 14*100); ledger.Len() != want {
		t.Fatalf("the ledger has %d entries, want %d", ledger.Len(), want)
	}
	return ledger
}

// write copies the topic to a table without code of the connector. damage names the damage to do to one row, "" for
// none.
func write(ctx context.Context, t *testing.T, kafka *lab.Kafka, table, endpoint, damage string) {
	t.Helper()
	out, err := lab.Python(ctx, "oracle/selftest.py", "--brokers", kafka.Addr, "--topic", "orders", "--table", table,
		"--endpoint", endpoint, "--break", damage)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// runScript runs a Python script: [lab.Python] or [lab.Spark].
type runScript func(ctx context.Context, script string, args ...string) ([]byte, error)

func check(ctx context.Context, run runScript, ledger *gen.Ledger, table, endpoint string, args ...string) ([]byte, error) {
	args = append([]string{"--ledger", ledger.Path, "--table", table, "--endpoint", endpoint}, args...)
	return run(ctx, "oracle/check.py", args...)
}

func stop(t *testing.T, end func() error) {
	t.Helper()
	if err := end(); err != nil {
		t.Error(err)
	}
}
