package commit

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"sluice/connector"
	"sluice/connector/plan"
)

// bareRows is a record batch without columns, identified by its address.
type bareRows struct {
	arrow.RecordBatch
	first int64 // number of its first row among the rows of all batches
}

// TestBisection_FindsRowsAtFault: the search finds exactly the rows at fault, wherever they are and however the pieces
// are split. The number of tries is bounded by the number of rows at fault.
func TestBisection_FindsRowsAtFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pieces []connector.Piece
		var all []int64
		for range rapid.IntRange(1, 6).Draw(t, "chunks") {
			rows := &bareRows{first: int64(len(all))}
			for range rapid.IntRange(1, 40).Draw(t, "rows") {
				all = append(all, int64(len(all)))
			}
			size := int64(len(all)) - rows.first
			at := int64(0)
			for at < size { // some rows are in no piece, some pieces are empty
				to := rapid.Int64Range(at, size).Draw(t, "to")
				pieces = append(pieces, connector.Piece{Rows: rows, From: at, To: to})
				at = to + rapid.Int64Range(0, 2).Draw(t, "masked")
			}
		}
		numbers := func(pieces []connector.Piece) (n []int64) {
			for _, p := range pieces {
				for i := p.From; i < p.To; i++ {
					n = append(n, p.Rows.(*bareRows).first+i)
				}
			}
			return n
		}
		there := numbers(pieces)
		if len(there) == 0 {
			return
		}
		bad := map[int64]bool{}
		for _, i := range rapid.SliceOfN(rapid.SampledFrom(there), 1, 8).Draw(t, "bad") {
			bad[i] = true
		}
		s := bisection{try: func(some []connector.Piece) error {
			if slices.ContainsFunc(numbers(some), func(i int64) bool { return bad[i] }) {
				return &connector.LocalError{Doing: encoding, Err: errors.New("oh")}
			}
			return nil
		}}
		if err := s.halve(pieces); err != nil {
			t.Fatal(err)
		}
		found := numbers(s.found)
		if len(found) != len(bad) || len(s.errs) != len(found) || !slices.IsSorted(found) || slices.ContainsFunc(found, func(i int64) bool { return !bad[i] }) {
			t.Fatalf("found %v, at fault are %v", found, bad)
		}
		if most := len(bad) * 2 * 9; s.tries > most { // 2 × log2 of 240 rows, for each row at fault
			t.Fatalf("%d tries for %d of %d rows", s.tries, len(bad), len(there))
		}
		rest := numbers(without(pieces, s.found))
		want := slices.DeleteFunc(slices.Clone(there), func(i int64) bool { return bad[i] })
		if !slices.Equal(rest, want) {
			t.Fatalf("the rest is %v, want %v", rest, want)
		}
	})
}

// TestBisection_GivesUp: if every row fails, the search gives up at its bounds. An error that is not a local failure
// ends the search at once.
func TestBisection_GivesUp(t *testing.T) {
	all := []connector.Piece{{Rows: &bareRows{}, From: 0, To: 1_000_000}}
	s := bisection{try: func([]connector.Piece) error { return &connector.LocalError{Doing: encoding, Err: errors.New("oh")} }}
	if err := s.halve(all); err != nil || !s.exhausted() || s.tries > 500 {
		t.Errorf("%v after %d tries, found %d", err, s.tries, len(s.found))
	}
	stopped, tries := errors.New("stopped"), 0
	s = bisection{try: func([]connector.Piece) error {
		if tries++; tries == 3 {
			return stopped
		}
		return &connector.LocalError{Doing: encoding, Err: errors.New("oh")}
	}}
	if err := s.halve(all); !errors.Is(err, stopped) || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// TestCommitter_PrefixKeepsTrouble: a commit that moves a claim's position to the end of its failed records deletes the
// claim's trouble. A commit that ends earlier keeps it.
func TestCommitter_PrefixKeepsTrouble(t *testing.T) {
	p := connector.Partition{Topic: "orders", ID: 1}
	c := &committer{writerState: &writerState{logger: slog.New(slog.DiscardHandler)}, troubles: map[connector.Partition]*trouble{p: {failures: 2, next: 10}}}
	c.clearFailures(t.Context(), map[connector.Partition]plan.Span{p: {From: 3, Next: 9}})
	if c.troubles[p] == nil || c.troubles[p].failures != 2 {
		t.Fatalf("a commit up to 9 ended what failed before 10: %v", c.troubles)
	}
	c.clearFailures(t.Context(), map[connector.Partition]plan.Span{p: {From: 9, Next: 10}})
	if len(c.troubles) != 0 {
		t.Errorf("a commit up to 10 left %v", c.troubles)
	}
}
