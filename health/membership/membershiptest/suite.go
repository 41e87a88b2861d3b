// Package membershiptest has the conformance suite for stores of package health/membership, and a store in memory.
package membershiptest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/health/membership"
)

// Server is a database server, or its imitation in memory, in which one test opens stores. No other test uses it, or at
// least not the same scopes.
type Server struct {
	// Open opens one more store.
	Open func(t *testing.T, s membership.Scope) membership.Store
	// Pass moves the server's clock forward by d. For a real server it waits that long.
	Pass func(d time.Duration)
	// Unit is the unit of time of the tests: short, but longer than a few requests take.
	Unit time.Duration
	// Lose removes the registration of a member, as an eviction or an operator does. The entry in the last-seen index
	// stays.
	Lose func(t *testing.T, s membership.Scope, id string)
}

// Run tests stores against the contract of [membership.Store]. start returns a server without members in the scopes
// whose pipeline begins with prefix, which is different for each test.
func Run(t *testing.T, start func(t *testing.T, prefix string) Server) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*fixture)
	}{
		{"Empty", empty},
		{"RegisterAndRenew", registerAndRenew},
		{"Expires", expires},
		{"LostBehindItsBack", lost},
		{"SweepCountsAndForgets", sweep},
		{"SweepsSideBySideCountOnce", sweepsSideBySide},
		{"LeaveForgets", leave},
		{"InStatus", inStatus},
		{"ShuttingDownHasItsOwnTTL", shuttingDown},
		{"Numbers", numbers},
		{"ScopesAreApart", scopesAreApart},
		{"HostileNames", hostileNames},
		{"Addresses", addresses},
		{"HostileAddresses", hostileAddresses},
		{"Many", many},
		{"BeatsSideBySide", beatsSideBySide},
		{"EndsWithContext", endsWithContext},
		{"LikeMemory", likeMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			prefix := fmt.Sprintf("%s-%d", strings.ToLower(c.name), runs.Add(1))
			f := &fixture{T: t, Server: start(t, prefix), scope: membership.Scope{Pipeline: prefix, Group: "group"}}
			t.Parallel() // real servers wait for most of the time
			f.store = f.open(f.scope)
			c.test(f)
		})
	}
}

// runs counts the runs of tests, so that a test that runs several times on one server gets another prefix each time.
var runs atomic.Int64

func empty(f *fixture) {
	f.wantIDs(f.store, nil, nil)
	f.wantLeft(f.store, "nobody")
	f.wantSwept(0, long)
	if active, err := IsActive(f.Context(), f.store, "nobody"); active || err != nil {
		f.Errorf("no member is active: %v, %v", active, err)
	}
}

func registerAndRenew(f *fixture) {
	then := time.Now()
	first := beat("a-1-00ff")
	f.beats(f.store, first, true)
	f.Pass(f.Unit)
	m := f.member(first.ID)
	f.wantSince("age", m.Age, f.Unit, then)
	f.wantSince("in status", m.InStatus, f.Unit, then)
	if diff := cmp.Diff(first, m.Beat); diff != "" || !m.Registered || !m.Active() {
		f.Errorf("registered %v, active %v, beat (-want +got):\n%s", m.Registered, m.Active(), diff)
	}

	renewed := time.Now()
	second := first
	second.Idle, second.Lag, second.TTL = 90*time.Second, 42, 2*long
	f.beats(f.store, second, false)
	f.beats(f.open(f.scope), beat("b-1-00ff"), true)
	m = f.member(first.ID)
	f.wantSince("age", m.Age, 0, renewed)
	f.wantSince("in status", m.InStatus, f.Unit, then)
	f.wantSince("idle", m.Idle-second.Idle, 0, renewed)
	if diff := cmp.Diff(second, m.Beat, cmpopts.IgnoreFields(membership.Beat{}, "Idle")); diff != "" {
		f.Errorf("renewed (-want +got):\n%s", diff)
	}
	f.wantIDs(f.store, []string{"a-1-00ff", "b-1-00ff"}, nil)
	if active, err := IsActive(f.Context(), f.store, "b-1-00ff"); !active || err != nil {
		f.Errorf("b is active: %v, %v", active, err)
	}
}

