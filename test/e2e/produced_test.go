//go:build lab

package e2e

import (
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Every committed record becomes one row, whatever compressed it; records of aborted transactions become none.
func TestProducedIsTable(t *testing.T) {
	s := newScene(t, 8)
	m := s.start()
	var producers errgroup.Group
	for _, codec := range []string{"lz4", "zstd"} {
		p := s.producer(80_000, codec)
		producers.Go(func() error { return p.Run(s.ctx, s.ledger) })
	}
	// Of 120 transactions of 500 records 40 are aborted.
	p := s.producer(60_000, "lz4")
	p.Transaction, p.Name = 500, s.name
	producers.Go(func() error { return p.Run(s.ctx, s.ledger) })
	if err := producers.Wait(); err != nil {
		t.Fatal(err)
	}
	if s.ledger.Len() != 200_000 {
		t.Fatalf("the ledger has %d entries, want 200000", s.ledger.Len())
	}
	s.awaitRows(100_000)
	m.drain()
	s.untilCurrent()
	s.check("--predicates", "3")
	s.checkWithMore()

	for _, args := range [][]string{{"offsets", "show"}, {"table", "inspect"}} {
		if text := s.wants(0, args...); !strings.Contains(text, s.name) && !strings.Contains(text, "200000") {
			t.Errorf("connector %s does not tell of the table: %s", strings.Join(args, " "), text)
		}
	}
}

// The codecs that the large test leaves out, and records without compression.
func TestEveryCodec(t *testing.T) {
	t.Parallel()
	s := newScene(t, 3)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if err := s.producer(2000, codec).Run(s.ctx, s.ledger); err != nil {
			t.Fatal(err)
		}
	}
	s.untilCurrent()
	s.check()
	// Nothing new: the run ends at once and the table stays.
	before := len(s.commits())
	s.untilCurrent()
	if after := len(s.commits()); after != before {
		t.Errorf("a run without new records made %d commits", after-before)
	}
}
