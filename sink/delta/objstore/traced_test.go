package objstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

func TestTraced(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		t.Helper()
		s, err := objstore.Measured(objstoretest.Traced(objstore.NewMem(), func(string) {}), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func scenario(t *testing.T, s objstore.Store) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		_ = s.Put(ctx, "t/_delta_log/0000.json", strings.NewReader("{}"), objstore.IfAbsent)
	}
	_ = s.Put(ctx, "t/_delta_log/_last_checkpoint", strings.NewReader("{}"), objstore.Replace)
	_, _ = s.Get(ctx, "t/_delta_log/0000.json", 0, -1)
	_, _ = s.Get(ctx, "t/_delta_log/0001.json", 0, -1)
	_, _ = s.Head(ctx, "t/_delta_log/0001.json")
	for _, err := range s.List(ctx, "t/_delta_log/", "t/_delta_log/0000") {
		if err == nil {
			break
		}
	}
	_ = s.Put(ctx, "/bad", strings.NewReader("{}"), objstore.Replace)
	_ = s.Delete(ctx, "t/_delta_log/0000.json")
}

func TestTraceLines(t *testing.T) {
	var lines []string
	scenario(t, objstoretest.Traced(objstore.NewMem(), func(l string) { lines = append(lines, l) }))
	want := []string{
		"put-if-absent t/_delta_log/0000.json -> ok",
		"put-if-absent t/_delta_log/0000.json -> exists",
		"put t/_delta_log/_last_checkpoint -> ok",
		"get t/_delta_log/0000.json -> ok",
		"get t/_delta_log/0001.json -> not_found",
		"head t/_delta_log/0001.json -> not_found",
		"list t/_delta_log/ after t/_delta_log/0000 -> ok",
		"put /bad -> refused",
		"delete t/_delta_log/0000.json -> ok",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Error(d)
	}
}

func TestOutcome(t *testing.T) {
	for want, err := range map[string]error{
		"failed":   objstoretest.ErrUnavailable,
		"refused":  objstoretest.ErrDenied,
		"exists":   objstoretest.ErrExists,
		"canceled": t.Context().Err(),
		"not_sent": fmt.Errorf("%w: %w", objstore.ErrNotSent, objstoretest.ErrTimeout),
	} {
		if want == "canceled" {
			err = fmt.Errorf("%w: %w", objstore.ErrNotSent, canceledError(t))
		}
		if got := objstore.Outcome(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

func TestMeasured(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, err := objstore.Measured(objstore.NewMem(), reg)
	if err != nil {
		t.Fatal(err)
	}
	scenario(t, s)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetHistogram().GetSampleCount()
		}
	}
	const h = "sluice_store_operation_seconds "
	want := map[string]uint64{
		h + "put-if-absent ok": 1, h + "put-if-absent exists": 1, h + "put ok": 1, h + "put refused": 1, h + "get ok": 1,
		h + "get not_found": 1, h + "head not_found": 1, h + "list ok": 1, h + "delete ok": 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := objstore.Measured(objstore.NewMem(), reg); err == nil {
		t.Error("registered twice")
	}
}
