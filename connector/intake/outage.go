package intake

import (
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// standing is why claims of a table stand still without a finding of their own: a dependency does not answer.
type standing struct {
	table  string
	reason hold.Reason
}

// outage is how long, and which claims stand.
type outage struct {
	since  time.Time
	claims map[connector.Partition]bool // all that stood since it began
}

// outages notes which claims stand now for a dependency. Each claim counts once for each outage; the log has one line for
// a table when it begins, and one when it ends: thousands of claims stand for one reason.
func (st *status) outages(now map[standing][]*hold.Hold) {
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