func expires(f *fixture) {
	b := beat("a")
	b.TTL, b.Lag = f.Unit, 7
	then := time.Now()
	f.beats(f.store, b, true)
	f.beats(f.store, beat("b"), true)
	f.Pass(f.Unit + f.Unit/2)
	f.wantIDs(f.store, []string{"b"}, []string{"a"})
	m := f.member("a")
	f.wantSince("age", m.Age, f.Unit+f.Unit/2, then)
	if diff := cmp.Diff(b, m.Beat); diff != "" || m.Active() {
		f.Errorf("active %v, what is remembered (-want +got):\n%s", m.Active(), diff)
	}
	if active, err := IsActive(f.Context(), f.store, "a"); active || err != nil {
		f.Errorf("a is active: %v, %v", active, err)
	}
	again := time.Now()
	f.beats(f.store, beat("a"), true)
	f.beats(f.store, beat("a"), false)
	f.wantIDs(f.store, []string{"a", "b"}, nil)
	m = f.member("a")
	f.wantSince("age", m.Age, 0, again)
	f.wantSince("in status", m.InStatus, f.Unit+f.Unit/2, then)
	f.wantSwept(0, long)
}

func lost(f *fixture) {
	f.beats(f.store, beat("a"), true)
	f.beats(f.store, beat("b"), true)
	f.Lose(f.T, f.scope, "a")
	f.wantIDs(f.store, []string{"b"}, []string{"a"})
	if f.member("a").Active() {
		f.Error("a is active without a registration")
	}
	f.beats(f.store, beat("b"), false)
	f.beats(f.store, beat("a"), true)
	f.wantIDs(f.store, []string{"a", "b"}, nil)
}

func sweep(f *fixture) {
	for _, id := range []string{"a", "b", "c"} {
		b := beat(id)
		if id != "c" {
			b.TTL = f.Unit
		}
		f.beats(f.store, b, true)
	}
	f.wantSwept(0, long)
	f.Pass(f.Unit + f.Unit/2)
	f.wantSwept(2, long)
	f.wantSwept(0, long)
	f.wantIDs(f.store, []string{"c"}, []string{"a", "b"})

	// b registers again and expires again: a sweep counts it once more.
	b := beat("b")
	b.TTL = f.Unit
	f.beats(f.store, b, true)
	f.wantSwept(0, f.Unit+f.Unit/2) // forgets a alone: c is as old, and registered
	f.wantIDs(f.store, []string{"b", "c"}, nil)
	f.Pass(f.Unit + f.Unit/2)
	f.wantSwept(1, f.Unit) // one sweep removes the registration and forgets the member
	f.wantIDs(f.store, []string{"c"}, nil)
	f.beats(f.store, beat("a"), true)
	f.beats(f.store, beat("c"), false)
	if in := f.member("a").InStatus; in >= f.Unit {
		f.Errorf("a was forgotten, and is in its status for %s", in)
	}
}

func sweepsSideBySide(f *fixture) {
	const n = 60
	for i := range n {
		b := beat(fmt.Sprint("m", i))
		b.TTL = f.Unit
		f.beats(f.store, b, true)
	}
	f.Pass(2 * f.Unit)
	var total atomic.Int64
	var sweepers sync.WaitGroup
	for range 6 {
		s := f.open(f.scope)
		sweepers.Go(func() {
			swept, err := s.Sweep(f.Context(), long)
			if err != nil {
				f.Error(err)
			}
			total.Add(int64(swept))
		})
	}
	sweepers.Wait()
	if total.Load() != n {
		f.Errorf("%d were swept, want %d", total.Load(), n)
	}
}

func leave(f *fixture) {
	b := beat("gone")
	b.TTL = f.Unit
	f.beats(f.store, b, true)
	f.beats(f.store, beat("a"), true)
	f.beats(f.store, beat("b"), true)
	f.Pass(f.Unit + f.Unit/2)
	for _, id := range []string{"a", "a", "gone", "nobody"} {
		f.wantLeft(f.open(f.scope), id)
	}
	f.wantIDs(f.store, []string{"b"}, nil)
	f.wantSwept(0, long)
	then := time.Now()
	f.beats(f.store, beat("a"), true)
	f.wantSince("in status after it came back", f.member("a").InStatus, 0, then)
}

