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

// Beat is what a member says of itself. The store adds the time: clocks of members are not compared.
type Beat struct {
	ID     string // host-pid-random, unlike any other's, now and before
	Status Status
	// LastRecord is when it last took a record by its own clock, the zero time if never.
	LastRecord time.Time
	// Lag is the sum over its partitions in offsets, -1 if unknown.
	Lag int64
	// TTL is how long the registration stands without a further beat.
	TTL time.Duration
}

// Member is a member as the store knows it.
type Member struct {
	Beat
	// Registered is true while its registration stands, false once that has expired or was swept: then this is what the
	// last-seen index remembers.
	Registered bool
	// Age is how long ago the last beat came, by the store's clock.
	Age time.Duration
	// InStatus is for how long it has had its status, by the store's clock.
	InStatus time.Duration
}

// Active tells whether the last beat is younger than the member's TTL.
func (m Member) Active() bool { return m.Registered && m.Age < m.TTL }

// Store keeps registrations of one [Scope], and behind them an index of who was last seen when: it outlives the
// registration, whose end would else erase the evidence that somebody is missing. All calls end with ctx and may fail at
// any time; nobody waits for one on the way of a record. Safe for several goroutines.
type Store interface {
	// Beat registers the member, or renews its registration. fresh is true if there was none: the first one, or one after
	// the registration was lost.
	Beat(ctx context.Context, b Beat) (fresh bool, err error)
	// Leave ends a registration and takes it out of the last-seen index. One that is not there is no error.
	Leave(ctx context.Context, id string) error
	// Members returns all that are registered or in the last-seen index, by ID.
	Members(ctx context.Context) ([]Member, error)
	// Sweep ends the registrations whose TTL is over and returns how many these were. It forgets those last seen longer
	// ago than forget.
	Sweep(ctx context.Context, forget time.Duration) (swept int, err error)
	// Close ends the connections.
	Close() error
}

// ErrUnavailable says that the store does not answer, or does not let us.
var ErrUnavailable = errors.New("the store of registrations is unavailable")
