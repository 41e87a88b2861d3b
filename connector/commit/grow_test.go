package commit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice/connector"
	"sluice/connector/plan"
)

// stagedFor is a table that keeps the snapshots for which rows were staged and rehearsed.
type stagedFor struct {
	connector.Table
	staged, rehearsed *connector.Snapshot
}

func (t *stagedFor) Stage(_ context.Context, s *connector.Snapshot, _ string, _ []connector.Piece, _ func(int, int64)) (*connector.Staged, error) {
	t.staged = s
	return &connector.Staged{}, nil
}

func (t *stagedFor) Rehearse(_ context.Context, s *connector.Snapshot, _ []connector.Piece) error {
	t.rehearsed = s
	return nil
}

// grower is a decoder that has found a schema.
type grower struct {
	connector.Decoder
	found connector.Growth
	err   error
}

func (g *grower) Grow(connector.Schema, []connector.Piece, time.Time) (connector.Growth, error) {
	return g.found, g.err
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

type anySchema struct{ connector.Schema }

// TestGrow: rows are staged and rehearsed for the schema that the decoder finds, and the snapshot of the table stays as it
// is. Fields without a column are logged and counted when the rows are staged, not when they are rehearsed.
func TestGrow(t *testing.T) {
	var log bytes.Buffer
	table, d := &stagedFor{}, &grower{}
	before := &connector.Snapshot{TableID: "t", Version: 7, Schema: &anySchema{}}
	metrics := NewMetrics(nil)
	c := &committer{writerState: &writerState{table: table, snapshot: before, logger: slog.New(slog.NewTextHandler(&log, nil)), metrics: metrics}, decoder: d}
	run := func() {
		t.Helper()
		if err := c.rehearse(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if n := counted(t, metrics.full); n > 0 && table.staged == nil {
			t.Error("a rehearsal counts")
		}
		if _, err := c.stage(t.Context(), &plan.Plan{Commit: connector.Commit{Batch: "b-1"}}, nil); err != nil {
			t.Fatal(err)
		}
		if table.staged.TableID != "t" || table.staged.Version != 7 || table.rehearsed.Version != 7 {
			t.Errorf("staged for %+v, rehearsed for %+v", table.staged, table.rehearsed)
		}
	}
	d.found.Schema = before.Schema
	run()
	if table.staged != before || table.rehearsed != before {
		t.Error("rows that need no column are staged for another snapshot")
	}
	found := &anySchema{}
	d.found = connector.Growth{Schema: found, Full: true, Fit: func(rows arrow.RecordBatch) (arrow.RecordBatch, error) { return rows, nil }}
	run()
	if table.staged.Schema != found || table.rehearsed.Schema != found || table.staged.Fit == nil || table.rehearsed.Fit == nil || before.Schema == found || c.snapshot != before {
		t.Errorf("staged for %+v, rehearsed for %+v", table.staged, table.rehearsed)
	}
	if n := counted(t, metrics.full); n != 1 || strings.Count(log.String(), "new fields got no column") != 1 {
		t.Errorf("counted %v times: %s", n, log.String())
	}
	d.err = errors.New("oh")
	if _, err := c.stage(t.Context(), &plan.Plan{}, nil); !connector.IsLocal(err) {
		t.Errorf("%v is no local error", err)
	}
	if err := c.rehearse(t.Context(), nil); !connector.IsLocal(err) {
		t.Errorf("%v is no local error", err)
	}
}
