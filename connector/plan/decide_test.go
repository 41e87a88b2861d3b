package plan

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

func ranges(p *Plan) []connector.Range { return p.Commit.Ranges }

// stopper returns a candidate without a copy of its record. It cannot become a dead letter, so it stops its claim.
func stopper(p connector.Partition, session uint64, offset int64, err error) Candidate {
	return Candidate{Partition: p, Session: session, Offset: offset, Err: err}
}

func runOf(p connector.Partition, session uint64, first, last, from, to int64) Run {
	return Run{Partition: p, Session: session, First: first, Last: last, From: from, To: to}
}

func TestDecide(t *testing.T) {
	bad := classify.Mark(errors.New("not JSON"), classify.Poison)
	a, b, c := connectortest.Partition(0), connectortest.Partition(1), connectortest.Partition(2)
	for name, tc := range map[string]struct {
		batch  *SealedBatch
		pieces []connector.Piece
		ranges []connector.Range
		holds  []hold.Hold
	}{
		"every record": {
			&SealedBatch{
				Claims: map[connector.Partition]Span{a: {1, 10, 14, 3, nil}, b: {2, 0, 2, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{runOf(a, 1, 10, 11, 0, 2), runOf(b, 2, 0, 1, 2, 4), runOf(a, 1, 12, 13, 4, 6)}}},
			},
			[]connector.Piece{{From: 0, To: 6}},
			[]connector.Range{{Topic: "orders", From: 10, Next: 14, Rows: 4, Epoch: 3}, {Topic: "orders", Partition: 1, From: 0, Next: 2, Rows: 2, Epoch: 3}},
			nil,
		},
		"lost claims and earlier sessions are left out": {
			&SealedBatch{
				Claims: map[connector.Partition]Span{a: {5, 10, 12, 3, nil}},
				Chunks: []Chunk{{Runs: []Run{runOf(a, 1, 10, 11, 0, 2), runOf(b, 2, 0, 1, 2, 4), runOf(a, 5, 10, 11, 4, 6)}}},
			},
			[]connector.Piece{{From: 4, To: 6}},
			[]connector.Range{{Topic: "orders", From: 10, Next: 12, Rows: 2, Epoch: 3}},
			nil,
		},
		"a bad record truncates its claim": {
			&SealedBatch{
				Claims:     map[connector.Partition]Span{a: {1, 10, 20, 3, nil}, b: {2, 0, 2, 3, nil}},
				Chunks:     []Chunk{{Runs: []Run{runOf(a, 1, 10, 12, 0, 3), runOf(b, 2, 0, 1, 3, 5), runOf(a, 1, 14, 19, 5, 11)}}},
				Candidates: []Candidate{stopper(a, 1, 17, bad), stopper(a, 1, 13, bad)},
			},
			[]connector.Piece{{From: 0, To: 5}},
			[]connector.Range{{Topic: "orders", From: 10, Next: 13, Rows: 3, Epoch: 3}, {Topic: "orders", Partition: 1, From: 0, Next: 2, Rows: 2, Epoch: 3}},
			[]hold.Hold{{Partition: a, Reason: hold.Poison, Detail: "not JSON", Offset: 13}},
		},
		"a bad record before the last epoch's first one": {
			&SealedBatch{
				Claims:     map[connector.Partition]Span{a: {1, 10, 20, 4, []EpochUntil{{2, 12}, {3, 13}}}},
				Chunks:     []Chunk{{Runs: []Run{runOf(a, 1, 10, 12, 0, 3), runOf(a, 1, 14, 19, 3, 9)}}},
				Candidates: []Candidate{stopper(a, 1, 13, bad)},
			},
			[]connector.Piece{{From: 0, To: 3}},
			[]connector.Range{{Topic: "orders", From: 10, Next: 13, Rows: 3, Epoch: 3}},
			[]hold.Hold{{Partition: a, Reason: hold.Poison, Detail: "not JSON", Offset: 13}},
		},
		"a bad record after the last epoch's first one": {
			&SealedBatch{
				Claims:     map[connector.Partition]Span{a: {1, 10, 20, 4, []EpochUntil{{3, 12}}}},
				Chunks:     []Chunk{{Runs: []Run{runOf(a, 1, 10, 12, 0, 3), runOf(a, 1, 14, 19, 3, 9)}}},
				Candidates: []Candidate{stopper(a, 1, 13, bad)},
			},
			[]connector.Piece{{From: 0, To: 3}},
			[]connector.Range{{Topic: "orders", From: 10, Next: 13, Rows: 3, Epoch: 4}},
			[]hold.Hold{{Partition: a, Reason: hold.Poison, Detail: "not JSON", Offset: 13}},
		},
		"a bad record at the start leaves the claim out": {
			&SealedBatch{Claims: map[connector.Partition]Span{a: {1, 10, 11, 3, nil}}, Candidates: []Candidate{stopper(a, 1, 10, bad)}},
			nil, nil,
			[]hold.Hold{{Partition: a, Reason: hold.Poison, Detail: "not JSON", Offset: 10}},
		},
		"a bad record of an earlier session does not count": {
			&SealedBatch{Claims: map[connector.Partition]Span{a: {5, 10, 11, 3, nil}}, Candidates: []Candidate{stopper(a, 1, 10, bad), stopper(c, 9, 0, bad)}},
			nil,
			[]connector.Range{{Topic: "orders", From: 10, Next: 11, Rows: 0, Epoch: 3}},
			nil,
		},
		"offsets without rows move the position": {
			&SealedBatch{Claims: map[connector.Partition]Span{a: {1, 10, 15, 3, nil}}},
			nil,
			[]connector.Range{{Topic: "orders", From: 10, Next: 15, Rows: 0, Epoch: 3}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.batch, connectortest.Snapshot(nil), Terms{Pipeline: "pipe"})
			if diff := cmp.Diff(tc.pieces, p.Pieces, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("pieces: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tc.ranges, ranges(p), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("ranges: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tc.holds, p.Holds, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("holds: -want +got\n%s", diff)
			}
			var txns []connector.Txn
			for _, r := range tc.ranges {
				txns = append(txns, connector.Txn{AppID: connectortest.Partition(r.Partition).AppID("pipe"), Version: r.Next}, connector.Txn{AppID: connectortest.Partition(r.Partition).EpochAppID("pipe"), Version: int64(r.Epoch)})
			}
			if diff := cmp.Diff(txns, p.Commit.Txns); diff != "" {
				t.Errorf("txns: -want +got\n%s", diff)
			}
		})
	}
}

