package delta_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
)

// cracked is a record batch that panics when the encoder reads its columns. The panic's text is secret, as the content
// of a record is.
type cracked struct {
	arrow.RecordBatch
	secret string
}

func (c cracked) Column(int) arrow.Array { panic("cracked: " + c.secret) }

// refusing is a store that refuses data files while on is true.
type refusing struct {
	objstore.Store
	err error
	on  *bool
}

func (r refusing) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if *r.on {
		return r.err
	}
	return r.Store.Put(ctx, key, body, mode)
}

// TestRehearse: a rehearsal encodes pieces and stores nothing; the pieces can be staged afterwards. A panic in it
// becomes a connector.LocalError without the text of the panic.
func TestRehearse(t *testing.T) {
	mem := objstore.NewMem()
	tab := open(t, mem)
	s := load(t, tab)
	keys := func() (n int) {
		for _, err := range mem.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	before := keys()
	good := []connector.Piece{rows(s.Schema, 0, 0, 5), rows(s.Schema, 1, 0, 7)}
	for range 2 {
		if err := tab.Rehearse(t.Context(), s, good); err != nil {
			t.Fatal(err)
		}
	}
	bad := []connector.Piece{good[0], {Rows: cracked{good[1].Rows, "geheim"}, To: 7}}
	for what, err := range map[string]error{
		"rehearse": tab.Rehearse(t.Context(), s, bad),
		"stage":    func() error { _, err := tab.Stage(t.Context(), s, "b", bad, nil); return err }(),
	} {
		local := (*connector.LocalError)(nil)
		if !errors.As(err, &local) || local.Doing != "encode" || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := keys(); n != before {
		t.Errorf("%d objects, %d before", n, before)
	}
	staged, err := tab.Stage(t.Context(), s, "b", good, nil)
	if err != nil || staged.Rows != 12 {
		t.Errorf("%+v, %v", staged, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := tab.Rehearse(ended, s, good); classify.Of(err) != classify.Canceled {
		t.Errorf("after the end: %v", err)
	}
}

// TestStage_LocalErrorOrStore: if the store refuses a data file, the error is not a connector.LocalError.
func TestStage_LocalErrorOrStore(t *testing.T) {
	denied := classify.Mark(errors.New("403"), classify.Fatal)
	store := refusing{objstore.NewMem(), denied, new(bool)}
	tab := open(t, store)
	s := load(t, tab)
	*store.on = true
	_, err := tab.Stage(t.Context(), s, "b", []connector.Piece{rows(s.Schema, 0, 0, 5)}, nil)
	held := (*hold.Error)(nil)
	if errors.As(err, new(*connector.LocalError)) || !errors.As(err, &held) || held.Reason != hold.StoreDenied {
		t.Errorf("%v", err)
	}
}

func TestOffsetOf(t *testing.T) {
	tab := open(t, objstore.NewMem())
	p := rows(load(t, tab).Schema, 0, 40, 45)
	for row, want := range []int64{40, 41, 42, 43, 44} {
		if got, ok := tab.OffsetOf(p.Rows, int64(row)); !ok || got != want {
			t.Errorf("row %d: %d, %v", row, got, ok)
		}
	}
	for _, row := range []int64{-1, 5} {
		if got, ok := tab.OffsetOf(p.Rows, row); ok {
			t.Errorf("row %d: %d", row, got)
		}
	}
}
