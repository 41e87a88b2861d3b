//go:build lab

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// TestPartitioned writes a table that is divided by a column, the day and a bucket. One of two members is killed with
// SIGKILL between the PUTs of a commit's data files, another one while the PUT of its commit is on its way. Then a
// replay of dead letters is killed and repeated. Each record must have exactly one row, in the files of its values, for
// readers with and without predicates. A computed day must be that of the row.
func TestPartitioned(t *testing.T) {
	t.Parallel()
	const bad = 3000
	s := newScene(t, 4).strict()
	s.orders.Odd = 0 // odd records have texts that a partition column cannot have, or stores as null
	divided := func(c *settings) {
		c.own = `partition_by: [status, "date(_kafka_timestamp) AS day", "bucket(4, customer_id)"]`
	}
	accepting := func(c *settings) { divided(c); withoutFlood(c) }
	refuses := func(c *settings) { divided(c); refusing(c) }
	var producers errgroup.Group
	for _, p := range []gen.Producer{s.correctable(bad), s.producer(bad, "zstd")} {
		producers.Go(func() error { return p.Run(s.ctx, s.ledger) })
	}
	if err := producers.Wait(); err != nil {
		t.Fatal(err)
	}
	stays := s.start(refuses)
	stays.awaitReady()
	proxy := s.proxy()
	dies := s.start(refuses, through(proxy))
	dies.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
	end := s.stream(1000)
	files := 0
	fault := proxy.Break(func(r *http.Request) bool {
		if lab.DataPut(r) && strings.Contains(r.URL.Path, "/"+s.log.Table+"/") {
			files++
		}
		return files == 5
	}, 1, lab.Hold)
	s.met(fault) // its batch has some data files in the store, and no commit
	dies.kill()
	fault.Release(true)
	dies = s.start(refuses, through(proxy))
	fault = proxy.Break(lab.CommitPut, 1, lab.Hold)
	s.met(fault)
	dies.kill()
	before := s.rows()
	s.awaitRows(before + 2000) // of the other member, on all partitions
	fault.Release(true)        // loses: the other member's commits have this version
	end()
	s.awaitPassed()
	stays.drain()

	all := []string{"--rate", "0"}
	s.killedAtPut(4, s.replayPut, all, accepting).Release(true)
	result := s.replays(all, accepting).ended(0)
	rows, versions := s.replayRows()
	t.Logf("replays added %d rows in %d versions; left out %v", rows, versions, result.LeftOut)
	if rows != bad {
		t.Errorf("%d rows of replays, want %d", rows, bad)
	}
	s.untilCurrent(accepting)
	files = 0
	for _, c := range s.commits() {
		for _, add := range c.Adds {
			files++
			if !strings.HasPrefix(add.Path, "status=") || len(add.PartitionValues) != 3 {
				t.Errorf("%s: %v", add.Path, add.PartitionValues)
			}
		}
	}
	t.Logf("%d rows in %d files", tablelog.Rows(s.commits()), files)
	// The rows of a batch are sorted by table partition, so their order is not checked.
	s.checkSets("--no-order", "--day", "day", "--computed", "customer_id_bucket", "--predicates", "2", "--most", "60")
	s.wants(0, "verify", "--kafka")
}
