//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector/decode/decodetest"
	"sluice/test/lab"
)

// TestInferredColumns: two members make the columns of a table from random records. Independent readers find all values of
// all records, once each, in the columns and in _rescued.
func TestInferredColumns(t *testing.T) {
	t.Parallel()
	const partitions, rounds = 4, 5
	s := newScene(t, partitions)
	infers := func(c *settings) { c.own, c.commit = "schema: infer", "{every: 500ms, rows: 200}" }
	s.start(infers).awaitReady()
	s.start(infers).awaitReady()
	client := s.franz()
	r := rand.New(rand.NewPCG(s.random.Uint64(), 0))
	want := map[string]string{}
	for range rounds {
		for i := range 400 {
			value := decodetest.RandomRecord(r)
			record, err := client.ProduceSync(s.ctx, &kgo.Record{Topic: s.name, Partition: int32(i % partitions), Value: value}).First()
			if err != nil {
				t.Fatal(err)
			}
			if want[fmt.Sprint(record.Partition, " ", record.Offset)], err = decodetest.Canonical(value); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitRows(int64(len(want)))
	}
	out, err := lab.Python(s.ctx, "oracle/inferred.py", "--table", s.tableURL(s.name), "--endpoint", s.minio.Endpoint)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	readers := 0
	for line := range strings.Lines(string(out)) {
		var found struct {
			Reader string
			Rows   [][]any
		}
		if err := json.Unmarshal([]byte(line), &found); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got := map[string]string{}
		for _, row := range found.Rows {
			at := fmt.Sprint(row[0], " ", row[1])
			if _, twice := got[at]; twice {
				t.Errorf("%s: two rows of %s", found.Reader, at)
			}
			if got[at], err = decodetest.Canonical([]byte(row[2].(string))); err != nil {
				t.Error(err)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", found.Reader, d)
		}
		readers++
	}
	if readers != 2 {
		t.Errorf("%d readers, want 2: %s", readers, out)
	}
}
