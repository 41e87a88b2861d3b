package datafile

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sluice/connector"
)

// TestRecycler: memory from a recycler is zeroed, belongs to one borrower at a time, and keeps its content when it
// grows.
func TestRecycler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &recycler{scrub: true}
		type lent struct {
			b    []byte
			mark byte
		}
		var all []lent
		fill := func(l lent) {
			for i := range l.b {
				l.b[i] = l.mark
			}
		}
		check := func(l lent, n int) {
			for i := range n {
				if l.b[i] != l.mark {
					t.Fatalf("byte %d of %d is %#x, want %#x", i, n, l.b[i], l.mark)
				}
			}
		}
		for i := range 100 {
			n := rapid.IntRange(0, 5000).Draw(t, "n")
			at := 0
			if len(all) > 0 {
				at = rapid.IntRange(0, len(all)-1).Draw(t, "at")
			}
			switch op := rapid.IntRange(0, 2).Draw(t, "op"); {
			case op == 0 || len(all) == 0:
				l := lent{r.Allocate(n), byte(i)}
				if len(l.b) != n {
					t.Fatalf("%d bytes, want %d", len(l.b), n)
				}
				check(lent{l.b, 0}, n)
				fill(l)
				all = append(all, l)
			case op == 1:
				l := all[at]
				was := len(l.b)
				l.b = r.Reallocate(n, l.b)
				check(l, min(was, n))
				fill(l)
				all[at] = l
			default:
				check(all[at], len(all[at].b))
				r.Free(all[at].b)
				all = append(all[:at], all[at+1:]...)
			}
			if r.kept > keptBytes {
				t.Fatalf("%d bytes kept", r.kept)
			}
		}
	})
}

// TestShares: tables that share encoders get the same files as a table alone, although the test overwrites freed
// memory. The calls of Progress cover every piece.
func TestShares(t *testing.T) {
	pieces := func(seed int) (all []connector.Piece) {
		for i := range 4 {
			rows := orders(1000*seed+i, 500+100*i)
			all = append(all, connector.Piece{Rows: rows, To: 300}, connector.Piece{Rows: rows, From: 400, To: rows.NumRows()})
		}
		return all
	}
	encode := func(seed int, s *Shares) (out []byte, done []int) {
		o := Options{TargetSize: 20 << 10, Parallel: 3, Shares: s, Progress: func(n int, encoded int64) {
			if len(done) > 0 && n < done[len(done)-1] || encoded < 0 {
				t.Errorf("%d pieces after %v, %d bytes", n, done, encoded)
			}
			done = append(done, n)
		}}
		err := Encode(t.Context(), orderSchema, pieces(seed), o, func(f File) error {
			b, err := io.ReadAll(f.Body)
			out = append(out, b...)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return out, done
	}
	shared := NewShares(2)
	for range cap(shared.free) {
		s := <-shared.free
		s.memory.scrub = true
		shared.free <- s
	}
	var all sync.WaitGroup
	for seed := range 4 {
		all.Go(func() {
			for range 3 {
				got, done := encode(seed, shared)
				want, _ := encode(seed, nil)
				if !bytes.Equal(got, want) {
					t.Errorf("table %d: %d bytes, %d alone, or other ones", seed, len(got), len(want))
				}
				if len(done) == 0 || done[len(done)-1] != 8 {
					t.Errorf("table %d: %v pieces of 8", seed, done)
				}
			}
		})
	}
	all.Wait()
	if len(shared.free) != 2 {
		t.Error("a share is missing")
	}
}
