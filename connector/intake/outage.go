package intake

import (
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// outageKey identifies an outage by the table that it stops and by the hold reason of the dependency that failed. A
// claim that is held for another reason does not belong to it.
type outageKey struct {
	table  string
	reason hold.Reason
}

// outage has the start of an outage, and the claims that it has stopped so far.
type outage struct {
	since  time.Time
	claims map[connector.Partition]bool
}

// outages counts and logs the claims that a failed dependency stops. now has the holds of these claims at this moment.
// Each claim counts once per outage. The log has one line per table when an outage begins and one when it ends, because
// an outage may stop thousands of claims.
func (st *status) outages(now map[outageKey][]*hold.Hold) {
	for why, holds := range now {
		o := st.outage[why]
		if o == nil {
			first := holds[0]
			o = &outage{since: first.Since, claims: map[connector.Partition]bool{}}
			st.outage[why] = o
			why.reason.LogFunc(st.Logger)("HOLD", "table", why.table, "reason", string(why.reason), "detail", first.Detail, "claims", len(holds))
		}
		for _, h := range holds {
			if !o.claims[h.Partition] {
				o.claims[h.Partition] = true
				st.Metrics.holds.WithLabelValues(string(why.reason)).Inc()
			}
		}
	}
	for why, o := range st.outage {
		if len(now[why]) == 0 {
			delete(st.outage, why)
			st.Logger.Info("hold ended", "table", why.table, "reason", string(why.reason), "claims", len(o.claims), "after", time.Since(o.since).Round(time.Second))
		}
	}
}
