package intake

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"sluice/classify"
	"sluice/connector/commit"
)

// TestOutcomes_LogDropped: a dropped batch counts as fenced only if its error has the class Fenced, because another
// writer moved a position. A failure that the writer has logged is not logged again.
func TestOutcomes_LogDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      commit.Outcome
		log    string
		fenced float64
	}{
		{"fenced", commit.Outcome{Err: classify.Mark(errors.New("position moved"), classify.Fenced)}, `msg="FENCED: dropping uncommitted records`, 1},
		{"stopped", commit.Outcome{Err: context.Canceled}, `msg="dropping uncommitted records`, 0},
		{"unknown", commit.Outcome{Err: errors.New("unexpected")}, `msg="dropping uncommitted records`, 0},
		{"failed locally, logged by the writer", commit.Outcome{Err: errors.New("encoder"), Broken: true}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			r := readerOf(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			r.outcomes.logDropped(&tableState{name: "orders"}, &c.o)
			if got := log.String(); c.log == "" && got != "" || !strings.Contains(got, c.log) {
				t.Errorf("log %q, want %q", got, c.log)
			}
			var m dto.Metric
			if err := r.Metrics.fenced.Write(&m); err != nil || m.GetCounter().GetValue() != c.fenced {
				t.Errorf("counted %v times, want %v (%v)", m.GetCounter().GetValue(), c.fenced, err)
			}
		})
	}
}
