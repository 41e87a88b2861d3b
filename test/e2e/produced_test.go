//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// TestProducedIsTable expects every committed record to become one row, with any compression, and no record of an
// aborted transaction.
func TestProducedIsTable(t *testing.T) {
	s := newScene(t, 8)
	m := s.start()
	var producers errgroup.Group
	for _, codec := range []string{"lz4", "zstd"} {
		p := s.producer(80_000, codec)
		producers.Go(func() error { return p.Run(s.ctx, s.ledger) })
	}
	// 40 of 120 transactions are aborted.
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

	if text := s.wants(0, "offsets", "show"); !strings.Contains(text, s.name+":0") {
		t.Errorf("connector offsets show does not list the topic: %s", text)
	}
	if text := s.wants(0, "table", "inspect"); !strings.Contains(text, s.name) || !strings.Contains(text, "200000") {
		t.Errorf("connector table inspect does not show the table with its 200000 rows: %s", text)
	}
}

// wantSchema compares the table's schema in Delta's JSON with the configured DDL.
func (s *scene) wantSchema() {
	s.t.Helper()
	var found struct {
		Fields []struct {
			Name     string          `json:"name"`
			Type     json.RawMessage `json:"type"`
			Nullable bool            `json:"nullable"`
		} `json:"fields"`
	}
	if err := json.Unmarshal([]byte(s.commits()[0].Schema), &found); err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for _, f := range found.Fields {
		kind := string(f.Type)
		for _, nested := range []string{"struct", "array"} {
			if strings.Contains(kind, `"type":"`+nested+`"`) {
				kind = nested
			}
		}
		got = append(got, fmt.Sprintf("%s %s %t", f.Name, strings.Trim(kind, `"`), f.Nullable))
	}
	want := []string{
		"_kafka_topic string true", "_kafka_partition integer true", "_kafka_offset long true", "_kafka_timestamp timestamp true",
		"_kafka_topic_id string true",
		"order_id string false", "customer_id string true", "store_id long true", "quantity integer true", "total double true",
		"discount double true", "created_at timestamp true", "paid boolean true", "status string true", "coupon string true",
		"shipping struct true", "tags array true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("columns (name, type, nullable): %s", diff)
	}
}

// TestEveryCodec produces records without compression and with every codec. Each must become one row. A second run with
// --until-current finds no new record and must make no commit.
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
	s.wantSchema()
	before := len(s.commits())
	s.untilCurrent()
	if after := len(s.commits()); after != before {
		t.Errorf("a run without new records made %d commits", after-before)
	}
}
