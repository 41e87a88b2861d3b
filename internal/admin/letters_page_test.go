package admin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/internal/fail"
	"sluice/reliability/deadletter"
	"sluice/sink/opslog"
)

// TestLetterList_Pages walks dead letters in pages: each comes once, also those that differ in the topic id or the cluster
// alone.
func TestLetterList_Pages(t *testing.T) {
	book := newLetterBook(0)
	book.dead = []connector.Partition{{Topic: "dead"}}
	for _, topic := range []string{"b", "a"} {
		for _, partition := range []int32{10, 2} {
			for i := range 6 {
				at := idempotency.Coordinates{
					Partition: connector.Partition{Topic: topic, ID: partition, TopicID: idempotency.TopicID{byte(i % 2)}, Cluster: fmt.Sprint(i % 3)}, Offset: 7,
				}
				book.add(&deadletter.Letter{Source: at, Reason: "syntax"}, 1)
			}
		}
	}
	book.settle()
	for _, s := range book.sources {
		book.set(&s.letters[0], LetterUnresolved, "")
	}
	const all = 24
	for _, limit := range []int{1, 5, all, 100, 0} {
		var places []string
		seen := map[idempotency.Coordinates]bool{}
		q := LetterQuery{Limit: limit, Paged: true}
		for {
			page, shown := book.list(&letterScope{}, q)
			if page.Matching != all || page.Unresolved != all || len(page.Notes) > 0 || !cmp.Equal(page.Reasons, []ReasonCount{{"syntax", all}}) {
				t.Errorf("%+v", page)
			}
			for _, ref := range shown {
				seen[idempotency.Coordinates{Partition: ref.of.Partition, Offset: ref.l.record}] = true
				places = append(places, fmt.Sprintf("%s:%d", ref.of.Topic, ref.of.ID))
			}
			if page.Next == nil {
				break
			}
			q.After = *page.Next
		}
		if len(seen) != all || len(places) != all {
			t.Errorf("limit %d: %d of %d dead letters, in %d places", limit, len(seen), all, len(places))
		}
		if d := cmp.Diff([]string{"a:2", "a:10", "b:2", "b:10"}, slices.Compact(places)); d != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, d)
		}
	}
}

// TestRecord_KeyOfSeveralEntries: if a decision with an Idempotency-Key takes several entries, Record refuses it and
// writes none.
func TestRecord_KeyOfSeveralEntries(t *testing.T) {
	written := &Decision{bodies: []opslog.Body{opslog.Discard{}, opslog.Discard{}}}
	_, err := Record(t.Context(), nil, written, By{Operator: "ada", Reason: "r", Once: opslog.Once{Key: "k", Request: "r"}})
	if fail.Of(err) != fail.KindRefused || errors.Is(err, ErrNothingToDo) {
		t.Error(err)
	}
}

// TestLetterBook_Bound: copies of one dead letter take no memory. A book is full once the entries of different dead
// letters reach its bound.
func TestLetterBook_Bound(t *testing.T) {
	const bound = 4000
	book := newLetterBook(bound)
	book.dead = []connector.Partition{{Topic: "orders-dlq"}}
	add := func(offset int64) {
		book.add(&deadletter.Letter{Source: idempotency.Coordinates{Partition: connector.Partition{Topic: "orders"}, Offset: offset}, Reason: "syntax"}, offset)
	}
	for range bound {
		add(1)
	}
	if book.full || book.free <= bound/2 {
		t.Errorf("full %v, %d bytes are free", book.full, book.free)
	}
	var n int64
	for ; n < bound && !book.full; n++ {
		add(2 + n)
	}
	if n*foundBytes > bound || n*foundBytes < bound/4 {
		t.Errorf("full at %d dead letters", n)
	}
	if size := int64(unsafe.Sizeof(foundLetter{})); size != foundBytes {
		t.Errorf("a dead letter takes %d bytes, not %d", size, foundBytes)
	}
}

