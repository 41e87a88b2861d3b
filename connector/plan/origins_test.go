package plan

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/reliability/origin"
)

// copies returns a sealed batch of partition 0 with one record for each of the origins; the first one has the offset
// from. The records at the offsets in bad are candidates, which have a copy of their record if letters is true. The
// others are rows.
func copies(from int64, letters bool, bad map[int64]bool, all ...Origin) *SealedBatch {
	p := connectortest.Partition(0)
	b := &SealedBatch{Claims: map[connector.Partition]Span{p: {1, from, from + int64(len(all)), 0, nil}}, Chunks: []Chunk{{Schema: &connectortest.Schema{}}}}
	rows := int64(0)
	for i, o := range all {
		at := from + int64(i)
		if o.Intent > 0 {
			o.Partition, o.Session, o.Offset = p, 1, at
			b.Origins = append(b.Origins, o)
		}
		if bad[at] {
			c := stopper(p, 1, at, classify.Mark(errors.New("not JSON"), classify.Poison))
			if letters {
				c.Record = &connector.Record{Offset: at}
			}
			b.Candidates = append(b.Candidates, c)
			continue
		}
		b.Chunks[0].Runs = append(b.Chunks[0].Runs, runOf(p, 1, at, at, rows, rows+1))
		rows++
	}
	return b
}

func from(intent, number int64) Origin { return Origin{TableID: "T", Intent: intent, Number: number} }

// TestDecide_Origins: for each kind of origin, the record becomes a row, a dead letter or nothing as the table wants,
// the commit sets the txn to the number of accepted origins, and a changed txn in the table makes the precondition
// fail.
func TestDecide_Origins(t *testing.T) {
	p := connectortest.Partition(0)
	live := Origin{}
	for name, c := range map[string]struct {
		txn   int64 // -1: none
		batch *SealedBatch
		rows  int64
		want  OriginCounts
		now   int64 // the txn of the commit, -1 for none
		holds int
	}{
		"the next ones":              {origin.Txn(7, 2), copies(10, true, nil, from(7, 3), live, from(7, 4)), 3, OriginCounts{Accepted: 2}, origin.Txn(7, 4), 0},
		"accepted before":            {origin.Txn(7, 2), copies(10, true, nil, from(7, 1), from(7, 2)), 0, OriginCounts{Repeated: 2}, -1, 0},
		"twice in the batch":         {origin.Txn(7, 0), copies(10, true, nil, from(7, 1), from(7, 1), live), 2, OriginCounts{Accepted: 1, Repeated: 1}, origin.Txn(7, 1), 0},
		"one is missing":             {origin.Txn(7, 0), copies(10, true, nil, from(7, 2), from(7, 1), from(7, 3)), 1, OriginCounts{Accepted: 1, Missing: 2}, origin.Txn(7, 1), 0},
		"of a closed intent":         {origin.Txn(7, 0), copies(10, true, nil, from(6, 1)), 0, OriginCounts{Repeated: 1}, -1, 0},
		"of an intent not opened":    {origin.Txn(7, 0), copies(10, true, nil, from(8, 1)), 1, OriginCounts{Unknown: 1}, -1, 0},
		"without any replay":         {-1, copies(10, true, nil, from(8, 1)), 1, OriginCounts{Unknown: 1}, -1, 0},
		"of another table":           {origin.Txn(7, 0), copies(10, true, nil, Origin{TableID: "U", Intent: 7, Number: 1}), 1, OriginCounts{Unknown: 1}, -1, 0},
		"accepted, a dead letter":    {origin.Txn(7, 0), copies(10, true, map[int64]bool{10: true}, from(7, 1), live), 1, OriginCounts{Accepted: 1}, origin.Txn(7, 1), 0},
		"repeated, no dead letter":   {origin.Txn(7, 1), copies(10, true, map[int64]bool{10: true}, from(7, 1), live), 1, OriginCounts{Repeated: 1}, -1, 0},
		"a repeat holds no claim":    {origin.Txn(7, 1), copies(10, false, map[int64]bool{10: true}, from(7, 1), live), 1, OriginCounts{Repeated: 1}, -1, 0},
		"after the end of the claim": {origin.Txn(7, 0), copies(10, false, map[int64]bool{11: true}, from(7, 1), live, from(7, 2)), 1, OriginCounts{Accepted: 1}, origin.Txn(7, 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := connectortest.Snapshot(map[string]int64{p.AppID("pipe"): 10, idempotency.TableAppID("pipe", "T"): 0})
			if c.txn >= 0 {
				s.Positions[p.OriginsAppID("pipe")] = c.txn
			}
			d := Decide(c.batch, s, Terms{Pipeline: "pipe", Letters: map[string]connector.LetterRules{"orders": {HoldAbove: 1}}})
			r := d.Commit.Ranges[0]
			if r.Rows != c.rows || r.Repeats != c.want.LeftOut() || len(d.Holds) != c.holds {
				t.Errorf("%+v, holds %+v", r, d.Holds)
			}
			if diff := cmp.Diff(c.want, d.Origins[p]); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			now := int64(-1)
			for _, txn := range d.Commit.Txns {
				if txn.AppID == p.OriginsAppID("pipe") {
					now = txn.Version
				}
			}
			if now != c.now {
				t.Errorf("the commit sets the txn to %d, want %d", now, c.now)
			}
			if err := d.Precondition(s); err != nil {
				t.Error(err)
			}
			s.Positions[p.OriginsAppID("pipe")] = origin.Txn(9, 0)
			if err := d.Precondition(s); classify.Of(err) != classify.Fenced {
				t.Errorf("the accepted origins have changed: %v", err)
			}
		})
	}
}

