package membershiptest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/health/membership"
)

// Memory keeps the registrations of all scopes in this process, for tests. It behaves as the contract of
// [membership.Store] demands of every store.
type Memory struct {
	now func() time.Time

	mu     sync.Mutex
	scopes map[membership.Scope]map[string]*seen
}

// seen is a member in the last-seen index.
type seen struct {
	beat       membership.Beat
	at, since  time.Time // of the last beat, of its status
	registered bool      // false after a removal
	counted    bool      // a sweep has counted its end
}

// stands reports whether the registration is still valid.
func (m *seen) stands(now time.Time) bool { return m.registered && now.Sub(m.at) < m.beat.TTL }

// NewMemory returns an empty Memory with a clock.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{now: now, scopes: map[membership.Scope]map[string]*seen{}}
}

// Store returns the store of a scope.
func (m *Memory) Store(s membership.Scope) membership.Store { return memoryStore{m, s} }

// Lose removes the registration of a member without its knowledge, as a store with data loss does.
func (m *Memory) Lose(s membership.Scope, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.scopes[s][id]; known != nil {
		known.registered = false
	}
}

type memoryStore struct {
	all   *Memory
	scope membership.Scope
}

// Beat implements [membership.Store].
func (s memoryStore) Beat(ctx context.Context, b membership.Beat) (fresh bool, err error) {
	return locked(ctx, s, func(now time.Time, members map[string]*seen) bool {
		known := members[b.ID]
		next := &seen{beat: b, at: now, since: now, registered: true}
		if known != nil && known.beat.Status == b.Status {
			next.since = known.since
		}
		members[b.ID] = next
		return known == nil || !known.stands(now)
	})
}

// Leave implements [membership.Store].
func (s memoryStore) Leave(ctx context.Context, id string) error {
	_, err := locked(ctx, s, func(_ time.Time, members map[string]*seen) bool {
		delete(members, id)
		return true
	})
	return err
}

// Members implements [membership.Store].
func (s memoryStore) Members(ctx context.Context) ([]membership.Member, error) {
	var foreign error
	all, err := locked(ctx, s, func(now time.Time, members map[string]*seen) []membership.Member {
		var all []membership.Member
		for _, known := range members {
			m := membership.Member{Beat: known.beat, Registered: known.stands(now), Age: now.Sub(known.at), InStatus: now.Sub(known.since)}
			if m.Idle >= 0 {
				m.Idle += m.Age
			}
			if m.Address != "" && membership.CheckAddress(m.Address) != nil {
				m.Address, foreign = "", membership.ErrForeign
			}
			all = append(all, m)
		}
		return slices.SortedFunc(slices.Values(all), func(a, b membership.Member) int { return cmp.Compare(a.ID, b.ID) })
	})
	return all, cmp.Or(err, foreign)
}

// Sweep implements [membership.Store].
func (s memoryStore) Sweep(ctx context.Context, forget time.Duration) (swept int, err error) {
	return locked(ctx, s, func(now time.Time, members map[string]*seen) int {
		for _, m := range members {
			if now.Sub(m.at) >= m.beat.TTL && !m.counted {
				m.registered, m.counted = false, true
				swept++
			}
		}
		maps.DeleteFunc(members, func(_ string, m *seen) bool { return !m.stands(now) && now.Sub(m.at) >= forget })
		return swept
	})
}

// Close implements [membership.Store].
func (s memoryStore) Close() error { return nil }

// locked runs op with the present time and the members of the scope, while it holds the lock. If ctx has ended, it
// returns the error of ctx instead.
func locked[T any](ctx context.Context, s memoryStore, op func(time.Time, map[string]*seen) T) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.all.scopes[s.scope] == nil {
		s.all.scopes[s.scope] = map[string]*seen{}
	}
	return op(s.all.now(), s.all.scopes[s.scope]), nil
}

// Wipe removes everything, as if the store had been replaced by an empty one.
func (m *Memory) Wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.scopes)
}

// IsActive reports whether a member is active by the store's clock. An unknown member is not.
func IsActive(ctx context.Context, s membership.Store, id string) (bool, error) {
	members, err := s.Members(ctx)
	for _, m := range members {
		if m.ID == id {
			return m.Active(), nil
		}
	}
	return false, err
}
