package intake

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/reliability/hold"
)

// writes is a group that keeps the offsets passed to CommitOffsets. If err is set, CommitOffsets fails with it.
type writes struct {
	connector.Group
	err  error
	took []map[connector.Partition]connector.GroupOffset
}

func (w *writes) CommitOffsets(_ context.Context, offsets map[connector.Partition]connector.GroupOffset) error {
	if w.err == nil {
		w.took = append(w.took, offsets)
	}
	return w.err
}

// lines returns the lines of a text log without times, and empties the buffer.
func lines(out *bytes.Buffer) (all []string) {
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, line)
	}
	out.Reset()
	return all
}

// TestOffsets_Run: Run commits the noted offsets to the group and logs them; if that fails, they stay noted for the
// next attempt. A transient failure is logged at WARN, one that an operator must end at ERROR, one between two
// generations at DEBUG.
func TestOffsets_Run(t *testing.T) { synctest.Test(t, testScheduledCheckpointing) }

func testScheduledCheckpointing(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	g := &writes{}
	k := NewOffsets(g, time.Second, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), NewMetrics(nil), nil)
	turn := func(want ...string) {
		t.Helper()
		k.write(t.Context())
		if d := cmp.Diff(want, lines(&out)); d != "" {
			t.Errorf("lines (-want +got):\n%s", d)
		}
	}
	turn(`level=DEBUG msg="Nothing to be checkpointed"`)

	k.note(connectortest.Partition(1), connector.GroupOffset{Next: 12, Epoch: 3}, "m-4")
	k.note(connectortest.Partition(0), connector.GroupOffset{Next: 7, Epoch: 3}, "")
	const failed = `msg="Exception during checkpointing loop: failed to commit offsets; retrying at the next interval" partitions=2 class=`
	for _, c := range []struct {
		class classify.Class
		line  string
	}{
		{classify.Transient, "level=WARN " + failed + "transient err=no"},
		{classify.Fatal, "level=ERROR " + failed + "fatal err=no"},
		{classify.Fenced, "level=DEBUG " + failed + "fenced err=no"},
		{classify.Canceled, "level=DEBUG " + failed + "canceled err=no"},
	} {
		g.err = classify.Mark(errors.New("no"), c.class)
		turn(c.line)
	}
	g.err = nil
	turn(
		`level=INFO msg="offsets are committed again" after=0s left_out=0`,
		`level=INFO msg="Scheduled checkpointing" partitions=2`,
		`level=DEBUG msg="Scheduled checkpointing of a partition" topic=orders partition=0 offset=7 batch_id=""`,
		`level=DEBUG msg="Scheduled checkpointing of a partition" topic=orders partition=1 offset=12 batch_id=m-4`,
	)
	turn(`level=DEBUG msg="Nothing to be checkpointed"`)
	want := []map[connector.Partition]connector.GroupOffset{{connectortest.Partition(0): {Next: 7, Epoch: 3}, connectortest.Partition(1): {Next: 12, Epoch: 3}}}
	if d := cmp.Diff(want, g.took); d != "" {
		t.Errorf("written (-want +got):\n%s", d)
	}
}

// TestHolds_LogLevel: a hold is logged at ERROR if an operator must act, at WARN if it ends by itself, at INFO if an
// operator asked for it.
func TestHolds_LogLevel(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	for _, c := range []struct {
		level   string
		reasons []hold.Reason
	}{
		{"INFO", []hold.Reason{hold.Paused}},
		{"WARN", []hold.Reason{
			hold.StoreDown, hold.KafkaDown, hold.TopicMissing, hold.Contested, hold.CommitUndecided, hold.DeadLettersUnavailable,
		}},
		{"ERROR", []hold.Reason{
			hold.Poison, hold.Flood, hold.StoreDenied, hold.KafkaDenied, hold.BehindLogStart, hold.TableReplaced, "a reason of later",
		}},
	} {
		for _, reason := range c.reasons {
			reason.LogFunc(logger)("HOLD")
			if d := cmp.Diff([]string{"level=" + c.level + " msg=HOLD"}, lines(&out)); d != "" {
				t.Errorf("%s (-want +got):\n%s", reason, d)
			}
		}
	}
}
