package delta_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// TestCheckpoints_NoTemporaryFile: if no temporary file can be written, commits continue without a checkpoint, and one
// log line says what to do. Once the directory exists, a commit writes the checkpoint.
func TestCheckpoints_NoTemporaryFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, reg, dir := objstore.NewMem(), prometheus.NewRegistry(), filepath.Join(t.TempDir(), "later")
		var log bytes.Buffer
		tab := open(t, mem, measured(reg), func(o *delta.Options) {
			o.TempDir, o.Logger = dir, slog.New(slog.NewTextHandler(&log, nil))
		})
		load(t, tab)
		random := rand.New(rand.NewPCG(1, 2))
		adds := make([]deltalog.Action, 40_000)
		for i := range adds { // so many that the checkpoint does not fit into the memory of a spool
			stats := make([]byte, 256)
			for j := range stats {
				stats[j] = byte('a' + random.IntN(26))
			}
			adds[i] = deltalog.Add{Path: fmt.Sprintf("part-%05d.parquet", i), Size: 1, Stats: string(stats) + fmt.Sprint(random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())}
		}
		foreign(t, mem, adds...)
		commits := func(n int) {
			for range n {
				appendCommits(t, tab, 1)
				synctest.Wait()
			}
		}
		wants := func(written, failed float64) {
			t.Helper()
			const name = "sluice_delta_checkpoints_total"
			if ok, no := metric(t, reg, name, "ok"), metric(t, reg, name, "failed"); ok != written || no != failed {
				t.Errorf("%v checkpoints and %v failed, want %v and %v", ok, no, written, failed)
			}
		}
		commits(30)
		wants(0, 3)
		if got := log.String(); strings.Count(got, "failed to write a checkpoint") != 1 || !strings.Contains(got, dir+" takes none: set temp_dir") {
			t.Errorf("it is not said once what to do:\n%s", got)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		commits(10)
		wants(1, 3)
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left behind, %v", left, err)
		}
		tab.Close()
	})
}
