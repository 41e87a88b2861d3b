package membershiptest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/health/membership"
)

// fixture is a test with its server and a store of its scope.
type fixture struct {
	*testing.T
	Server
	scope membership.Scope
	store membership.Store
}

func (f *fixture) open(s membership.Scope) membership.Store {
	f.Helper()
	store := f.Open(f.T, s)
	f.Cleanup(func() {
		if err := store.Close(); err != nil {
			f.Errorf("close: %v", err)
		}
	})
	return store
}

// long is a TTL that no test waits for.
const long = time.Hour

// beat returns a heartbeat of a running member.
func beat(id string) membership.Beat {
	return membership.Beat{ID: id, Status: membership.Running, Idle: -1, Lag: -1, TTL: long}
}

// beats sends a heartbeat. It ends the test unless the heartbeat succeeds and its result fresh is the wanted one.
func (f *fixture) beats(s membership.Store, b membership.Beat, fresh bool) {
	f.Helper()
	if got, err := s.Beat(f.Context(), b); err != nil || got != fresh {
		f.Fatalf("beat of %q: fresh %v, %v; want %v", b.ID, got, err, fresh)
	}
}

func (f *fixture) members(s membership.Store) []membership.Member {
	f.Helper()
	members, err := s.Members(f.Context())
	if err != nil {
		f.Fatalf("members: %v", err)
	}
	return members
}

// member returns the member with this id.
func (f *fixture) member(id string) membership.Member {
	f.Helper()
	all := f.members(f.store)
	i := slices.IndexFunc(all, func(m membership.Member) bool { return m.ID == id })
	if i < 0 {
		f.Fatalf("%q is not among %d members", id, len(all))
	}
	return all[i]
}

// wantIDs checks the ids of the registered members, and of those that only the last-seen index has.
func (f *fixture) wantIDs(s membership.Store, registered, remembered []string) {
	f.Helper()
	var with, without []string
	for _, m := range f.members(s) {
		if m.Registered {
			with = append(with, m.ID)
		} else {
			without = append(without, m.ID)
		}
	}
	if diff := cmp.Diff(registered, with, cmpopts.EquateEmpty()); diff != "" {
		f.Errorf("registered (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(remembered, without, cmpopts.EquateEmpty()); diff != "" {
		f.Errorf("remembered (-want +got):\n%s", diff)
	}
}

// wantSwept sweeps and checks how many registrations the sweep removed.
func (f *fixture) wantSwept(want int, forget time.Duration) {
	f.Helper()
	if got, err := f.store.Sweep(f.Context(), forget); err != nil || got != want {
		f.Errorf("swept %d, %v; want %d", got, err, want)
	}
}

// wantLeft makes a member leave, and fails the test if that returns an error.
func (f *fixture) wantLeft(s membership.Store, id string) {
	f.Helper()
	if err := s.Leave(f.Context(), id); err != nil {
		f.Errorf("leave of %q: %v", id, err)
	}
}

// rounding is the largest rounding error of a duration in a store.
const rounding = 2 * time.Millisecond

// wantSince checks a duration of the store: at least passed, the time that [Server.Pass] added, and at most that plus
// the real time since then.
func (f *fixture) wantSince(what string, got, passed time.Duration, then time.Time) {
	f.Helper()
	if most := passed + time.Since(then) + rounding; got < passed-rounding || got > most {
		f.Errorf("%s is %s, want between %s and %s", what, got, passed, most)
	}
}