// TestDecide_WithoutOrigins: if a batch has no origins, a changed txn of accepted origins does not make the
// precondition fail. OpenedSince returns true only if the batch has an origin of an intent that the snapshot does not
// show.
func TestDecide_WithoutOrigins(t *testing.T) {
	p := connectortest.Partition(0)
	s := connectortest.Snapshot(map[string]int64{p.AppID("pipe"): 10, idempotency.TableAppID("pipe", "T"): 0})
	b := copies(10, true, nil, Origin{})
	d := Decide(b, s, Terms{Pipeline: "pipe"})
	s.Positions[p.OriginsAppID("pipe")] = origin.Txn(9, 0)
	if err := d.Precondition(s); err != nil || d.Origins != nil || b.OpenedSince(s, "pipe") {
		t.Errorf("%v, %v", err, d.Origins)
	}
	other := copies(10, true, nil, from(10, 1))
	if !other.OpenedSince(s, "pipe") {
		t.Error("an intent that the snapshot does not know")
	}
	s.Positions[p.OriginsAppID("pipe")] = origin.Txn(10, 0)
	if other.OpenedSince(s, "pipe") {
		t.Error("an intent that the snapshot knows")
	}
}

// TestDecide_OriginsInAnyBatches: a topic has origins in any order, with repeats and gaps. The same records become
// rows, wherever the topic is cut into batches: of each origin, the first one that comes after the origin before it was
// accepted.
func TestDecide_OriginsInAnyBatches(t *testing.T) {
	p := connectortest.Partition(0)
	rapid.Check(t, func(r *rapid.T) {
		log := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) Origin {
			return from(rapid.Int64Range(6, 8).Draw(r, "intent"), rapid.Int64Range(1, 4).Draw(r, "number"))
		}), 1, 20).Draw(r, "log")
		var want []int64
		for i, n := 0, int64(0); i < len(log); i++ {
			switch {
			case log[i].Intent == 7 && log[i].Number == n+1:
				n++
				want = append(want, int64(i))
			case log[i].Intent == 8:
				want = append(want, int64(i))
			}
		}
		s := connectortest.Snapshot(map[string]int64{p.AppID("pipe"): 0, p.OriginsAppID("pipe"): origin.Txn(7, 0), idempotency.TableAppID("pipe", "T"): 0})
		var got []int64
		for at := 0; at < len(log); {
			next := rapid.IntRange(at+1, len(log)).Draw(r, "next")
			d := Decide(copies(int64(at), true, nil, log[at:next]...), s, Terms{Pipeline: "pipe"})
			if err := d.Precondition(s); err != nil {
				r.Fatal(err)
			}
			for _, piece := range d.Pieces {
				for row := piece.From; row < piece.To; row++ {
					got = append(got, int64(at)+row)
				}
			}
			for _, txn := range d.Commit.Txns {
				s.Positions[txn.AppID] = txn.Version
			}
			at = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("-want +got\n%s", diff)
		}
	})
}

// TestReplay_Origins: the commit that opens an intent sets the txn of accepted origins of each partition to the new
// intent with no accepted origin. If a member has accepted another origin meanwhile, the precondition fails.
func TestReplay_Origins(t *testing.T) {
	p, q := connectortest.Partition(0), connectortest.Partition(1)
	r := &Replay{Pipeline: "pipe", TableID: "T", Intent: 12, After: 7, Origins: map[connector.Partition]int64{p: origin.Txn(7, 3), q: 0}}
	want := []connector.Txn{
		{AppID: idempotency.ReplayAppID("pipe", "T"), Version: 12}, {AppID: p.OriginsAppID("pipe"), Version: origin.Txn(12, 0)}, {AppID: q.OriginsAppID("pipe"), Version: origin.Txn(12, 0)},
	}
	if diff := cmp.Diff(want, r.Commit("", nil).Txns); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	s := connectortest.Snapshot(map[string]int64{idempotency.TableAppID("pipe", "T"): 0, idempotency.ReplayAppID("pipe", "T"): 7, p.OriginsAppID("pipe"): origin.Txn(7, 3)})
	if err := r.Precondition(s); err != nil {
		t.Error(err)
	}
	s.Positions[p.OriginsAppID("pipe")]++
	if err := r.Precondition(s); classify.Of(err) != classify.Fenced || errors.As(err, new(*hold.Error)) {
		t.Errorf("members have accepted one more: %v", err)
	}
}
