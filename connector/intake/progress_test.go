package intake

import (
	"strings"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
	"sluice/connector/plan"
)

// TestClaim_Consumed: after each step of enqueueing, decoding and sealing, the status shows the offset that the claim
// has consumed, the oldest uncommitted timestamp, and whether records wait for a commit.
func TestClaim_Consumed(t *testing.T) {
	var published *connector.Status
	r := readerOf(t, Config{Count: 1, Publish: func(s *connector.Status) { published = s }})
	l := r.lanes[0]
	tab := &tableState{Table: lane.Table{Decoder: connectortest.Tallies{}}, schema: &connectortest.Schema{}, claims: map[connector.Partition]*claim{}, limits: connector.Limits{Rows: 1 << 20, Bytes: 1 << 30}}
	r.tables = []*tableState{tab}
	c := &claim{Partition: connectortest.Partition(0), table: tab, lane: l, claimState: claimState{state: resuming}, position: 10, recordRules: recordRules{refuse: connector.Refusals{Tombstones: connector.TombstonesRefused}}}
	r.claims[c.Partition], tab.claims[c.Partition], r.order = c, c, []*claim{c}
	r.holds.endSession(c)
	r.fetches.startReading(c, connector.Position{Partition: c.Partition, Next: 10, Epoch: 1})
	hand := func(next int64, records ...connector.Record) {
		r.fetches.accept(connector.Fetched{Partition: c.Partition, Session: c.session, From: c.ahead, Next: next, Epoch: 1, Records: &connectortest.Records{Left: records}})
		r.dispatcher.enqueue()
	}
	good := func(offset, at int64) connector.Record {
		return connector.Record{Offset: offset, Timestamp: at, Value: []byte("x")}
	}
	decode := func() bool { return l.Step(t.Context()) }
	want := func(what string, consumed, oldest int64, waits bool) {
		t.Helper()
		r.status.shown = time.Time{}
		r.status.show()
		s := published.Claims[0]
		if s.Consumed != consumed || !s.Oldest.Equal(timeOf(oldest)) || s.Waiting.IsZero() == waits || len(published.Claims) != 1 {
			t.Errorf("%s: consumed %d, oldest %v, waiting %v; want %d, %v, %v", what, s.Consumed, s.Oldest, s.Waiting, consumed, timeOf(oldest), waits)
		}
	}

	want("nothing read", 10, 0, false)
	hand(12, good(10, 500), good(11, 400))
	hand(14, good(12, 300)) // offset 13 is a control record
	want("two blocks queued", 10, 300, false)
	decode()
	want("one of them", 12, 300, true)
	if since := published.Claims[0].Waiting; !strings.Contains(since.String(), " m=") {
		t.Error("nothing but the wall clock says since when rows wait: one that is set, or a machine that slept, makes them overdue")
	}
	decode()
	want("both, and what no reader sees", 14, 300, true)

	// The batch is sealed; blocks enqueued afterwards wait.
	barrier := lane.NewBarrier("", map[connector.Partition]plan.Span{c.Partition: {Session: c.session, From: 10, Next: 14, Epoch: 1, Earlier: nil}}, 1)
	tab.sealed, c.from = barrier, 14
	l.SealBatch(&tab.Table, barrier)
	decode()
	want("sealed", 14, 300, true)
	hand(15, good(14, 200))
	want("sealed, and one queued", 14, 200, true)
	decode()
	want("sealed, and one open", 15, 200, true)
	tab.sealed = barrier
	r.outcomes.committed(tab, commit.Outcome{Plan: &plan.Plan{}})
	want("settled", 15, 200, true)

	// The topic has no dead letters, so the record without a value stops the claim: neither it nor the records after it
	// count as consumed.
	hand(18, good(15, 600), connector.Record{Offset: 16, Timestamp: 100}, good(17, 700))
	hand(19, good(18, 50))
	decode()
	decode()
	want("a bad record", 16, 100, true)
	l.SealBatch(&tab.Table, lane.NewBarrier("", nil, 1))
	decode()
	hand(20, good(19, 800))
	decode()
	want("a bad record, sealed", 16, 100, true)

	// A new session begins at the position in the table. The oldest uncommitted timestamp stays that of the session
	// before.
	c.position = 15
	r.holds.endSession(c)
	want("fenced", 15, 100, false)
	l.Discard(&tab.Table)
	decode()
	r.fetches.startReading(c, connector.Position{Partition: c.Partition, Next: 15, Epoch: 1})
	for n := range int64(3 * maxInFlight) {
		hand(16+n, good(15+n, 1000-n))
		if n >= maxInFlight-2 {
			decode()
		}
	}
	if len(c.inFlight) > maxInFlight {
		t.Errorf("%d blocks are remembered one by one", len(c.inFlight))
	}
	c.oldestUncommitted = 0
	for decode() {
	}
	want("many", 15+3*maxInFlight, 1000-3*maxInFlight+1, true)
	l.Discard(&tab.Table)
	decode()
	want("dropped", 15+3*maxInFlight, 0, false)
}
