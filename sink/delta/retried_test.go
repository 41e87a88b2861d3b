package delta_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// TestRetries_NameTheirBatch: if a request of a commit fails in any step, the guard retries it, and the log line of the
// retry names the batch that waits.
func TestRetries_NameTheirBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer // written by the guard's logger, which serializes the lines
		guard := reliability.NewGuard("store", reliability.Config{
			Backoff: reliability.Backoff{Initial: time.Second, Max: time.Second}, Failures: 1000, OpenFor: time.Minute, Successes: 1,
		}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
		mem := objstore.NewMem()
		failing, failed := false, make(map[objstore.OpKind]int)
		store := objstoretest.NewFaulty(mem, func(op objstore.Op) objstoretest.Fault {
			if n := failed[op.Kind]; failing && n < 2 {
				failed[op.Kind]++
				return unavailable
			}
			return ok
		})
		tab := open(t, store, func(o *delta.Options) { o.Guard = guard })
		s := appendCommits(t, tab, 3)
		failing = true
		files, err := tab.Stage(t.Context(), s, "b-7", []connector.Piece{rows(s.Schema, 0, 9, 12)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		commit := rowRange{0, 9, 12}.commit(files)
		commit.Batch = "b-7"
		if _, err := tab.Commit(t.Context(), commit, rowRange{0, 9, 12}.pre); err != nil {
			t.Fatal(err)
		}
		if failed[objstore.OpPut] == 0 || failed[objstore.OpPutIfAbsent] == 0 || failed[objstore.OpGet] == 0 {
			t.Errorf("not every operation failed once: %v", failed)
		}
		retries := 0
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, "msg=retry") {
				continue
			}
			retries++
			if !strings.Contains(line, "batch_id=b-7") {
				t.Errorf("no batch: %s", line)
			}
		}
		if retries < 6 {
			t.Errorf("%d retries were logged:\n%s", retries, log.String())
		}
	})
}