// TestLetterBook_EqualsMap adds random dead letters with copies, in any order, and compares the book with a map that keeps
// the newest copy of each.
func TestLetterBook_EqualsMap(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		type newest struct {
			at     LetterPlace
			failed time.Time
			copies int
		}
		want := map[idempotency.Coordinates]newest{}
		book := newLetterBook(0)
		for _, dead := range []string{"a-dlq", "b-dlq"} {
			for id := range int32(2) {
				book.dead = append(book.dead, connector.Partition{Topic: dead, ID: id})
				for offset := range int64(random.IntN(200)) {
					l := deadletter.Letter{Reason: "syntax", Source: idempotency.Coordinates{
						Partition: connector.Partition{Topic: "orders", ID: random.Int32N(3)}, Offset: random.Int64N(60),
					}}
					if random.IntN(5) > 0 {
						l.LastFailure = time.Unix(random.Int64N(5), 0)
					}
					book.add(&l, offset)
					w := want[l.Source]
					if w.copies++; !w.failed.After(l.LastFailure) {
						w.at, w.failed = LetterPlace{dead, id, offset}, l.LastFailure
					}
					want[l.Source] = w
				}
			}
		}
		book.settle()
		if n := book.distinct(); n != len(want) {
			t.Errorf("seed %d: %d dead letters, want %d", seed, n, len(want))
		}
		for at, w := range want {
			l := book.sources[at.Partition].find(at.Offset)
			if l == nil {
				t.Errorf("seed %d: no dead letter about %v", seed, at)
				continue
			}
			got := book.shown(letterRef{book.sources[at.Partition], l})
			if got.Letter != w.at || got.Copies != w.copies || (got.Failed == nil) != w.failed.IsZero() || got.Failed != nil && !got.Failed.Equal(w.failed) {
				t.Errorf("seed %d: %+v, want %+v", seed, got, w)
			}
		}
		for at := range int64(60) {
			p := connector.Partition{Topic: "orders"}
			if _, ok := want[idempotency.Coordinates{Partition: p, Offset: at}]; !ok && book.sources[p] != nil && book.sources[p].find(at) != nil {
				t.Errorf("seed %d: a dead letter about %d", seed, at)
			}
		}
	}
}

// TestFirstLetters: firstLetters keeps the first n of many dead letters, as a sort of all of them would.
func TestFirstLetters(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	of := &sourceLetters{letters: make([]foundLetter, 10_000)}
	for i := range of.letters {
		of.letters[i] = foundLetter{record: int64(i), failed: random.Int64N(1000)}
	}
	for _, n := range []int{0, 1, 100, 9_999, 20_000} {
		first, all := firstLetters{n: n, order: newestFirst}, firstLetters{order: newestFirst}
		for i := range of.letters {
			first.add(letterRef{of, &of.letters[i]})
			all.add(letterRef{of, &of.letters[i]})
		}
		want := all.sorted()
		if n > 0 {
			want = want[:min(n, len(want))]
		}
		if !slices.Equal(first.sorted(), want) {
			t.Errorf("the first %d differ", n)
		}
	}
}

// TestChosenLetters_Entries: if very many dead letters are divided into entries of the operations log, each is in one
// entry, and no entry has more than opslog.MaxLetters.
func TestChosenLetters_Entries(t *testing.T) {
	c := &chosenLetters{letterBook: newLetterBook(0)}
	want, n := map[idempotency.Partition][]int64{}, 0
	for id, letters := range []int{1, 120_000, 60_000, 30_000} {
		s := &sourceLetters{Partition: connector.Partition{Topic: "orders", ID: int32(id)}, letters: make([]foundLetter, letters)}
		for i := range s.letters {
			s.letters[i].record = int64(3 * i)
			want[s.Partition] = append(want[s.Partition], int64(3*i))
		}
		c.sources[s.Partition] = s
		n += letters
	}
	got := map[idempotency.Partition][]int64{}
	entries := c.entries()
	for _, entry := range entries {
		size := int64(0)
		for _, l := range entry {
			size += l.Offsets.Len()
			got[l.Source()] = slices.AppendSeq(got[l.Source()], l.Offsets.All())
		}
		if size > opslog.MaxLetters {
			t.Errorf("an entry has %d dead letters", size)
		}
	}
	if d := cmp.Diff(want, got); d != "" || len(entries) != (n+opslog.MaxLetters-1)/opslog.MaxLetters {
		t.Errorf("%d entries of %d dead letters, equal %v", len(entries), n, d == "")
	}
}
