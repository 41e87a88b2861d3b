// Package membership keeps registrations: each member of a group renews its own registration every few seconds and
// watches those of the others. Registrations are for observers only: their loss changes the health report and never
// which records are read or written.
package membership

import (
	"context"
	"errors"
	"time"
)

// Status is the status that a member reports about itself.
type Status string

// The statuses of a member, with names that other systems know.
const (
	Running      Status = "RUNNING"
	ShuttingDown Status = "SHUTTING_DOWN"
)

// Scope is the pipeline and the consumer group of a member. Members of different scopes do not see one another.
type Scope struct {
	Pipeline string
	Group    string
}

// Beat is the heartbeat of a member. It has no time of the member's clock, because clocks of members are not compared:
// the store adds its own.
type Beat struct {
	ID     string // host-pid-random, unique in all scopes and for all time
	Status Status
	// Idle is how long ago the member last fetched a record, negative if it never did.
	Idle time.Duration
	// Lag is the sum of the lags of the member's partitions in offsets, -1 if unknown.
	Lag int64
	// TTL is how long the registration is valid without another heartbeat. Stores keep it in whole milliseconds.
	TTL time.Duration
	// Address is where other machines reach the member's /health, as http://host:port; "" if they do not. What a store
	// returns has passed [CheckAddress].
	Address string
}

// Member is a member as the store knows it at the time of its answer. Durations are by the store's clock.
type Member struct {
	// Beat is the member's last heartbeat. Its field Idle is not that of the heartbeat but as of now: it includes Age.
	Beat
	// Registered is true while its registration exists. It is false once the TTL is over or the registration was
	// removed: the Member then comes from the last-seen index.
	Registered bool
	// Age is the time since the last heartbeat.
	Age time.Duration
	// InStatus is how long the member has had its status. A member that registers again with the same status keeps this
	// time, unless the last-seen index has forgotten the member.
	InStatus time.Duration
}

// Active reports whether the registration exists and its last heartbeat is younger than its TTL.
func (m Member) Active() bool { return m.Registered && m.Age < m.TTL }

// Bounds of what a store returns: other programs may write into it, too.
const (
	// MaxID is the largest size of a member's id in bytes. The ids that Sluice makes are a host's name, which has at
	// most 64 on Linux, and two numbers.
	MaxID = 1 << 10
	// MaxRegistration is the largest size of a registration in bytes. A registration that Sluice wrote has some hundred
	// bytes.
	MaxRegistration = 4 << 10
	// MaxMembers is how many members a store lists: the most recently seen ones, because a crash loop may leave many
	// behind.
	MaxMembers = 5000
)

// Store keeps the registrations of one [Scope], and an index of when each member was last seen. The index outlives the
// registrations, so that a missing member can still be seen. All calls end with ctx. They may fail at any time and do
// not retry, because no record waits for them. A Store is safe for concurrent use.
//
// Names of scopes and members are UTF-8 without NUL and come back as they were.
type Store interface {
	// Beat registers the member, or renews its registration. fresh is true if there was no valid registration: at the
	// first heartbeat, or after the registration expired or was removed. Of concurrent heartbeats only one is fresh.
	Beat(ctx context.Context, b Beat) (fresh bool, err error)
	// Leave ends a registration and removes it from the last-seen index. A missing registration is not an error.
	Leave(ctx context.Context, id string) error
	// Members returns all members that are registered or in the last-seen index, MaxMembers at most, by ID in the order
	// of bytes. With an error that wraps [ErrForeign] it still returns the members that could be read. An id larger
	// than MaxID or a registration larger than MaxRegistration is not transferred, and causes this error. A member whose
	// address fails CheckAddress is returned without it, with this error.
	Members(ctx context.Context) ([]Member, error)
	// Sweep removes the registrations whose TTL is over and returns their number, including those that the store
	// removed by itself. Each expired registration is counted by one sweep of one member only. Then Sweep removes from
	// the last-seen index the members without a registration that were last seen at least forget ago.
	Sweep(ctx context.Context, forget time.Duration) (swept int, err error)
	// Close ends the connections.
	Close() error
}

// ErrUnavailable means that the store does not answer, or denies access.
var ErrUnavailable = errors.New("the store of registrations is unavailable")

// ErrForeign means that another program wrote into the keys or tables of the registrations.
var ErrForeign = errors.New("another program wrote among the registrations")