func TestPlan_Precondition(t *testing.T) {
	a := connectortest.Partition(0)
	id, mark := a.AppID("pipe"), idempotency.TableAppID("pipe", "T")
	write := func() *Plan {
		return Decide(&SealedBatch{
			Claims: map[connector.Partition]Span{a: {1, 10, 12, 0, nil}},
			Chunks: []Chunk{{Schema: &connectortest.Schema{}, Runs: []Run{runOf(a, 1, 10, 11, 0, 2)}}},
		}, connectortest.Snapshot(nil), Terms{Pipeline: "pipe"})
	}
	start := func() *Plan {
		return planInitial("orders", map[connector.Partition]int64{a: 0}, connectortest.Snapshot(nil), "pipe")
	}
	late := func() *Plan {
		return planAdded(map[connector.Partition]int64{a: 0}, connectortest.Snapshot(nil), "pipe")
	}
	other := connectortest.Partition(1)
	foreign := connector.Partition{Cluster: "x", Topic: "orders", ID: 4}
	for name, c := range map[string]struct {
		plan   *Plan
		change func(*connector.Snapshot)
		class  classify.Class
		ok     bool
	}{
		"position where the batch starts": {write(), func(s *connector.Snapshot) { s.Positions[id] = 10 }, 0, true},
		"another txn moved":               {write(), func(s *connector.Snapshot) { s.Positions[id] = 10; s.Positions["else"] = 3 }, 0, true},
		"moved on":                        {write(), func(s *connector.Snapshot) { s.Positions[id] = 12 }, classify.Fenced, false},
		"moved back":                      {write(), func(s *connector.Snapshot) { s.Positions[id] = 9 }, classify.Fenced, false},
		"gone":                            {write(), func(*connector.Snapshot) {}, classify.Fenced, false},
		"another table":                   {write(), func(s *connector.Snapshot) { s.Positions[id] = 10; s.TableID = "U" }, classify.Fatal, false},
		"rows do not fit": {write(), func(s *connector.Snapshot) {
			s.Positions[id] = 10
			s.Schema = &connectortest.Schema{Err: errors.New("dropped")}
		}, classify.Fenced, false},
		"initial commit of a new topic":           {start(), func(s *connector.Snapshot) { s.Positions["spark"] = 1 }, 0, true},
		"initial commit over itself":              {start(), func(s *connector.Snapshot) { s.Positions[id] = 0 }, classify.Fenced, false},
		"initial commit beside another partition": {start(), func(s *connector.Snapshot) { s.Positions[other.AppID("pipe")] = 0 }, classify.Fenced, false},
		"initial commit over another pipeline":    {start(), func(s *connector.Snapshot) { s.Positions[a.AppID("old")] = 0 }, classify.Fenced, false},
		"initial commit over another id":          {start(), func(s *connector.Snapshot) { s.Positions[foreign.AppID("old")] = 0 }, classify.Fenced, false},
		"no mark":                                 {write(), func(s *connector.Snapshot) { s.Positions[id] = 10; delete(s.Positions, mark) }, classify.Fatal, false},
		"the mark of another pipeline": {write(), func(s *connector.Snapshot) {
			s.Positions[id] = 10
			s.Positions[idempotency.TableAppID("old", "T")] = 0
			delete(s.Positions, mark)
		}, classify.Fatal, false},
		"initial commit without a mark":         {start(), func(s *connector.Snapshot) { s.Positions["spark"] = 1; delete(s.Positions, mark) }, 0, true},
		"late initial commit without a mark":    {late(), func(s *connector.Snapshot) { s.Positions[other.AppID("pipe")] = 5; delete(s.Positions, mark) }, classify.Fatal, false},
		"initial commit of another table":       {start(), func(s *connector.Snapshot) { s.TableID = "U" }, classify.Fatal, false},
		"late initial commit beside others":     {late(), func(s *connector.Snapshot) { s.Positions[other.AppID("pipe")] = 5 }, 0, true},
		"late initial commit over itself":       {late(), func(s *connector.Snapshot) { s.Positions[id] = 0 }, classify.Fenced, false},
		"initial commit beside an epoch alone":  {start(), func(s *connector.Snapshot) { s.Positions[a.EpochAppID("pipe")] = 3 }, 0, true},
		"a topic of another name is no history": {start(), func(s *connector.Snapshot) { s.Positions[connector.Partition{Topic: "orders2"}.AppID("pipe")] = 0 }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := connectortest.Snapshot(map[string]int64{mark: 0})
			c.change(s)
			switch err := c.plan.Precondition(s); {
			case c.ok && err != nil:
				t.Errorf("refused: %v", err)
			case !c.ok && err == nil:
				t.Error("accepted")
			case !c.ok && classify.Of(err) != c.class:
				t.Errorf("%v is %v, want %v", err, classify.Of(err), c.class)
			}
		})
	}
}

func TestInitial_MarksTableOnce(t *testing.T) {
	a := connectortest.Partition(0)
	s := connectortest.Snapshot(map[string]int64{})
	p := planInitial("orders", map[connector.Partition]int64{a: 5}, s, "pipe")
	want := []connector.Txn{{AppID: "kd1:pipe:table:T", Version: 0}, {AppID: a.AppID("pipe"), Version: 5}, {AppID: a.EpochAppID("pipe"), Version: -1}}
	if diff := cmp.Diff(want, p.Commit.Txns); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]connector.Range{{Topic: "orders", From: -1, Next: 5, Rows: 0, Epoch: -1}}, p.Commit.Ranges); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	s.Positions["kd1:pipe:table:T"] = 0
	if p = planInitial("orders", map[connector.Partition]int64{a: 5}, s, "pipe"); len(p.Commit.Txns) != 2 {
		t.Errorf("marked again: %v", p.Commit.Txns)
	}
}
