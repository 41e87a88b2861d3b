package health

import "time"

// Members is the state of the members of the group in the store of registrations. It is reported, never acted upon: the
// table's log alone decides who may write.
type Members struct {
	Status MembersStatus `json:"status"`
	// Reason explains Status: how many members are active, which are stale, or why the status is unknown.
	Reason   string          `json:"reason"`
	Members  []Member        `json:"members"`
	Findings []MemberFinding `json:"findings"`
}

// MembersStatus is the state of all members together, in one word.
type MembersStatus string

// The states of all members together. MembersOK means that no member is stale.
const (
	MembersOK       MembersStatus = "ok"
	MembersDegraded MembersStatus = "degraded" // at least one member is stale
	MembersUnknown  MembersStatus = "unknown"  // the store does not answer, or its last response is too old to be used
)

// Member is a member as its last heartbeat shows it.
type Member struct {
	ID     string `json:"id"`
	Status string `json:"status"` // RUNNING or SHUTTING_DOWN
	// Seconds is the age of the member's last heartbeat by the store's clock.
	Seconds float64 `json:"heartbeat_age_seconds"`
	Active  bool    `json:"active"` // the member is registered, and its last heartbeat is younger than its TTL
	// LastRecord is when the member last took a record, nil if it never did.
	LastRecord *time.Time `json:"last_message_at"`
	// Lag is the sum of the lags of the member's partitions, nil if unknown.
	Lag *int64 `json:"consumer_lag"`
	// Address is where other machines reach its /health, "" if it registered none.
	Address string `json:"address"`
}

// MemberFinding is a problem of a member that an operator should see.
type MemberFinding struct {
	ID       string `json:"id"`
	Severity Level  `json:"severity"` // warning or critical
	Finding  string `json:"finding"`
}