func inStatus(f *fixture) {
	b := beat("a")
	then := time.Now()
	f.beats(f.store, b, true)
	f.Pass(f.Unit)
	f.beats(f.store, b, false)
	f.wantSince("running", f.member("a").InStatus, f.Unit, then)
	changed := time.Now()
	b.Status = membership.ShuttingDown
	f.beats(f.store, b, false)
	f.wantSince("shutting down", f.member("a").InStatus, 0, changed)
	f.Pass(f.Unit)
	f.beats(f.store, b, false)
	m := f.member("a")
	f.wantSince("shutting down", m.InStatus, f.Unit, changed)
	if m.Status != membership.ShuttingDown {
		f.Errorf("status %s", m.Status)
	}
	back := time.Now()
	b.Status = membership.Running
	f.beats(f.store, b, false)
	f.wantSince("running again", f.member("a").InStatus, 0, back)
}

func shuttingDown(f *fixture) {
	b := beat("a")
	b.TTL = f.Unit
	f.beats(f.store, b, true)
	b.Status, b.TTL = membership.ShuttingDown, long
	f.beats(f.store, b, false)
	f.Pass(f.Unit + f.Unit/2)
	f.wantIDs(f.store, []string{"a"}, nil)
	f.wantSwept(0, long)
	if m := f.member("a"); m.TTL != long || !m.Active() {
		f.Errorf("ttl %s, active %v", m.TTL, m.Active())
	}
	b.TTL = f.Unit
	f.beats(f.store, b, false)
	f.Pass(f.Unit + f.Unit/2)
	f.wantIDs(f.store, nil, []string{"a"})
	f.wantSwept(1, long)
}

func numbers(f *fixture) {
	for i, want := range []membership.Beat{
		{Idle: -1, Lag: -1},
		{Idle: 0, Lag: 0},
		{Idle: time.Millisecond, Lag: 1},
		{Idle: 400 * 24 * time.Hour, Lag: math.MaxInt64},
		{Idle: time.Hour, Lag: 1<<53 + 1},
		{Idle: -time.Hour, Lag: 10_500},
	} {
		want.ID, want.Status, want.TTL = fmt.Sprint("m", i), membership.Running, 12345*time.Millisecond
		then := time.Now()
		f.beats(f.store, want, true)
		m := f.member(want.ID)
		if want.Idle < 0 && m.Idle >= 0 {
			f.Errorf("idle is %s of one that never took a record", m.Idle)
		} else if want.Idle >= 0 {
			f.wantSince("idle", m.Idle-want.Idle, 0, then)
		}
		if diff := cmp.Diff(want, m.Beat, cmpopts.IgnoreFields(membership.Beat{}, "Idle")); diff != "" {
			f.Errorf("(-want +got):\n%s", diff)
		}
	}
	then := time.Now()
	f.Pass(f.Unit)
	if m := f.member("m0"); m.Idle >= 0 {
		f.Errorf("idle grew to %s of one that never took a record", m.Idle)
	}
	if idle := f.member("m4").Idle - time.Hour; idle < f.Unit-rounding || idle > f.Unit+time.Since(then)+time.Minute {
		f.Errorf("idle grew by %s", idle)
	}
}

