package admin

import (
	"errors"
	"fmt"
	"slices"
	"testing"

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
	book := &letterBook{all: map[idempotency.Coordinates]*foundLetter{}}
	for _, topic := range []string{"b", "a"} {
		for _, partition := range []int32{10, 2} {
			for i := range 6 {
				at := idempotency.Coordinates{
					Partition: connector.Partition{Topic: topic, ID: partition, TopicID: idempotency.TopicID{byte(i % 2)}, Cluster: fmt.Sprint(i % 3)}, Offset: 7,
				}
				book.all[at] = &foundLetter{Letter: deadletter.Letter{Source: at}, state: LetterUnresolved}
			}
		}
	}
	for _, limit := range []int{1, 5, 24, 100, 0} {
		var places []string
		seen := map[idempotency.Coordinates]bool{}
		q := LetterQuery{Limit: limit, Paged: true}
		for {
			page := book.list(&letterScope{}, q)
			if page.Matching != len(book.all) || page.Unresolved != len(book.all) || len(page.Notes) > 0 {
				t.Errorf("%+v", page)
			}
			for _, l := range page.Listed {
				id, _ := idempotency.ParseTopicID(l.TopicID)
				seen[idempotency.Coordinates{Partition: connector.Partition{Cluster: l.Cluster, Topic: l.Topic, TopicID: id, ID: l.Partition}, Offset: l.Offset}] = true
				places = append(places, fmt.Sprintf("%s:%d", l.Topic, l.Partition))
			}
			if page.Next == nil {
				break
			}
			q.After = *page.Next
		}
		if len(seen) != len(book.all) || len(places) != len(book.all) {
			t.Errorf("limit %d: %d of %d dead letters, in %d places", limit, len(seen), len(book.all), len(places))
		}
		if d := cmp.Diff([]string{"a:2", "a:10", "b:2", "b:10"}, slices.Compact(places)); d != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, d)
		}
	}
}

// TestRecord_KeyOfSeveralEntries: a decision with a key is one entry, or it is refused before any is written.
func TestRecord_KeyOfSeveralEntries(t *testing.T) {
	written := &Decision{bodies: []opslog.Body{opslog.Discard{}, opslog.Discard{}}}
	_, err := Record(t.Context(), nil, written, By{Operator: "ada", Reason: "r", Once: opslog.Once{Key: "k", Request: "r"}})
	if fail.Of(err) != fail.KindRefused || errors.Is(err, ErrNothingToDo) {
		t.Error(err)
	}
}

// TestLetterBook_Bound counts the memory of dead letters, each once.
func TestLetterBook_Bound(t *testing.T) {
	book := &letterBook{all: map[idempotency.Coordinates]*foundLetter{}, free: 1000}
	add := func(offset int64, detail string) {
		letter := deadletter.Letter{
			Source: idempotency.Coordinates{Partition: connector.Partition{Topic: "orders"}, Offset: offset}, Reason: "syntax", Detail: detail, Trace: "a long trace",
		}
		book.add(connector.Partition{Topic: "orders-dlq"}, offset, &letter, nil, func(*deadletter.Letter) bool { return true })
	}
	add(1, "x")
	add(1, "x") // a copy takes no more memory
	if len(book.all) != 1 || book.free <= 0 {
		t.Errorf("%d dead letters, %d bytes are free", len(book.all), book.free)
	}
	if add(2, "y"); book.free >= 0 {
		t.Errorf("%d bytes are free", book.free)
	}
}
