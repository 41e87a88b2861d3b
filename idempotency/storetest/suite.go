// Package storetest has the conformance suite for stores of package idempotency.
package storetest

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/idempotency"
)

// Run tests a store against the contract of [idempotency.Store]. open returns a new empty store for each test.
func Run(t *testing.T, open func(*testing.T) idempotency.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, idempotency.Store)
	}{
		{"Empty", empty},
		{"RememberAndSee", rememberAndSee},
		{"NewestTimeStays", newestTimeStays},
		{"ThroughMovesFromWhereItStands", throughMoves},
		{"FilledInParts", filledInParts},
		{"ScopesAreApart", scopesAreApart},
		{"SweepForgetsWhatIsOlder", sweepForgets},
		{"Reset", reset},
		{"Release", release},
		{"Many", many},
		{"TimesFarApart", timesFarApart},
		{"Random", random},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// day is a time in milliseconds that tests count from.
const day = int64(1_700_000_000_000)

const hour = int64(time.Hour / time.Millisecond)

// fingerprint returns a fingerprint of a number, spread as hashes are.
func fingerprint(n uint64) (f idempotency.Fingerprint) {
	binary.BigEndian.PutUint64(f[:8], n*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(f[8:], n+1)
	return f
}

func scope() idempotency.Scope {
	return idempotency.Scope{Pipeline: "p", TableID: "t", Partition: idempotency.Partition{Cluster: "c", Topic: "orders", ID: 3}}
}

// entries returns one entry for each pair of a number, which [fingerprint] turns into a fingerprint, and a time.
func entries(pairs ...int64) []idempotency.Entry {
	var all []idempotency.Entry
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, idempotency.Entry{Fingerprint: fingerprint(uint64(pairs[i])), Offset: int64(i / 2), At: pairs[i+1]})
	}
	return all
}

func remember(t *testing.T, s idempotency.Store, sc idempotency.Scope, from, next int64, all ...idempotency.Entry) {
	t.Helper()
	if err := s.Remember(t.Context(), sc, from, next, slices.Values(all)); err != nil {
		t.Fatalf("Remember [%d, %d): %v", from, next, err)
	}
}

// wantSeen asks the store for the numbers in asked. Exactly those in want must be known, with their times.
func wantSeen(t *testing.T, s idempotency.Store, sc idempotency.Scope, asked []uint64, want map[uint64]int64) {
	t.Helper()
	got, err := s.Seen(t.Context(), sc, func(yield func(idempotency.Entry) bool) {
		for _, n := range asked {
			if !yield(idempotency.Entry{Fingerprint: fingerprint(n)}) {
				return
			}
		}
	})
	if err != nil {
		t.Fatalf("Seen: %v", err)
	}
	known := map[idempotency.Fingerprint]int64{}
	for n, at := range want {
		known[fingerprint(n)] = at
	}
	if diff := cmp.Diff(known, got); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
}

func wantThrough(t *testing.T, s idempotency.Store, sc idempotency.Scope, want int64) {
	t.Helper()
	if got, err := s.Through(t.Context(), sc); err != nil || got != want {
		t.Errorf("through is %d, %v; want %d", got, err, want)
	}
}

func empty(t *testing.T, s idempotency.Store) {
	wantThrough(t, s, scope(), 0)
	wantSeen(t, s, scope(), []uint64{1, 2}, nil)
	for what, err := range map[string]error{
		"Sweep": s.Sweep(t.Context(), scope(), day),
		"Reset": s.Reset(t.Context(), scope()),
	} {
		if err != nil {
			t.Errorf("%s of nothing: %v", what, err)
		}
	}
	remember(t, s, scope(), 0, 7)
	wantThrough(t, s, scope(), 7)
}

func rememberAndSee(t *testing.T, s idempotency.Store) {
	remember(t, s, scope(), 0, 10, entries(1, day, 2, day+1)...)
	remember(t, s, scope(), 10, 20, entries(3, day+2)...)
	wantThrough(t, s, scope(), 20)
	wantSeen(t, s, scope(), []uint64{1, 2, 3, 4, 1}, map[uint64]int64{1: day, 2: day + 1, 3: day + 2})
	wantSeen(t, s, scope(), nil, nil)
}

func newestTimeStays(t *testing.T, s idempotency.Store) {
	remember(t, s, scope(), 0, 1, entries(1, day+5, 1, day+9, 1, day+7, 2, day)...)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{1: day + 9, 2: day})
	remember(t, s, scope(), 1, 2, entries(1, day, 2, day+1)...)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{1: day + 9, 2: day + 1})
}

