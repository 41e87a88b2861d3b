package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// coded is an error of a decoder with a reason code.
type coded string

func (c coded) Error() string { return "json: " + string(c) + " at byte 3" }
func (c coded) Code() string  { return string(c) }

var (
	syntax = classify.Mark(coded("syntax"), classify.Poison)
	typed  = classify.Mark(coded("type_mismatch"), classify.Poison)
)

func topicPart(topic string, id int32) connector.Partition {
	return connector.Partition{Cluster: "c", Topic: topic, TopicID: idempotency.TopicID{1}, ID: id}
}

func bad(p connector.Partition, session uint64, offset int64, err error) Candidate {
	return Candidate{Partition: p, Session: session, Offset: offset, Err: err, Record: &connector.Record{Offset: offset, Value: fmt.Append(nil, offset)}}
}

// halves returns terms by which a topic is a flood if more than 50 % of its records are bad, unless the topic is
// allowed.
func halves(allowed ...string) Terms {
	t := Terms{Pipeline: "pipe", Member: "m", Letters: map[string]connector.LetterRules{}, Allowed: map[string]bool{}}
	for _, topic := range []string{"orders", "users", "calm"} {
		t.Letters[topic] = connector.LetterRules{HoldAbove: 0.5}
	}
	for _, topic := range allowed {
		t.Allowed[topic] = true
	}
	return t
}

func at(p *Plan) (all []string) {
	for _, l := range p.Letters {
		all = append(all, l.Source.String())
	}
	return all
}

