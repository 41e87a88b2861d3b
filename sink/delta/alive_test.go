package delta_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"sluice/connector"
	"sluice/reliability/pulse"
	"sluice/sink/delta"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/objstore"
)

// watched is a store that records, during each put of a data file, whether package pulse counts the goroutine as
// waiting.
type watched struct {
	objstore.Store
	loops *pulse.Loops
	puts  *[]pulse.State
}

func (w watched) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	if strings.HasPrefix(key, "part-") {
		*w.puts = append(*w.puts, w.loops.States()[0])
	}
	return w.Store.Put(ctx, key, body, mode)
}

// TestPulse_Stage: during Stage and Rehearse, the goroutine reports progress for each row group. It counts as waiting
// while a data file is put, and while it waits for a share to encode.
func TestPulse_Stage(t *testing.T) {
	var loops pulse.Loops
	var puts []pulse.State
	shares := datafile.NewShares(1)
	tab := open(t, watched{objstore.NewMem(), &loops, &puts}, func(o *delta.Options) { o.FileSize, o.Encoders = 1, shares })
	s := load(t, tab)
	loop := loops.Begin("writer")
	loop.Work()
	ctx := pulse.With(t.Context(), loop)
	var pieces []connector.Piece
	for i := range int32(10) {
		pieces = append(pieces, rows(s.Schema, i, 0, 5))
	}
	state := func() pulse.State { return loops.States()[0] }

	before, turns := state(), []uint64{}
	if _, err := tab.Stage(ctx, s, "b", pieces, func(int, int64) { turns = append(turns, state().Turns) }); err != nil {
		t.Fatal(err)
	}
	if len(puts) != 10 {
		t.Fatalf("%d files", len(puts))
	}
	for i, p := range puts {
		if !p.Waiting || !p.Working {
			t.Errorf("while file %d is put: %+v", i, p)
		}
		if last := before.Turns; p.Turns <= last {
			t.Errorf("it did not turn before file %d", i)
		}
		before = p
	}
	for i := 1; i < len(turns); i += 2 {
		if turns[i] <= turns[i-1] {
			t.Errorf("progress %d: %d turns, %d before", i, turns[i], turns[i-1])
		}
	}
	if now := state(); now.Waiting || !now.Working {
		t.Errorf("after Stage: %+v", now)
	}

	before = state()
	if err := tab.Rehearse(ctx, s, pieces); err != nil {
		t.Fatal(err)
	}
	if now := state(); now.Waiting || now.Turns < before.Turns+10 {
		t.Errorf("after Rehearse: %+v, before %+v", now, before)
	}
}

// slow is a store that records, at each read from the body of an object, whether package pulse counts the goroutine as
// waiting.
type slow struct {
	objstore.Store
	loops *pulse.Loops
	reads *[]pulse.State
}

func (s slow) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	body, err := s.Store.Get(ctx, key, off, n)
	return &slowBody{body, s}, err
}

type slowBody struct {
	io.ReadCloser
	of slow
}

func (b *slowBody) Read(p []byte) (int, error) {
	if now := b.of.loops.States(); len(now) > 0 {
		*b.of.reads = append(*b.of.reads, now[0])
	}
	return b.ReadCloser.Read(p)
}

// TestPulse_Read: the goroutine counts as waiting while it reads the body of an object, because a store may take
// minutes for a large one.
func TestPulse_Read(t *testing.T) {
	var loops pulse.Loops
	var reads []pulse.State
	store := slow{objstore.NewMem(), &loops, &reads}
	load(t, open(t, store)) // loading creates the table
	loop := loops.Begin("writer")
	loop.Work()
	if _, err := open(t, store).Load(pulse.With(t.Context(), loop)); err != nil {
		t.Fatal(err)
	}
	if len(reads) == 0 {
		t.Fatal("nothing was read")
	}
	for i, r := range reads {
		if !r.Waiting {
			t.Errorf("read %d: %+v", i, r)
		}
	}
	if now := loops.States()[0]; now.Waiting {
		t.Errorf("behind it: %+v", now)
	}
}