func throughMoves(t *testing.T, s idempotency.Store) {
	for _, from := range []int64{5, 11} {
		if err := s.Remember(t.Context(), scope(), from, 20, slices.Values(entries(1, day))); !errors.Is(err, idempotency.ErrMoved) {
			t.Errorf("from %d where nothing is remembered: %v, want ErrMoved", from, err)
		}
	}
	wantThrough(t, s, scope(), 0)
	remember(t, s, scope(), 0, 10, entries(1, day)...)
	for _, from := range []int64{0, 9, 11} {
		if err := s.Remember(t.Context(), scope(), from, 20, slices.Values(entries(2, day, 1, day+1))); !errors.Is(err, idempotency.ErrMoved) {
			t.Errorf("from %d at 10: %v, want ErrMoved", from, err)
		}
	}
	wantThrough(t, s, scope(), 10)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{1: day})
}

func filledInParts(t *testing.T, s idempotency.Store) {
	remember(t, s, scope(), 0, 0, entries(1, day)...)
	wantThrough(t, s, scope(), 0)
	remember(t, s, scope(), 0, 0, entries(2, day, 1, day)...) // once more, after a failure
	remember(t, s, scope(), 0, 10)
	wantThrough(t, s, scope(), 10)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{1: day, 2: day})
}

func scopesAreApart(t *testing.T, s idempotency.Store) {
	others := []func(*idempotency.Scope){
		func(s *idempotency.Scope) { s.Pipeline = "q" },
		func(s *idempotency.Scope) { s.TableID = "u" },
		func(s *idempotency.Scope) { s.Identity = idempotency.Identity{By: idempotency.ByContent} },
		func(s *idempotency.Scope) { s.Identity = idempotency.Identity{By: idempotency.ByField, Name: "id"} },
		func(s *idempotency.Scope) { s.Identity = idempotency.Identity{By: idempotency.ByHeader, Name: "id"} },
		func(s *idempotency.Scope) { s.Partition.Cluster = "d" },
		func(s *idempotency.Scope) { s.Partition.Topic = "payments" },
		func(s *idempotency.Scope) { s.Partition.TopicID[0] = 1 },
		func(s *idempotency.Scope) { s.Partition.ID = 4 },
		func(s *idempotency.Scope) { s.Pipeline, s.TableID = "t", "p" },
	}
	remember(t, s, scope(), 0, 10, entries(1, day)...)
	for i, change := range others {
		other := scope()
		change(&other)
		wantThrough(t, s, other, 0)
		wantSeen(t, s, other, []uint64{1}, nil)
		remember(t, s, other, 0, int64(20+i), entries(1, day+int64(i)+1, 2, day)...)
		if err := s.Sweep(t.Context(), other, day+1); err != nil {
			t.Error(err)
		}
		wantSeen(t, s, other, []uint64{1, 2}, map[uint64]int64{1: day + int64(i) + 1})
	}
	wantThrough(t, s, scope(), 10)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{1: day})
	first := scope()
	others[0](&first)
	if err := s.Reset(t.Context(), first); err != nil {
		t.Error(err)
	}
	wantThrough(t, s, first, 0)
	wantThrough(t, s, scope(), 10)
}

func sweepForgets(t *testing.T, s idempotency.Store) {
	remember(t, s, scope(), 0, 10, entries(1, day-1, 2, day, 3, day+1)...)
	if err := s.Sweep(t.Context(), scope(), day); err != nil {
		t.Fatal(err)
	}
	wantThrough(t, s, scope(), 10)
	wantSeen(t, s, scope(), []uint64{1, 2, 3}, map[uint64]int64{2: day, 3: day + 1})
	remember(t, s, scope(), 10, 20, entries(1, day+2)...)
	wantSeen(t, s, scope(), []uint64{1, 2, 3}, map[uint64]int64{1: day + 2, 2: day, 3: day + 1})
	if err := s.Sweep(t.Context(), scope(), day+hour); err != nil {
		t.Fatal(err)
	}
	wantSeen(t, s, scope(), []uint64{1, 2, 3}, nil)
	wantThrough(t, s, scope(), 20)
}

func reset(t *testing.T, s idempotency.Store) {
	remember(t, s, scope(), 0, 10, entries(1, day)...)
	if err := s.Reset(t.Context(), scope()); err != nil {
		t.Fatal(err)
	}
	wantThrough(t, s, scope(), 0)
	wantSeen(t, s, scope(), []uint64{1}, nil)
	remember(t, s, scope(), 0, 5, entries(2, day)...)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{2: day})
}

// release checks that Release keeps all entries of a scope or deletes all of them, never a part.
func release(t *testing.T, s idempotency.Store) {
	other := scope()
	other.Partition.ID = 9
	remember(t, s, scope(), 0, 10, entries(1, day)...)
	remember(t, s, other, 0, 10, entries(1, day)...)
	s.Release(scope())
	s.Release(scope())
	through, err := s.Through(t.Context(), scope())
	switch {
	case err != nil:
		t.Fatal(err)
	case through == 0:
		wantSeen(t, s, scope(), []uint64{1}, nil)
	default:
		wantThrough(t, s, scope(), 10)
		wantSeen(t, s, scope(), []uint64{1}, map[uint64]int64{1: day})
	}
	wantThrough(t, s, other, 10)
	wantSeen(t, s, other, []uint64{1}, map[uint64]int64{1: day})
}

