//go:build lab && long && linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

const (
	scaleValues  = 10_000  // the number of different values of the partition column
	scaleBacklog = 300_000 // the number of records, about 30 for each value
)

// TestScalePartitions moves a backlog whose records belong to 10 000 table partitions in random order. The member must
// keep within memory.limit and 15 % more, and each record must have one row, as DuckDB reads the table.
// E2E_SCALE_PARTITIONS names a file that receives the figures.
func TestScalePartitions(t *testing.T) {
	s := newScene(t, 4)
	s.orders.Odd = 0
	s.produce(scaleBacklog)
	column := "order_id_bucket"
	path, _ := s.config(littleMemory, func(c *settings) {
		c.own = fmt.Sprintf(`partition_by: ["bucket(%d, order_id) AS %s"]`, scaleValues, column)
	})
	began := time.Now()
	p, err := lab.StartProcess("until-current", filepath.Join(s.dir, "until-current.log"), environment(), shared.binary, "run", "--until-current", "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	peak, _ := s.watch(s.ctx, p, scaleLasts)
	took := time.Since(began)
	if code := p.ExitCode(); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.Tail())
	}
	if peak > mostResident && bounded() {
		t.Errorf("%d MiB resident, the limit and 15 %% are %d", peak>>20, mostResident>>20)
	}
	const says = "a batch has too many small data files"
	if text, err := os.ReadFile(filepath.Join(s.dir, "until-current.log")); err != nil || !strings.Contains(string(text), says) {
		t.Errorf("%v: the member does not warn that %s", err, says)
	}

	values, sizes, versions, total := map[string]bool{}, []int64{}, 0, int64(0)
	commits := s.commits()
	for _, c := range commits {
		if len(c.Adds) > 0 {
			versions++
		}
		for _, add := range c.Adds {
			if v := add.PartitionValues[column]; v != nil {
				values[*v] = true
			}
			sizes = append(sizes, add.Size)
			total += add.Size
		}
	}
	if len(values) != scaleValues || tablelog.Rows(commits) != scaleBacklog {
		t.Errorf("%d values and %d rows, want %d and %d", len(values), tablelog.Rows(commits), scaleValues, scaleBacklog)
	}
	slices.Sort(sizes)
	user, system := p.Usage()
	figures := fmt.Sprintf("| records | values | commits | files | median size | largest | all files | seconds | CPU, s | peak RSS, MiB |\n"+
		"|---|---|---|---|---|---|---|---|---|---|\n| %d | %d | %d | %d | %d | %d | %d MiB | %.0f | %.0f | %d |\n",
		scaleBacklog, len(values), versions, len(sizes), sizes[len(sizes)/2], sizes[len(sizes)-1], total>>20,
		took.Seconds(), (user + system).Seconds(), peak>>20)
	t.Logf("memory.limit %s\n%s", limited, figures)
	if path := os.Getenv("E2E_SCALE_PARTITIONS"); path != "" {
		if err := os.WriteFile(path, []byte(figures), 0o644); err != nil {
			t.Error(err)
		}
	}
	s.checkSets("--no-order", "--readers", "duckdb", "--computed", column)
}