func scopesAreApart(f *fixture) {
	p := f.scope.Pipeline
	scopes := []membership.Scope{
		{Pipeline: p + ":a", Group: "b"},
		{Pipeline: p, Group: "a:b"},
		{Pipeline: p + ":a:b", Group: ""},
		{Pipeline: p + "%3Aa", Group: "b"},
		{Pipeline: p + ":a", Group: "B"},
		{Pipeline: p + ":a", Group: "b "},
		{Pipeline: p, Group: "b:a"},
	}
	stores := make([]membership.Store, len(scopes))
	for i, s := range scopes {
		stores[i] = f.open(s)
		b := beat(fmt.Sprint("stays-", i))
		f.beats(stores[i], b, true)
		b = beat(fmt.Sprint("expires-", i))
		b.TTL = f.Unit
		f.beats(stores[i], b, true)
	}
	f.Pass(f.Unit + f.Unit/2)
	for i, s := range stores {
		f.wantLeft(s, fmt.Sprint("stays-", (i+1)%len(stores))) // another scope's
		f.wantIDs(s, []string{fmt.Sprint("stays-", i)}, []string{fmt.Sprint("expires-", i)})
	}
	f.wantSwept(0, 0)
	for i, s := range stores {
		if swept, err := s.Sweep(f.Context(), 0); err != nil || swept != 1 {
			f.Errorf("scope %d: swept %d, %v; want 1", i, swept, err)
		}
		f.wantIDs(s, []string{fmt.Sprint("stays-", i)}, nil)
	}
	f.wantIDs(f.store, nil, nil)
}

// hostile are names that mean something to a protocol, a query language or a terminal.
var hostile = []string{
	"\r\n*1\r\n$8\r\nFLUSHALL\r\n", `'; DROP TABLE consumer_registrations; --`, `"quoted" \"twice\\" \n`, "a:b:c", ":", "*", "[a-z]?", "{tag}", "%00%s%d",
	" leading and trailing ", "\t\x01\x1b[31m", "größe-日本-🦀", "e\u0301", "é", "\u2028\u202e", "null", `{"timestamp":0}`, "$1", "A", "a", "..", "/", "`", "\\x00", strings.Repeat("long", 250),
}

func hostileNames(f *fixture) {
	want := slices.Sorted(slices.Values(hostile))
	for _, id := range hostile {
		f.beats(f.store, beat(id), true)
	}
	f.wantIDs(f.store, want, nil)
	f.beats(f.store, beat(hostile[0]), false)
	for _, id := range hostile[1:] {
		f.wantLeft(f.store, id)
	}
	f.wantIDs(f.store, hostile[:1], nil)

	for i, name := range hostile {
		for j, s := range []membership.Scope{{Pipeline: f.scope.Pipeline + name, Group: "g"}, {Pipeline: f.scope.Pipeline, Group: name}} {
			id := fmt.Sprintf("%s-%d-%d", f.scope.Pipeline, i, j)
			store := f.open(s)
			f.beats(store, beat(id), true)
			f.beats(store, beat(id), false)
			f.wantIDs(store, []string{id}, nil)
			if swept, err := store.Sweep(f.Context(), 0); err != nil || swept != 0 {
				f.Errorf("group %q: swept %d, %v", name, swept, err)
			}
		}
	}
}

// addresses: each heartbeat replaces the address of its member, also by none. After the registration has expired, the
// member still has the last address.
func addresses(f *fixture) {
	b := beat("a")
	for i, address := range []string{"", "http://10.1.2.3:8080", "https://[fd00::2]:8443", "", "http://pod-7.sluice.svc:8080"} {
		b.Address = address
		f.beats(f.store, b, i == 0)
		if got := f.member("a").Address; got != address {
			f.Errorf("address %q, want %q", got, address)
		}
	}
	b.TTL = f.Unit
	f.beats(f.store, b, false)
	f.Pass(f.Unit + f.Unit/2)
	if m := f.member("a"); m.Registered || m.Address != b.Address {
		f.Errorf("registered %v, address %q", m.Registered, m.Address)
	}
}

