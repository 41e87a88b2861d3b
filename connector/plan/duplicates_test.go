package plan

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/idempotency"
)

func judging() Terms {
	return Terms{Pipeline: "pipe", Window: 24 * time.Hour, Now: connectortest.Noon().Add(time.Hour)}
}

func TestDecide_Duplicates(t *testing.T) {
	bad := classify.Mark(errors.New("not JSON"), classify.Poison)
	a, b := connectortest.Partition(0), connectortest.Partition(1)
	second := func(n int64) int64 { return connectortest.Noon().UnixMilli() + n*1000 }
	run := func(p connector.Partition, session uint64, first, from, to int64) Run {
		return Run{Partition: p, Session: session, First: first, Last: first + to - from - 1, From: from, To: to}
	}
	for name, tc := range map[string]struct {
		batch   *SealedBatch
		newest  map[connector.Partition]int64
		pieces  []connector.Piece
		dropped map[connector.Partition]int64 // duplicates left out, by claim
		kept    string                        // the offsets whose fingerprints the plan will store
		after   map[connector.Partition]int64 // the newest timestamp of each claim after the commit
	}{
		"in one chunk, and pieces split around them": {
			batch: &SealedBatch{
				Claims: map[connector.Partition]Span{a: {1, 10, 17, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{run(a, 1, 10, 0, 7)}, Entries: connectortest.Entries(10, "xyxz.xx")}},
			},
			pieces:  []connector.Piece{{From: 0, To: 2}, {From: 3, To: 5}},
			dropped: map[connector.Partition]int64{a: 3}, kept: "orders:0@10 orders:0@11 orders:0@13", after: map[connector.Partition]int64{a: second(14)},
		},
		"of the chunk before, and never of another partition": {
			batch: &SealedBatch{
				Claims: map[connector.Partition]Span{a: {1, 10, 16, 3, nil}, b: {2, 10, 12, 3, nil}},
				Chunks: []Chunk{
					{Runs: []Run{run(a, 1, 10, 0, 2), run(b, 2, 10, 2, 4)}, Entries: slices.Concat(connectortest.Entries(10, "xy"), connectortest.Entries(10, "xy"))},
					{Runs: []Run{run(a, 1, 12, 0, 4)}, Entries: connectortest.Entries(12, "zyxz")},
				},
			},
			pieces:  []connector.Piece{{From: 0, To: 4}, {From: 0, To: 1}},
			dropped: map[connector.Partition]int64{a: 3}, kept: "orders:0@10 orders:0@11 orders:0@12 orders:1@10 orders:1@11", after: map[connector.Partition]int64{a: second(12), b: second(11)},
		},
		"of what is remembered": {
			batch: &SealedBatch{
				Claims: map[connector.Partition]Span{a: {1, 10, 13, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{run(a, 1, 10, 0, 3)}, Entries: connectortest.Entries(10, "xyz")}},
				Seen: map[connector.Partition]map[idempotency.Fingerprint]int64{a: {
					connectortest.Entries(0, "x")[0].Fingerprint: second(11) - 24*3600_000, // the oldest time within the window
					connectortest.Entries(0, "z")[0].Fingerprint: second(11) - 24*3600_000, // just outside of the window, which y has moved before z is compared
				}},
			},
			newest:  map[connector.Partition]int64{a: second(5)},
			pieces:  []connector.Piece{{From: 1, To: 3}},
			dropped: map[connector.Partition]int64{a: 1}, kept: "orders:0@11 orders:0@12", after: map[connector.Partition]int64{a: second(12)},
		},
		"rows that are left out are neither counted nor remembered": {
			batch: &SealedBatch{
				Claims: map[connector.Partition]Span{a: {5, 10, 20, 3, nil}, b: {2, 10, 12, 3, nil}},
				Chunks: []Chunk{
					{Runs: []Run{run(a, 1, 8, 0, 2), run(a, 5, 10, 2, 4)}, Entries: slices.Concat(connectortest.Entries(8, "xy"), connectortest.Entries(10, "xy"))},
					{Runs: []Run{run(a, 5, 15, 0, 2), run(connectortest.Partition(9), 7, 3, 2, 4)}, Entries: slices.Concat(connectortest.Entries(15, "xq"), connectortest.Entries(3, "xx"))},
				},
				Candidates: []Candidate{stopper(a, 5, 14, bad)},
			},
			pieces:  []connector.Piece{{From: 2, To: 4}},
			dropped: map[connector.Partition]int64{}, kept: "orders:0@10 orders:0@11", after: map[connector.Partition]int64{a: second(11)},
		},
		"a newest timestamp that does not move is not written again": {
			batch: &SealedBatch{
				Claims: map[connector.Partition]Span{a: {1, 10, 12, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{run(a, 1, 10, 0, 2)}, Entries: connectortest.Entries(10, "xx")}},
			},
			newest:  map[connector.Partition]int64{a: second(10)},
			pieces:  []connector.Piece{{From: 0, To: 1}},
			dropped: map[connector.Partition]int64{a: 1}, kept: "orders:0@10", after: map[connector.Partition]int64{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := map[string]int64{}
			for p, newest := range tc.newest {
				at[p.NewestAppID("pipe")] = newest
			}
			p := Decide(tc.batch, connectortest.Snapshot(at), judging())
			if diff := cmp.Diff(tc.pieces, p.Pieces); diff != "" {
				t.Errorf("pieces: -want +got\n%s", diff)
			}
			var rows int64
			dropped, after, kept := map[connector.Partition]int64{}, map[connector.Partition]int64{}, ""
			for _, r := range p.Commit.Ranges {
				rows += r.Rows
				if r.Duplicates > 0 {
					dropped[connectortest.Partition(r.Partition)] = r.Duplicates
				}
			}
			for _, partition := range []connector.Partition{a, b, connectortest.Partition(9)} {
				for _, txn := range p.Commit.Txns {
					if txn.AppID == partition.NewestAppID("pipe") {
						after[partition] = txn.Version
					}
				}
				for e := range p.Remembered(partition) {
					if kept != "" {
						kept += " "
					}
					kept += idempotency.Coordinates{Partition: partition, Offset: e.Offset}.String()
				}
			}
			var want int64
			for _, piece := range tc.pieces {
				want += piece.To - piece.From
			}
			if rows != want {
				t.Errorf("the ranges say %d rows, the pieces have %d", rows, want)
			}
			if diff := cmp.Diff(tc.dropped, dropped); diff != "" {
				t.Errorf("dropped: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tc.after, after); diff != "" {
				t.Errorf("newest: -want +got\n%s", diff)
			}
			if kept != tc.kept {
				t.Errorf("remembered will be %s, want %s", kept, tc.kept)
			}
		})
	}
}

func TestDecide_BadRecordIsNoDuplicate(t *testing.T) {
	a := connectortest.Partition(0)
	letter := bad(a, 1, 11, classify.Mark(coded("wrong_type"), classify.Poison))
	p := Decide(&SealedBatch{
		Claims:     map[connector.Partition]Span{a: {1, 10, 13, 3, nil}},
		Chunks:     []Chunk{{Runs: []Run{runOf(a, 1, 10, 10, 0, 1), runOf(a, 1, 12, 12, 1, 2)}, Entries: slices.Concat(connectortest.Entries(10, "x"), connectortest.Entries(12, "x"))}},
		Candidates: []Candidate{letter},
	}, connectortest.Snapshot(nil), judging())
	r := p.Commit.Ranges[0]
	if len(p.Letters) != 1 || r.Letters != 1 || r.Rows != 1 || r.Duplicates != 1 {
		t.Errorf("%d letters, range %+v", len(p.Letters), r)
	}
}

func TestDecide_OnlyDuplicates(t *testing.T) {
	a := connectortest.Partition(0)
	p := Decide(&SealedBatch{
		Claims: map[connector.Partition]Span{a: {1, 10, 12, 3, nil}},
		Chunks: []Chunk{{Runs: []Run{runOf(a, 1, 10, 11, 0, 2)}, Entries: connectortest.Entries(10, "xx")}},
		Seen:   map[connector.Partition]map[idempotency.Fingerprint]int64{a: {connectortest.Entries(0, "x")[0].Fingerprint: connectortest.Noon().UnixMilli()}},
	}, connectortest.Snapshot(nil), judging())
	if want := []connector.Range{{Topic: "orders", From: 10, Next: 12, Duplicates: 2, Epoch: 3}}; len(p.Pieces) > 0 || cmp.Diff(want, p.Commit.Ranges) != "" {
		t.Errorf("pieces %v, ranges %+v", p.Pieces, p.Commit.Ranges)
	}
}
