package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"sluice/health"
	"sluice/health/membership"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/sink/opslog"
)

// MemberReport has the registered members and their health.
type MemberReport struct {
	Members health.Members
	Active  bool  // at least one member is active
	Foreign error // the store also has data of another program
}

// Members returns the registered members, or only the one with an id if that is not "". Mistakes in the configuration
// are errors of [fail.KindUsage]. If it returns a report and an error, the report is complete, and closing the store
// failed.
func Members(ctx context.Context, a *Access, id string) (r *MemberReport, err error) {
	s, err := openRegistrations(ctx, a)
	if err != nil {
		return nil, err
	}
	members := s.members
	if id != "" {
		members = slices.DeleteFunc(members, func(m membership.Member) bool { return m.ID != id })
	}
	return &MemberReport{
		Members: membership.Judge(members, time.Now()), Active: slices.ContainsFunc(members, membership.Member.Active), Foreign: s.foreign,
	}, s.store.Close()
}

// registry is an open store of registrations, and what was in it when it was read.
type registry struct {
	store   membership.Store
	members []membership.Member
	foreign error
}

func openRegistrations(ctx context.Context, a *Access) (*registry, error) {
	store, err := open.Members(ctx, a.Config)
	switch {
	case err != nil:
		return nil, fail.Usage(err)
	case store == nil:
		return nil, fail.Usage(errors.New("members do not register: set members.store and members.url_file"))
	}
	s := &registry{store: store}
	s.members, err = store.Members(ctx)
	if errors.Is(err, membership.ErrForeign) && s.members != nil {
		s.foreign, err = err, nil
	}
	if err != nil {
		return nil, errors.Join(fail.Dependency(err), store.Close())
	}
	return s, nil
}

// CleanupPlan has the members whose entries a cleanup would delete. The caller closes it.
type CleanupPlan struct {
	Gone    []membership.Member // the members that have no registration any more
	Foreign error               // the store also has data of another program

	store membership.Store
}

// PlanCleanup finds the members without a registration.
func PlanCleanup(ctx context.Context, a *Access) (*CleanupPlan, error) {
	s, err := openRegistrations(ctx, a)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(s.members, func(m membership.Member) bool { return m.Registered })
	return &CleanupPlan{Gone: gone, Foreign: s.foreign, store: s.store}, nil
}

// Close ends the connection to the store of registrations.
func (p *CleanupPlan) Close() error { return p.store.Close() }

// CleanupResult has the changes of a cleanup.
type CleanupResult struct {
	Removed   int      `json:"removed"`   // the number of expired registrations that were deleted
	Forgotten []string `json:"forgotten"` // members without a registration whose entries were deleted
}

// maxForgotten bounds the number of ids in an entry of the operations log, which may have one mebibyte.
const maxForgotten = 1000

// Cleanup deletes the expired registrations and the entries of the members in a plan. Before that it writes the ids of
// those members to the operations log.
func Cleanup(ctx context.Context, a *Access, p *CleanupPlan, by By) (*CleanupResult, error) {
	result, forget := &CleanupResult{Forgotten: []string{}}, membership.Forget
	if len(p.Gone) > 0 {
		forget = 0
		log, err := a.operations(ctx)
		if err != nil {
			return nil, err
		}
		body := opslog.ForgetMembers{More: max(len(p.Gone)-maxForgotten, 0)}
		for _, m := range p.Gone[:len(p.Gone)-body.More] {
			body.Members = append(body.Members, m.ID)
		}
		if _, err := log.append(ctx, by, body, nil); err != nil {
			return nil, err
		}
	}
	var err error
	if result.Removed, err = p.store.Sweep(ctx, forget); err != nil {
		return nil, fail.Dependency(err)
	}
	left, err := p.store.Members(ctx)
	if err != nil && (left == nil || !errors.Is(err, membership.ErrForeign)) {
		return nil, fail.Dependency(err)
	}
	for _, m := range p.Gone {
		if _, still := slices.BinarySearchFunc(left, m.ID, func(m membership.Member, id string) int { return cmp.Compare(m.ID, id) }); !still {
			result.Forgotten = append(result.Forgotten, m.ID)
		}
	}
	return result, nil
}