// hostileAddresses: if an address must not be requested, Members returns the member without it, and the error
// ErrForeign.
func hostileAddresses(f *fixture) {
	f.beats(f.store, membership.Beat{ID: "good", Status: membership.Running, Idle: -1, Lag: -1, TTL: long, Address: "http://10.1.2.3:8080"}, true)
	for i, address := range []string{
		"http://127.0.0.1:6379", "http://[::1]:8080", "http://localhost:8080", "http://169.254.169.254:80", "http://u:p@10.1.2.3:8080", "http://10.1.2.3:8080/x",
		"file:///etc/passwd", "gopher://h:70", "h:80", "http://h", "http://h:99999", `http://h";DROP TABLE x;--:1`, "http://h:80\r\nX: y", "http://" + strings.Repeat("h", 400) + ":80",
	} {
		b := beat(fmt.Sprintf("m%02d", i))
		b.Address = address
		f.beats(f.store, b, true)
		members, err := f.store.Members(f.Context())
		if !errors.Is(err, membership.ErrForeign) {
			f.Errorf("%q: %v", address, err)
		}
		if len(members) != 2 || members[0].ID != "good" || members[0].Address == "" || members[1].ID != b.ID || members[1].Address != "" || !members[1].Active() {
			f.Errorf("%q: %+v", address, members)
		}
		f.wantLeft(f.store, b.ID)
	}
	f.wantIDs(f.store, []string{"good"}, nil)
}

func many(f *fixture) {
	const n = 400
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("host-%03d-cafe", i))
		f.beats(f.store, beat(want[i]), true)
	}
	f.wantIDs(f.open(f.scope), want, nil)
}

func beatsSideBySide(f *fixture) {
	const members, beats = 6, 8
	var fresh [members]atomic.Int64
	var beating sync.WaitGroup
	for i := range members {
		for range 2 { // two processes that share an id would be one member
			s := f.open(f.scope)
			beating.Go(func() {
				for range beats {
					was, err := s.Beat(f.Context(), beat(fmt.Sprint("m", i)))
					if err != nil {
						f.Error(err)
					}
					if was {
						fresh[i].Add(1)
					}
				}
			})
		}
	}
	beating.Wait()
	for i := range fresh {
		if n := fresh[i].Load(); n != 1 {
			f.Errorf("m%d registered %d times", i, n)
		}
	}
	f.wantIDs(f.store, []string{"m0", "m1", "m2", "m3", "m4", "m5"}, nil)
}

func endsWithContext(f *fixture) {
	f.beats(f.store, beat("a"), true)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	_, beatErr := f.store.Beat(ctx, beat("b"))
	_, membersErr := f.store.Members(ctx)
	_, sweepErr := f.store.Sweep(ctx, 0)
	for what, err := range map[string]error{"Beat": beatErr, "Leave": f.store.Leave(ctx, "a"), "Members": membersErr, "Sweep": sweepErr} {
		if !errors.Is(err, context.Canceled) {
			f.Errorf("%s of a context that ended: %v", what, err)
		}
	}
	f.wantIDs(f.store, []string{"a"}, nil)
}

// likeMemory makes the same random calls of a store and of a [Memory], and compares their members after each.
func likeMemory(f *fixture) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	now := time.Now()
	memory := NewMemory(func() time.Time { return now })
	model := memory.Store(f.scope)
	for step := range 300 {
		id := fmt.Sprint("m", random.IntN(5))
		var what string
		switch random.IntN(8) {
		case 0:
			what = "leave"
			f.wantLeft(f.store, id)
			f.wantLeft(model, id)
		case 1:
			what = "lose"
			f.Lose(f.T, f.scope, id)
			memory.Lose(f.scope, id)
		case 2:
			what = "sweep"
			f.wantSwept(0, 0)
			if swept, err := model.Sweep(f.Context(), 0); swept != 0 || err != nil {
				f.Fatal(swept, err)
			}
		default:
			what = "beat"
			b := beat(id)
			b.Lag = random.Int64N(3) - 1
			b.Address = []string{"", "http://10.1.2.3:8080", "http://h:1"}[random.IntN(3)]
			if random.IntN(3) == 0 {
				b.Status = membership.ShuttingDown
			}
			fresh, err := model.Beat(f.Context(), b)
			if err != nil {
				f.Fatal(err)
			}
			f.beats(f.store, b, fresh)
		}
		diff := cmp.Diff(f.members(model), f.members(f.store), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(membership.Member{}, "Age", "InStatus"))
		if diff != "" {
			f.Fatalf("seed %d, step %d, %s %s (-memory +store):\n%s", seed, step, what, id, diff)
		}
	}
}
