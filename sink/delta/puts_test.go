package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

// deniesFile is a store that refuses the put of one data file.
type deniesFile struct {
	objstore.Store
	prefix string
	puts   atomic.Int64
}

func (s *deniesFile) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if strings.HasSuffix(key, ".parquet") {
		s.puts.Add(1)
		if strings.HasPrefix(key, s.prefix) {
			return errors.Join(s.Store.Put(ctx, key, body, mode), classify.Mark(errors.New("denied"), classify.Fatal))
		}
	}
	return s.Store.Put(ctx, key, body, mode)
}

// TestPartitioned_PutFails: if the put of one of many files fails, Stage returns its error, no more files are put, and
// none stays, not even one that was stored although its put failed.
func TestPartitioned_PutFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		store := &deniesFile{Store: mem, prefix: "id=20/"}
		tab, s := partitionedBy(t, store, ddl, "id")
		_, err := tab.Stage(t.Context(), s, "b", []connector.Piece{rows(s.Schema, 0, 0, 500)}, func(int, int64) {})
		holds(t, err, hold.StoreDenied, "denied")
		if n := store.puts.Load(); n < 21 || n > 40 {
			t.Errorf("%d files were put, the one at index 20 fails", n)
		}
		if left := files(t, mem); len(left) > 0 {
			t.Errorf("the store still has %d files", len(left))
		}
	})
}

// TestPartitioned_Crowded: a batch with very many small files is counted and logged with the partitions of the table.
// What its commit needs for them is counted as memory until Stage has returned and longer.
func TestPartitioned_Crowded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		columns, err := parse(t, ddl).WithPartitionBy([]string{"id"})
		if err != nil {
			t.Fatal(err)
		}
		tab := open(t, objstore.NewMem(), measured(reg), func(o *delta.Options) {
			o.Schema, o.Logger = columns, slog.New(slog.NewTextHandler(&log, nil))
		})
		s := load(t, tab)
		stage := func(n int64) (done int, encoded int64) {
			t.Helper()
			calls := 0
			staged, err := tab.Stage(t.Context(), s, fmt.Sprint("b", n), []connector.Piece{rows(s.Schema, 0, 0, n)}, func(d int, e int64) {
				calls++
				done, encoded = d, e
			})
			if err != nil || staged.Count != int(n) || calls != 2*int(n)+1 {
				t.Fatal(staged, calls, err)
			}
			return done, encoded
		}
		const says, metricName = "partition_by has too many different values", "sluice_delta_small_file_batches_total"
		stage(1000)
		if n := metric(t, reg, metricName); n != 0 || strings.Contains(log.String(), says) {
			t.Errorf("%v: %s", n, &log)
		}
		done, encoded := stage(1001)
		if n := metric(t, reg, metricName); n != 1 || strings.Count(log.String(), says) != 1 || !strings.Contains(log.String(), "partition_by=[id] files=1001 rows=1001") {
			t.Errorf("%v: %s", n, &log)
		}
		// An add has about 400 bytes of statistics here.
		if perFile := encoded / 1001; done != 1 || perFile < 1000 || perFile > 3000 {
			t.Errorf("%d pieces are done, %d bytes in memory for each file", done, perFile)
		}
		stage(1001)
		if n := metric(t, reg, metricName); n != 2 || strings.Count(log.String(), says) != 1 { // the log line is limited
			t.Errorf("%v: %s", n, &log)
		}
		stage(1)
		if !strings.Contains(log.String(), "no longer too many small data files") {
			t.Error(&log)
		}
	})
}