func many(t *testing.T, s idempotency.Store) {
	const n = 20_000
	var all []idempotency.Entry
	want := map[uint64]int64{}
	for i := range int64(n) {
		all = append(all, entries(i, day+i*1000)...)
		want[uint64(i)] = day + i*1000
	}
	remember(t, s, scope(), 0, n, all...)
	var asked []uint64
	for i := range uint64(2 * n) {
		asked = append(asked, i)
	}
	wantSeen(t, s, scope(), asked, want)
	if err := s.Sweep(t.Context(), scope(), day+n/2*1000); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(want, func(n uint64, at int64) bool { return at < day+20_000/2*1000 })
	wantSeen(t, s, scope(), asked, want)
}

// timesFarApart checks that times may be decades apart. A store may drop entries older than every window when a much
// newer one arrives.
func timesFarApart(t *testing.T, s idempotency.Store) {
	const year = 365 * 24 * hour
	remember(t, s, scope(), 0, 1, entries(1, 0, 2, 1)...)
	wantSeen(t, s, scope(), []uint64{1, 2}, map[uint64]int64{1: 0, 2: 1})
	remember(t, s, scope(), 1, 2, entries(3, 50*year)...)
	newest := 50 * year
	window := idempotency.MaxWindow.Milliseconds()
	remember(t, s, scope(), 2, 3, entries(4, newest-window, 5, newest+window, 6, newest+2*window)...)
	if err := s.Sweep(t.Context(), scope(), newest-window); err != nil {
		t.Fatal(err)
	}
	wantSeen(t, s, scope(), []uint64{1, 2, 3, 4, 5, 6}, map[uint64]int64{3: newest, 4: newest - window, 5: newest + window, 6: newest + 2*window})
}

// random makes random calls and compares the store with a map after each.
func random(t *testing.T, s idempotency.Store) {
	runs := int32(0)
	rapid.Check(t, func(r *rapid.T) {
		runs++
		sc := scope()
		sc.Partition.ID = runs
		through, model := int64(0), map[idempotency.Fingerprint]int64{}
		entry := rapid.Custom(func(r *rapid.T) idempotency.Entry {
			return idempotency.Entry{
				Fingerprint: fingerprint(rapid.Uint64Range(0, 40).Draw(r, "fingerprint")),
				At:          day + rapid.Int64Range(0, 48).Draw(r, "hours")*hour + rapid.Int64Range(-1, 1).Draw(r, "milliseconds"),
			}
		})
		fail := func(what string, err error) {
			if err != nil {
				r.Fatalf("%s: %v", what, err)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"remember": func(r *rapid.T) {
				from, next := through, through+rapid.Int64Range(0, 10).Draw(r, "more")
				if rapid.IntRange(0, 4).Draw(r, "wrong") == 0 {
					from += rapid.SampledFrom([]int64{-1, 1}).Draw(r, "by")
				}
				all := rapid.SliceOfN(entry, 0, 30).Draw(r, "entries")
				err := s.Remember(t.Context(), sc, from, next, seq(all))
				if from != through {
					if !errors.Is(err, idempotency.ErrMoved) {
						r.Fatalf("from %d at %d: %v", from, through, err)
					}
					return
				}
				fail("Remember", err)
				through = next
				for _, e := range all {
					if at, ok := model[e.Fingerprint]; !ok || at < e.At {
						model[e.Fingerprint] = e.At
					}
				}
			},
			"sweep": func(r *rapid.T) {
				before := day + rapid.Int64Range(0, 50).Draw(r, "hours")*hour
				fail("Sweep", s.Sweep(t.Context(), sc, before))
				maps.DeleteFunc(model, func(_ idempotency.Fingerprint, at int64) bool { return at < before })
			},
			"reset": func(r *rapid.T) {
				if rapid.IntRange(0, 9).Draw(r, "really") != 0 {
					return
				}
				fail("Reset", s.Reset(t.Context(), sc))
				through, model = 0, map[idempotency.Fingerprint]int64{}
			},
			"": func(r *rapid.T) {
				if got, err := s.Through(t.Context(), sc); err != nil || got != through {
					r.Fatalf("through is %d, %v; want %d", got, err, through)
				}
				var all []idempotency.Entry
				for n := range uint64(42) {
					all = append(all, idempotency.Entry{Fingerprint: fingerprint(n)})
				}
				got, err := s.Seen(t.Context(), sc, seq(all))
				fail("Seen", err)
				if diff := cmp.Diff(model, got); diff != "" {
					r.Fatalf("seen (-want +got):\n%s", diff)
				}
			},
		})
	})
}

func seq(all []idempotency.Entry) iter.Seq[idempotency.Entry] { return slices.Values(all) }
