package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/health/membership"
	"sluice/internal/open"
	"sluice/reliability/panics"
)

// The bounds of the requests to registered members. Any program that may write to the store of registrations chooses
// the addresses, so all responses together take bounded memory and time.
const (
	maxRequested    = 200             // members requested for one report
	requestedAtOnce = 8               // of them at the same time
	registeredTime  = 2 * time.Second // each
	registeredBytes = 2 << 20         // of each response
	registeredHolds = int64(8) << 20  // bytes of holds of all of them
	quotedError     = 300             // bytes of an error about a member that are shown
)

// MemberState says whether the holds that only a registered member knows are shown and, if not, why.
type MemberState string

// The states of a member in a [HoldReport].
const (
	MemberAnswered  MemberState = "answered"   // its holds are shown
	MemberFailed    MemberState = "failed"     // it did not respond, or not as a member
	MemberNoAddress MemberState = "no_address" // it registered no address
	MemberNotAsked  MemberState = "not_asked"  // the time was over before it was asked
)

// MemberAnswer is the outcome of the request to a registered member.
type MemberAnswer struct {
	ID      string      `json:"id"`
	Address string      `json:"address"`
	State   MemberState `json:"state"`
	Error   string      `json:"error,omitempty"`
}

// registeredResult is what the registered members report.
type registeredResult struct {
	answers []MemberAnswer
	sources []*sourceResult // of the members that answered, each with its id
	missed  []error
}

// requestRegistered requests the holds of all active members in the store of registrations. It gives up a member that
// does not respond within registeredTime, and ends within the time limit. A member reports only the holds that it knows
// itself: it asks no other member.
func requestRegistered(ctx context.Context, a *Access, within time.Duration, transport http.RoundTripper) *registeredResult {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r := &registeredResult{}
	members, err := registered(ctx, a, within/2)
	if err != nil {
		l := &sourceResult{}
		l.addFailure(ctx, "the store of registrations", within/2, "the holds that only other members know are not shown", err)
		r.missed = l.missed
	}
	r.requestEach(ctx, members, a.Config.Pipeline, transport)
	return r
}

// requestEach requests the holds of the active members among those given.
func (r *registeredResult) requestEach(ctx context.Context, members []membership.Member, pipeline string, transport http.RoundTripper) {
	members = slices.DeleteFunc(members, func(m membership.Member) bool { return !m.Active() })
	if more := len(members) - maxRequested; more > 0 {
		r.missed = append(r.missed, fmt.Errorf("%d of %d members were not asked for their holds: ask them with --member", more, len(members)))
		members = members[:maxRequested]
	}
	r.answers, r.sources = make([]MemberAnswer, len(members)), make([]*sourceResult, len(members))
	failures := make([]error, len(members))
	budget := new(atomic.Int64)
	budget.Store(registeredHolds)
	runLimited(len(members), requestedAtOnce, func(i int) {
		r.answers[i], r.sources[i], failures[i] = requestRegisteredMember(ctx, members[i], pipeline, transport, budget)
	})
	r.missed = append(r.missed, slices.DeleteFunc(failures, func(err error) bool { return err == nil })...)
	r.sources = slices.DeleteFunc(r.sources, func(l *sourceResult) bool { return l == nil })
}

// registered returns the members in the store of registrations, none without a store.
func registered(ctx context.Context, a *Access, within time.Duration) (members []membership.Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err = panics.Catch(func() error { // a client library that panics over a reply must not end the process
		store, err := open.Members(ctx, a.Config)
		if err != nil || store == nil {
			return err
		}
		members, err = store.Members(ctx)
		if errors.Is(err, membership.ErrForeign) && members != nil { // connector members shows it
			err = nil
		}
		return errors.Join(err, store.Close())
	})
	return members, err
}

// requestRegisteredMember requests the holds of one member. Without a response the error says what is missing.
func requestRegisteredMember(ctx context.Context, m membership.Member, pipeline string, transport http.RoundTripper, budget *atomic.Int64) (MemberAnswer, *sourceResult, error) {
	answer := MemberAnswer{ID: m.ID, Address: m.Address}
	switch {
	case m.Address == "":
		answer.State = MemberNoAddress
		return answer, nil, nil
	case ctx.Err() != nil:
		answer.State = MemberNotAsked
		return answer, nil, fmt.Errorf("the member %s was not asked for its holds: the time was over", m.ID)
	}
	one, cancel := context.WithTimeout(ctx, registeredTime)
	defer cancel()
	report, err := readReport(one, transport, m.Address, registeredBytes, budget)
	switch {
	case err != nil && one.Err() != nil:
		err = errors.New("it did not respond in time")
	case err != nil:
	case report.Pipeline != pipeline:
		err = fmt.Errorf("the member there is of pipeline %q", report.Pipeline)
	case report.Member != "" && report.Member != m.ID:
		err = fmt.Errorf("the member there is %q, which took over the address", report.Member)
	}
	if err != nil {
		answer.State, answer.Error = MemberFailed, err.Error()
		answer.Error = answer.Error[:min(len(answer.Error), quotedError)]
		return answer, nil, fmt.Errorf("the holds that only the member %s at %s knows are not shown: %s", m.ID, m.Address, answer.Error)
	}
	answer.State = MemberAnswered
	l := &sourceResult{member: true, id: m.ID}
	l.addReport(m.ID, report)
	return answer, l, nil
}

// registeredTransport returns the transport of requests to registered members. It uses no proxy, and connects to no
// loopback or link-local address, also if a name resolves to one.
func registeredTransport() http.RoundTripper {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !membership.Dialable(to.Addr()) {
			return errors.New("the address is not one of another machine")
		}
		return nil
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true,
	}
}
