package story_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/test/story"
)

// sealBreaker is a decoder whose builders panic when they seal rows for which fails returns true.
type sealBreaker struct {
	connector.Decoder
	fails func(rows []story.Source) bool
}

func breakSeals(h *story.Harness, fails func(rows []story.Source) bool) {
	h.Wrap = func(target *connector.Target) { target.Decoder = sealBreaker{target.Decoder, fails} }
}

func (d sealBreaker) Builder(s connector.Schema) (connector.Builder, error) {
	b, err := d.Decoder.Builder(s)
	return &sealBreaking{Builder: b, fails: d.fails}, err
}

type sealBreaking struct {
	connector.Builder
	fails func(rows []story.Source) bool
	rows  []story.Source
}

func (b *sealBreaking) Add(p connector.Partition, r *connector.Record) error {
	err := b.Builder.Add(p, r)
	if err == nil {
		b.rows = append(b.rows, story.Source{Topic: p.Topic, ID: p.ID, Offset: r.Offset})
	}
	return err
}

func (b *sealBreaking) Seal() (rows arrow.RecordBatch) {
	if b.fails(b.rows) {
		panic("a value that must not be logged")
	}
	b.rows = nil
	return b.Builder.Seal()
}

func hasRow(rows []story.Source, id int32, offset int64) bool {
	return slices.ContainsFunc(rows, func(s story.Source) bool { return s.ID == id && s.Offset == offset })
}

// TestSeal_Panics expects a chunk that cannot be sealed to be retried as record_retry says. Then lanes test its records
// one by one: the record at fault becomes a dead letter, and all other records become rows.
func TestSeal_Panics(t *testing.T) {
	for name, kinds := range map[string]string{"FirstRow": "errrrrrrrrr", "MiddleRow": "rrrrerrrrrr", "LastRow": "rrrrrrrrrre"} {
		t.Run(name, func(t *testing.T) {
			ours(t, 2, func(t *testing.T, h *story.Harness) {
				offset := int64(strings.IndexByte(kinds, 'e'))
				h.Odd = func(story.Source) {} // switches off that the encoder panics on records of kind Unfit
				breakSeals(h, func(rows []story.Source) bool { return hasRow(rows, 0, offset) })
				h.Broker.Produce(story.Topic, 0, kinds, "k")
				h.Broker.Produce(story.Topic, 1, "rrr", "k")
				p := h.Begin(t.Context())
				p.Member.Assign(joined(h, 0, 1))
				eventually(t, "end", h.AtEnd)
				want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
				wantRows(t, h, 0, slices.DeleteFunc(want, func(o int64) bool { return o == offset }))
				wantRows(t, h, 1, []int64{0, 1, 2})
				wantLetters(t, h, 0, offset)
				wantLetters(t, h, 1)
				if got := p.Counted("worker_retry_count_total"); got < 3 {
					t.Errorf("%v attempts counted, want at least 3", got)
				}
				// Later records are no longer tested one by one; they must become rows as usual.
				h.Broker.Produce(story.Topic, 0, "rr", "k")
				eventually(t, "end", h.AtEnd)
			})
		})
	}
}

// TestSeal_PanicsOnRowsTogether has rows of which each can be sealed alone, but not all together. None of their records
// may become a dead letter. The lane must retry until sealing works, and another table must continue meanwhile.
func TestSeal_PanicsOnRowsTogether(t *testing.T) {
	ours(t, 1, func(t *testing.T, h *story.Harness) {
		var healed atomic.Bool
		breakSeals(h, func(rows []story.Source) bool {
			return len(rows) > 1 && rows[0].Topic == story.Topic && !healed.Load()
		})
		other := story.NewTableLog("table-b")
		h.Others = map[string]*story.TableLog{"b": other}
		h.Broker.Create("b", 2, 1)
		h.Broker.Produce(story.Topic, 0, "rrrr", "k")
		h.Broker.Produce("b", 0, "rrrr", "k")
		p := h.Begin(t.Context())
		p.Member.Assign(connector.Assignment{Joined: true, Partitions: slices.Concat(h.Broker.Partitions(story.Topic), h.Broker.Partitions("b"))})
		time.Sleep(5 * time.Minute)
		wantLetters(t, h, 0)
		wantRows(t, h, 0, nil)
		if got := len(rowsOf(other, "b")[0]); got != 4 {
			t.Errorf("the other table has %d rows, want 4", got)
		}
		if got := p.Counted("worker_retry_count_total"); got != 3 {
			t.Errorf("%v attempts counted, want 3", got)
		}
		healed.Store(true)
		eventually(t, "end", h.AtEnd)
		wantRows(t, h, 0, []int64{0, 1, 2, 3})
		wantLetters(t, h, 0)
	})
}
