//go:build lab

package oracle_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/test/lab"
)

// TestPartitionedTable: deltalake, DuckDB and Polars read a partitioned table with hostile values, all rows and those
// with each value, from files and from a store whose clients encode keys.
func TestPartitionedTable(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "lake")
		store, err := objstore.NewLocal(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		partitionedTable(t, store, dir, "")
	})
	t.Run("minio", func(t *testing.T) {
		minio, err := lab.StartMinIO(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, minio.Stop)
		if _, err := lab.CreateBucket(t.Context(), minio.Endpoint, "lake"); err != nil {
			t.Fatal(err)
		}
		store, err := objstore.NewS3(t.Context(), objstore.S3Config{
			Bucket: "lake", Endpoint: minio.Endpoint, Region: lab.Region, PathStyle: true, AccessKey: lab.AccessKey, SecretKey: lab.SecretKey,
		})
		if err != nil {
			t.Fatal(err)
		}
		partitionedTable(t, objstore.Sub(store, "table"), "s3://lake/table", minio.Endpoint)
	})
}

func partitionedTable(t *testing.T, store objstore.Store, url, endpoint string) {
	ctx, dir := t.Context(), t.TempDir()
	columns, err := schema.ParseDDL("id bigint not null, country string, at timestamp")
	if err == nil {
		columns, err = columns.WithPartitionBy([]string{"country", "hour(at)", "bucket(4, id)"})
	}
	if err != nil {
		t.Fatal(err)
	}
	guard := reliability.NewGuard("store", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Second, Max: time.Second}, Failures: 5, OpenFor: time.Minute, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil)
	table, err := delta.Open(store, delta.Options{Pipeline: "p", Engine: "sluice/test", Schema: columns, Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	s, err := table.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	builder, err := decode.JSON{}.Builder(s.Schema)
	if err != nil {
		t.Fatal(err)
	}
	of := connector.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}}
	countries := []string{
		"DE", "", "..", "a/b", "%2F", "a%20b", "\n", "😀", " ", "it's", "a=b", `back\slash`, "DE", "null", "+", "a+b", "&", "~", "(x)", "a,b;c", "!$@", "<>|`", "é",
		strings.Repeat("x", 255-len("country=")),
	}
	var expected []map[string]any
	for id, country := range countries {
		value, err := json.Marshal(map[string]any{"id": id, "country": country, "at": fmt.Sprintf("2026-01-31T%02d:59:59Z", id%3)})
		if err != nil {
			t.Fatal(err)
		}
		if err := builder.Add(of, &connector.Record{Offset: int64(id), Timestamp: 1_700_000_000_000, Value: value}); err != nil {
			t.Fatal(err)
		}
		expected = append(expected, map[string]any{
			"id": id, "country": country, "at_hour": fmt.Sprintf("2026-01-31-%02d", id%3), "id_bucket": bucket(uint64(id)) % 4,
		})
	}
	rows := builder.Seal()
	staged, err := table.Stage(ctx, s, "b", []connector.Piece{{Rows: rows, To: rows.NumRows()}}, func(int, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	c := &connector.Commit{Operation: "STREAMING UPDATE", Staged: staged, Txns: []connector.Txn{{AppID: of.AppID("p"), Version: int64(len(countries))}}}
	if _, err := table.Commit(ctx, c, func(*connector.Snapshot) error { return nil }); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, "expected.json")
	text, err := json.Marshal(expected)
	if err == nil {
		err = os.WriteFile(want, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := lab.Python(ctx, "oracle/partitions.py", url, endpoint, want)
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// bucket hashes a number as Iceberg's specification says, written from its text for this test alone.
func bucket(value uint64) uint32 {
	h := uint32(0)
	for range 2 {
		k := uint32(value) * 0xcc9e2d51
		k = (k<<15 | k>>17) * 0x1b873593
		h ^= k
		h = (h<<13|h>>19)*5 + 0xe6546b64
		value >>= 32
	}
	h ^= 8
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return h & 0x7fffffff
}
