package delta_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// ids returns the values of the column id in a snapshot.
func ids(ctx context.Context, tab *delta.Table, s *connector.Snapshot) (ids []int64, err error) {
	q := scan.Query{Columns: [][]string{{"id"}}}
	err = tab.Scan(ctx, s, q, func(r scan.Rows) error {
		ids = append(ids, r.Batch.Column(0).(*array.Int64).Int64Values()...)
		return nil
	})
	return ids, err
}

// TestScanOfSnapshots: a writer can scan the snapshot of its last commit, and older snapshots.
func TestScanOfSnapshots(t *testing.T) {
	store := objstore.NewMem()
	tab := open(t, store)
	early := appendCommits(t, tab, 2)
	late := appendCommits(t, tab, 30) // the table writes checkpoints in between
	for _, c := range []struct {
		s    *connector.Snapshot
		want int
	}{{early, 6}, {late, 96}} {
		got, err := ids(t.Context(), tab, c.s)
		if err != nil || len(got) != c.want || got[len(got)-1] != int64(c.want-1) {
			t.Errorf("version %d: %v %v", c.s.Version, got, err)
		}
	}
	// Another member's cleanup deletes the checkpoint that this member knows. A list shows the existing checkpoints.
	tab.Close()
	state, err := deltalog.Load(t.Context(), store)
	if err != nil || state.Checkpoint.Version < 0 {
		t.Fatalf("%v %v", state, err)
	}
	if err := store.Delete(t.Context(), deltalog.CheckpointKey(state.Checkpoint.Version)); err != nil {
		t.Fatal(err)
	}
	if got, err := ids(t.Context(), tab, late); err != nil || len(got) != 96 {
		t.Errorf("without the checkpoint: %d rows, %v", len(got), err)
	}
	rows := 0
	err = delta.Scan(t.Context(), store, scan.Query{Columns: [][]string{{schema.KafkaOffset}}}, func(r scan.Rows) error {
		rows += int(r.Batch.NumRows())
		return nil
	})
	if err != nil || rows != 96 {
		t.Errorf("as a tool: %d rows, %v", rows, err)
	}
	if err := delta.Scan(t.Context(), objstore.NewMem(), scan.Query{}, nil); !errors.Is(err, deltalog.ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
}

// flaky is a store in which each read fails once before it succeeds, and each body breaks off in the middle once.
type flaky struct {
	objstore.Store
	failed map[string]bool
	broken map[string]bool
}

func (f *flaky) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "part-") {
		if !f.failed[key] {
			f.failed[key] = true
			return nil, classify.Mark(errors.New("slow down"), classify.Transient)
		}
		if !f.broken[key] {
			f.broken[key] = true
			r, err := f.Store.Get(ctx, key, off, n)
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(r, 100), brokenBody{}), r}, nil
		}
	}
	return f.Store.Get(ctx, key, off, n)
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) {
	return 0, classify.Mark(errors.New("reset"), classify.Transient)
}

// TestScanOutlivesTheStore: if a request of a scan fails, the guard retries it. A missing data file is a hold at once.
func TestScanOutlivesTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		store := &flaky{mem, map[string]bool{}, map[string]bool{}}
		tab := open(t, store)
		s := appendCommits(t, tab, 3)
		began := time.Now()
		got, err := ids(t.Context(), tab, s)
		if err != nil || len(got) != 9 || len(store.broken) != 3 || time.Since(began) == 0 {
			t.Errorf("%v %v after %v", got, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		clear(store.failed)
		<-ctx.Done()
		if _, err := ids(ctx, tab, s); err == nil || classify.Of(err) != classify.Canceled {
			t.Errorf("canceled: %v", err)
		}
		own := errors.New("own")
		if err := tab.Scan(t.Context(), s, scan.Query{Columns: [][]string{{"id"}}}, func(scan.Rows) error { return own }); err != own { //nolint:errorlint // this very one
			t.Errorf("the error of the caller became %v", err)
		}
		key := files(t, mem)[1]
		if err := mem.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		_, err = ids(t.Context(), tab, s)
		holds(t, err, hold.TableUnsupported, key)
		if !errors.Is(err, scan.ErrVanished) {
			t.Error(err)
		}
	})
}
