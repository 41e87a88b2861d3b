package membership

import (
	"fmt"
	"strings"
	"time"

	"sluice/health"
)

// The times after which a member is reported.
const (
	// silent is the time without a heartbeat after which a log line reports a member. It is two intervals of heartbeats
	// if that is longer.
	silent = 20 * time.Second
	// missing is the time without a heartbeat after which a member is stale: an operator should look at it.
	missing = time.Minute
	// idling is the time without a record after which a running member is reported as idle, or as stuck if it has a
	// lag.
	idling = 5 * time.Minute
	// stopping is the time in the status SHUTTING_DOWN after which a member is reported.
	stopping = 2 * time.Minute
	// Forget is how long after its last heartbeat a member without a registration stays in the list of members.
	Forget = time.Hour
)

// named is the largest number of members that the reason of the health report names.
const named = 20

// Judge computes the health of the members of a scope. members is a response of the store, and now the time at which it
// was requested.
func Judge(members []Member, now time.Time) health.Members {
	h := health.Members{Status: health.MembersOK, Members: []health.Member{}, Findings: []health.MemberFinding{}}
	active := 0
	var stale []string
	for _, m := range members {
		h.Members = append(h.Members, shown(m, now))
		h.Findings = append(h.Findings, findings(m)...)
		if m.Active() {
			active++
		}
		if m.Age > missing {
			stale = append(stale, m.ID)
		}
	}
	switch {
	case len(stale) > 0:
		h.Status = health.MembersDegraded
		more := ""
		if len(stale) > named {
			more = fmt.Sprintf(" and %d more", len(stale)-named)
			stale = stale[:named]
		}
		h.Reason = "Stale consumers: " + strings.Join(stale, ", ") + more
	case active == 1:
		h.Reason = "1 active consumer"
	default:
		h.Reason = fmt.Sprintf("%d active consumers", active)
	}
	return h
}

// shown returns a member as the health report shows it.
func shown(m Member, now time.Time) health.Member {
	s := health.Member{ID: m.ID, Status: string(m.Status), Seconds: m.Age.Seconds(), Active: m.Active(), Address: m.Address}
	if m.Idle >= 0 {
		s.LastRecord = new(now.Add(-m.Idle).UTC())
	}
	if m.Lag >= 0 {
		s.Lag = &m.Lag
	}
	return s
}

// findings returns the problems of a member that an operator should see, the worst first.
func findings(m Member) (all []health.MemberFinding) {
	found := func(severity health.Level, format string, args ...any) {
		all = append(all, health.MemberFinding{ID: m.ID, Severity: severity, Finding: fmt.Sprintf(format, args...)})
	}
	if m.Age > missing {
		found(health.LevelCritical, "no heartbeat for %s", m.Age.Round(time.Second))
	}
	if m.Status == ShuttingDown && m.InStatus > stopping {
		found(health.LevelWarning, "shutting down for %s: it may have to be ended by force", m.InStatus.Round(time.Second))
	}
	idle := m.Idle
	if idle < 0 {
		idle = m.InStatus // the member has not taken a record yet
	}
	if m.Status == Running && m.Age <= missing && idle > idling {
		switch long := idle.Round(time.Second); {
		case m.Lag > 0:
			found(health.LevelWarning, "no record for %s with a lag of %d: it may be stuck or held", long, m.Lag)
		case m.Lag == 0:
			found(health.LevelWarning, "no record for %s without a lag: it is idle", long)
		default:
			found(health.LevelWarning, "no record for %s with an unknown lag: it may be idle or stuck", long)
		}
	}
	return all
}
