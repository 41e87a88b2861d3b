// Package membership keeps registrations: each member of a group says every few seconds that it is there, and sees who else
// is. Registrations are watched and never obeyed: their loss changes what health says, and nothing of the way of a record.
package membership

import (
	"context"
	"errors"
	"time"
)

// Status is what a member says about itself.
type Status string

// The statuses, by the names that other systems know.
const (
	Running      Status = "RUNNING"
	ShuttingDown Status = "SHUTTING_DOWN"
)

// Scope is the members that belong together.
type Scope struct {
	Pipeline string
	Group    string
}

// Beat is what a member says of itself. It has no time of the member's clock, because clocks of members are not compared:
// the store adds its own.
type Beat struct {
	ID     string // host-pid-random, unlike any other's in whatever scope, now and before
	Status Status
	// Idle is how long ago the member last took a record, negative if it never did.
	Idle time.Duration
	// Lag is the sum over its partitions in offsets, -1 if unknown.
	Lag int64
	// TTL is how long the registration stands without a further beat. Stores know milliseconds.
	TTL time.Duration
}

// Member is a member as the store knows it at the time of its answer. Durations are by the store's clock.
type Member struct {
	// Beat is its last one; Idle goes on growing with Age.
	Beat
	// Registered is true while its registration stands, false once the TTL is over or somebody removed it: then this is
	// what the last-seen index remembers.
	Registered bool
	// Age is how long ago the last beat came.
	Age time.Duration
	// InStatus is for how long it has had its status. A member that registers again keeps it, as long as it was not
	// forgotten.
	InStatus time.Duration
}

// Active tells whether the registration stands and the last beat is younger than its TTL.
func (m Member) Active() bool { return m.Registered && m.Age < m.TTL }

// Bounds of what a store returns: other programs may write into it, too.
const (
	// MaxID is how many bytes the id of a member may have. Ours are a host's name, which has 64 on Linux, and two numbers.
	MaxID = 1 << 10
	// MaxRegistration is how many bytes a registration may have. Ours have some hundred, by the bounds of the names in it.
	MaxRegistration = 4 << 10
	// MaxMembers is how many members a store lists, those first that were seen last: a crash loop may leave many behind.
	MaxMembers = 5000
)

// Store keeps registrations of one [Scope], and behind them an index of who was last seen when: it outlives the
// registration, whose end would else erase the evidence that somebody is missing. All calls end with ctx and may fail at
// any time, without retries; nobody waits for one on the way of a record. Safe for several goroutines.
//
// Names of scopes and members are UTF-8 without NUL and come back as they were.
type Store interface {
	// Beat registers the member, or renews its registration. fresh is true if none stood: the first one, or one after the
	// registration was lost. Of beats side by side that find none, one is fresh.
	Beat(ctx context.Context, b Beat) (fresh bool, err error)
	// Leave ends a registration and takes it out of the last-seen index. One that is not there is no error.
	Leave(ctx context.Context, id string) error
	// Members returns all that are registered or in the last-seen index, by ID in the order of bytes, MaxMembers at most.
	// With an error that wraps [ErrForeign] it still returns those that could be read. What exceeds MaxID or
	// MaxRegistration stays in the server and is such an error.
	Members(ctx context.Context) ([]Member, error)
	// Sweep removes the registrations whose TTL is over and returns how many these were: each counts once, whoever sweeps,
	// and whether or not the store let it expire by itself. Then it forgets those last seen at least forget ago that have
	// no registration.
	Sweep(ctx context.Context, forget time.Duration) (swept int, err error)
	// Close ends the connections.
	Close() error
}

// ErrUnavailable says that the store does not answer, or does not let us.
var ErrUnavailable = errors.New("the store of registrations is unavailable")

// ErrForeign says that something that no member wrote lies where registrations should be.
var ErrForeign = errors.New("another program wrote among the registrations")