func TestDecide_Letters(t *testing.T) {
	a, b, lost := connectortest.Partition(0), connectortest.Partition(1), connectortest.Partition(2)
	conflict := hold.New(hold.SchemaConflict, "no", nil)
	p := Decide(&SealedBatch{
		ID:     "m-7",
		Claims: map[connector.Partition]Span{a: {1, 10, 20, 3, nil}, b: {2, 0, 9, 3, nil}},
		Chunks: []Chunk{{Runs: []Run{runOf(a, 1, 10, 11, 0, 2), runOf(a, 1, 13, 16, 2, 6), runOf(lost, 5, 0, 3, 6, 10), runOf(b, 2, 3, 3, 10, 11), runOf(b, 2, 7, 8, 11, 13)}}},
		Candidates: []Candidate{
			bad(b, 2, 4, syntax), bad(b, 2, 2, typed), bad(b, 2, 6, syntax), stopper(b, 2, 5, conflict),
			bad(a, 1, 17, errors.New("plain")), bad(a, 1, 12, syntax), bad(a, 9, 13, syntax), bad(lost, 5, 4, syntax), bad(a, 1, 20, syntax),
		},
	}, connectortest.Snapshot(nil), halves())
	if diff := cmp.Diff([]string{"orders:0@12", "orders:0@17", "orders:1@2", "orders:1@4"}, at(p)); diff != "" {
		t.Errorf("letters: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]connector.Range{
		{Topic: "orders", From: 10, Next: 20, Rows: 6, Letters: 2, Epoch: 3}, {Topic: "orders", Partition: 1, Next: 5, Rows: 1, Letters: 2, Epoch: 3},
	}, ranges(p)); diff != "" {
		t.Errorf("ranges: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]hold.Hold{{Partition: b, Reason: hold.SchemaConflict, Detail: "no", Offset: 5}}, p.Holds); diff != "" {
		t.Errorf("holds: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]connector.Piece{{From: 0, To: 6}, {From: 10, To: 11}}, p.Pieces); diff != "" {
		t.Errorf("pieces: -want +got\n%s", diff)
	}
}

func TestCandidate_Letter(t *testing.T) {
	a := connectortest.Partition(0)
	first, last := time.Unix(100, 0), time.Unix(109, 0)
	c := Candidate{
		Partition: a, Session: 1, Offset: 12, Err: fmt.Errorf("row: %w", syntax), Retries: 3, First: first, Last: last,
		Record: &connector.Record{Offset: 12, Timestamp: 5, Value: []byte("{"), Headers: []connector.Header{{Key: "h", Value: nil}, {Key: "h", Value: []byte("x")}}},
	}
	p := Decide(&SealedBatch{ID: "m-7", Claims: map[connector.Partition]Span{a: {1, 12, 13, 3, nil}}, Candidates: []Candidate{c}}, connectortest.Snapshot(nil), halves())
	source := idempotency.Coordinates{Partition: a, Offset: 12}
	want := []deadletter.Letter{{
		Source: source, Timestamp: 5, Value: []byte("{"), Headers: []deadletter.Header{{Key: "h"}, {Key: "h", Value: []byte("x")}},
		Class: classify.Poison, Reason: "syntax", Detail: "row: json: syntax at byte 3",
		Trace:   "*fmt.wrapError: row: json: syntax at byte 3 < classify.marked: json: syntax at byte 3 < plan.coded",
		Retries: 3, FirstFailure: first, LastFailure: last,
		Member: "m", Correlation: deadletter.Correlation(source), Batch: "m-7",
	}}
	if diff := cmp.Diff(want, p.Letters); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(p.Commit.Txns) != 2 || p.Commit.Txns[0].Version != 13 || len(p.Pieces) != 0 {
		t.Errorf("a batch of dead letters alone commits %+v", p.Commit)
	}
	c.Err = errors.New(strings.Repeat("ü", 600))
	l := c.letter("m", "m-7")
	if l.Reason != deadletter.Unspecified || len(l.Detail) > 500 || len(l.Trace) > 500 || !utf8.ValidString(l.Detail+l.Trace) {
		t.Errorf("reason %q, detail of %d, trace of %d bytes", l.Reason, len(l.Detail), len(l.Trace))
	}
}

// batchOf returns a sealed batch. counts has the numbers of good and of bad records of each claim; the good records
// come first.
func batchOf(counts map[connector.Partition][2]int64, err error) *SealedBatch {
	batch := &SealedBatch{Claims: map[connector.Partition]Span{}}
	var c Chunk
	at := int64(0)
	for p, n := range counts {
		batch.Claims[p] = Span{Session: 1, From: 1000, Next: 1000 + n[0] + n[1]}
		if n[0] > 0 {
			c.Runs = append(c.Runs, runOf(p, 1, 1000, 1000+n[0]-1, at, at+n[0]))
			at += n[0]
		}
		for i := range n[1] {
			batch.Candidates = append(batch.Candidates, bad(p, 1, 1000+n[0]+i, err))
		}
	}
	batch.Chunks = []Chunk{c}
	return batch
}

func TestDecide_Floods(t *testing.T) {
	a, b, other := topicPart("orders", 0), topicPart("orders", 1), topicPart("users", 0)
	for name, tc := range map[string]struct {
		counts  map[connector.Partition][2]int64 // numbers of good and of bad records
		allowed []string
		more    func(*SealedBatch)
		letters int
		holds   map[connector.Partition]int64
	}{
		"99 of 99":               {map[connector.Partition][2]int64{a: {0, 99}}, nil, nil, 99, nil},
		"100 of 100":             {map[connector.Partition][2]int64{a: {0, 100}}, nil, nil, 0, map[connector.Partition]int64{a: 1000}},
		"exactly half":           {map[connector.Partition][2]int64{a: {100, 100}}, nil, nil, 100, nil},
		"one more than half":     {map[connector.Partition][2]int64{a: {100, 101}}, nil, nil, 0, map[connector.Partition]int64{a: 1100}},
		"allowed":                {map[connector.Partition][2]int64{a: {0, 100}}, []string{"orders"}, nil, 100, nil},
		"another one is allowed": {map[connector.Partition][2]int64{a: {0, 100}}, []string{"users"}, nil, 0, map[connector.Partition]int64{a: 1000}},
		"the topic is judged, not the partition": {
			map[connector.Partition][2]int64{a: {0, 100}, b: {100, 0}}, nil, nil, 100, nil,
		},
		"both partitions stop, one without a bad record does not": {
			map[connector.Partition][2]int64{a: {1, 60}, b: {2, 60}, topicPart("orders", 2): {3, 0}}, nil, nil, 0, map[connector.Partition]int64{a: 1001, b: 1002},
		},
		"a calm topic beside it": {
			map[connector.Partition][2]int64{a: {0, 200}, other: {500, 3}}, nil, nil, 3, map[connector.Partition]int64{a: 1000},
		},
		"rows of a lost claim are no good ones": {
			map[connector.Partition][2]int64{a: {0, 100}, b: {100, 0}}, nil, func(s *SealedBatch) { delete(s.Claims, b) }, 0, map[connector.Partition]int64{a: 1000},
		},
		"bad ones of a lost claim do not count": {
			map[connector.Partition][2]int64{a: {0, 99}, b: {0, 99}}, nil, func(s *SealedBatch) { delete(s.Claims, b) }, 99, nil,
		},
		"bad records after a stop do not count": {
			map[connector.Partition][2]int64{a: {0, 150}},
			nil,
			func(s *SealedBatch) { s.Candidates = append(s.Candidates, stopper(a, 1, 1099, errors.New("no"))) }, 99,
			map[connector.Partition]int64{a: 1099},
		},
	} {
		t.Run(name, func(t *testing.T) {
			batch := batchOf(tc.counts, syntax)
			if tc.more != nil {
				tc.more(batch)
			}
			p := Decide(batch, connectortest.Snapshot(nil), halves(tc.allowed...))
			if len(p.Letters) != tc.letters {
				t.Errorf("%d letters, want %d", len(p.Letters), tc.letters)
			}
			holds := map[connector.Partition]int64{}
			for _, h := range p.Holds {
				holds[h.Partition] = h.Offset
				if span, ok := p.Next[h.Partition]; ok && span.Next != h.Offset {
					t.Errorf("%v holds at %d and commits up to %d", h.Partition, h.Offset, span.Next)
				}
			}
			if diff := cmp.Diff(tc.holds, holds, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("holds: -want +got\n%s", diff)
			}
		})
	}
}

// TestDecide_FloodBeforeStop: a batch has a flood and, later in the same claim, a bad record that would stop the claim.
// The claim ends at the flood, which is the only hold: a hold at the bad record would name an offset that the table
// does not reach, and would end and return at each check.
func TestDecide_FloodBeforeStop(t *testing.T) {
	a := topicPart("orders", 0)
	batch := batchOf(map[connector.Partition][2]int64{a: {0, 200}}, syntax)
	batch.Candidates = append(batch.Candidates, stopper(a, 1, 1150, hold.New(hold.SchemaConflict, "no", nil)))
	p := Decide(batch, connectortest.Snapshot(nil), halves())
	if len(p.Holds) != 1 || p.Holds[0].Reason != hold.Flood || p.Holds[0].Offset != 1000 || len(p.Next) != 0 {
		t.Errorf("holds %+v, next %v: want the flood at 1000 alone", p.Holds, p.Next)
	}
}

func TestDecide_FloodDetail(t *testing.T) {
	a := topicPart("orders", 0)
	batch := batchOf(map[connector.Partition][2]int64{a: {20, 60}}, typed)
	for i := range int64(61) {
		batch.Candidates = append(batch.Candidates, bad(a, 1, 1080+i, syntax))
	}
	batch.Claims[a] = Span{1, 1000, 1141, 0, nil}
	p := Decide(batch, connectortest.Snapshot(nil), halves())
	want := `121 of the 141 records of topic "orders" in one batch are bad, 61 of them for syntax; the first one here: json: type_mismatch at byte 3`
	if len(p.Holds) != 1 || p.Holds[0].Reason != hold.Flood || p.Holds[0].Detail != want {
		t.Errorf("%+v\nwant %s", p.Holds, want)
	}
}

// TestDecide_EachRecordOnce: in every mix of lost claims and bad records, each record before a position that the plan
// sets becomes exactly one row or one dead letter. Dead letters are in the order of their offsets.
func TestDecide_EachRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type place struct {
			p      connector.Partition
			offset int64
		}
		batch := &SealedBatch{Claims: map[connector.Partition]Span{}}
		produced := map[place]bool{} // true for a bad record, false for a good one
		var c Chunk
		rows := int64(0)
		of := map[int64]place{} // maps a row of the batch to its record
		for id := range int32(3) {
			p := topicPart([]string{"orders", "orders", "users"}[id], id)
			n := rapid.Int64Range(0, 150).Draw(t, "records")
			badness := rapid.IntRange(0, 9).Draw(t, "badness")
			apart := true
			for o := range n {
				switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
				case kind < badness:
					batch.Candidates = append(batch.Candidates, bad(p, 1, o, syntax))
					produced[place{p, o}], apart = true, true
					continue
				case kind == 9 && rapid.IntRange(0, 50).Draw(t, "stop") == 0:
					batch.Candidates = append(batch.Candidates, stopper(p, 1, o, typed))
					apart = true
					continue
				}
				if produced[place{p, o}] = false; apart || rapid.IntRange(0, 20).Draw(t, "seal") == 0 {
					c.Runs = append(c.Runs, runOf(p, 1, o, o, rows, rows))
				}
				apart = false
				run := &c.Runs[len(c.Runs)-1]
				of[rows] = place{p, o}
				rows++
				run.Last, run.To = o, rows
			}
			if rapid.IntRange(0, 4).Draw(t, "lost") > 0 && n > 0 {
				batch.Claims[p] = Span{1, 0, n, 0, nil}
			}
		}
		batch.Chunks = []Chunk{c}
		var allowed []string
		if rapid.Bool().Draw(t, "allowed") {
			allowed = []string{"orders"}
		}
		p := Decide(batch, connectortest.Snapshot(nil), halves(allowed...))
		got := map[place]int{}
		last := map[connector.Partition]int64{}
		for _, l := range p.Letters {
			if !produced[place{l.Source.Partition, l.Source.Offset}] {
				t.Fatalf("a letter of a good record: %v", l.Source)
			}
			if before, ok := last[l.Source.Partition]; ok && before >= l.Source.Offset {
				t.Fatalf("%v after %d", l.Source, before)
			}
			last[l.Source.Partition] = l.Source.Offset
			got[place{l.Source.Partition, l.Source.Offset}]++
		}
		for _, piece := range p.Pieces {
			for r := piece.From; r < piece.To; r++ {
				got[of[r]]++
			}
		}
		for at, n := range got {
			if n != 1 || at.offset >= p.Next[at.p].Next {
				t.Fatalf("%v@%d is there %d times, the claim commits up to %d", at.p, at.offset, n, p.Next[at.p].Next)
			}
		}
		for _, r := range p.Commit.Ranges {
			i := slices.IndexFunc(slices.Collect(maps.Keys(batch.Claims)), func(p connector.Partition) bool { return p.Topic == r.Topic && p.ID == r.Partition })
			if i < 0 || r.Rows+r.Letters != r.Next-r.From {
				t.Fatalf("%+v: every record of it is a row or a letter", r)
			}
			for o := r.From; o < r.Next; o++ {
				if got[place{topicPart(r.Topic, r.Partition), o}] != 1 {
					t.Fatalf("%s:%d@%d has no place", r.Topic, r.Partition, o)
				}
			}
		}
	})
}
