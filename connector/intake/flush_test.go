package intake

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/connectortest"
	"sluice/connector/plan"
)

// flushes are the decisions of operators who request flushes.
type flushes struct {
	NoDecisions

	newest *int64
}

func (f flushes) Flushes(connector.Partition) int64 { return *f.newest }

// TestFlush: a requested flush seals the batch of the records that wait. While another batch is on its way, the request
// waits until that batch has its outcome. If no record waits, the request is answered without a batch.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published *connector.Status
		newest := int64(0)
		r := readerOf(t, Config{Count: 1, Decisions: flushes{newest: &newest}, Publish: func(s *connector.Status) { published = s }})
		tab := r.assignment.tableFor("orders")
		tab.limits = connector.Limits{Every: time.Hour, Rows: 1 << 20, Bytes: 1 << 30}
		tab.Decoder, tab.schema = connectortest.Tallies{}, &connectortest.Schema{}
		l := r.lanes[0]
		c := &claim{Partition: connectortest.Partition(0), table: tab, lane: l, claimState: claimState{state: resuming}, position: 10}
		r.claims[c.Partition], tab.claims[c.Partition], r.order = c, c, []*claim{c}
		r.holds.endSession(c)
		r.fetches.startReading(c, connector.Position{Partition: c.Partition, Next: 10, Epoch: 1})
		hand := func(from int64) {
			t.Helper()
			record := connector.Record{Offset: from, Timestamp: 1, Value: []byte("x")}
			r.fetches.accept(connector.Fetched{Partition: c.Partition, Session: c.session, From: from, Next: from + 1, Epoch: 1, Records: &connectortest.Records{Left: []connector.Record{record}}})
			r.dispatcher.enqueue()
		}
		turn := func() connector.Flush {
			t.Helper()
			time.Sleep(showEvery)
			r.holds.applyDecisions()
			r.batcher.sealIfDue(tab)
			r.status.show()
			if len(published.Flushes) == 0 {
				return connector.Flush{}
			}
			return published.Flushes[0]
		}
		hand(10)
		if got := turn(); got != (connector.Flush{}) || tab.sealed != nil {
			t.Errorf("without a request: %+v", got)
		}
		newest = 1
		if got := turn(); got.State != connector.FlushSealed || got.Request != 1 || got.Table != "t" || got.Offsets != 1 || got.Partitions != 1 || got.Batch == "" || !got.At.Equal(time.Now()) {
			t.Errorf("with a record: %+v", got)
		}
		// The next request waits until that batch has its outcome.
		hand(11)
		newest = 2
		for range 3 {
			if got := turn(); got.State != connector.FlushWaits || got.Request != 2 || got.Batch != "" {
				t.Errorf("with a batch on its way: %+v", got)
			}
		}
		r.outcomes.committed(tab, commit.Outcome{Plan: &plan.Plan{}})
		if got := turn(); got.State != connector.FlushSealed || got.Request != 2 || got.Offsets != 1 {
			t.Errorf("after its outcome: %+v", got)
		}
		r.outcomes.committed(tab, commit.Outcome{Plan: &plan.Plan{}})
		// Nothing waits.
		newest = 3
		if got := turn(); got.State != connector.FlushNothing || got.Request != 3 || got.Batch != "" || got.Offsets != 0 || tab.sealed != nil {
			t.Errorf("without a record: %+v", got)
		}
		// One request seals one batch.
		hand(12)
		if got := turn(); got.Request != 3 || tab.sealed != nil {
			t.Errorf("after an answered request: %+v", got)
		}
		for l.Step(t.Context()) {
			continue
		}
	})
}
