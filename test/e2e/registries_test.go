//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/health"
	"sluice/health/membership"
	"sluice/health/membership/postgres"
	"sluice/health/membership/redis"
	"sluice/test/lab"
)

// registry is a store of registrations. Members may reach its server through a proxy; the test's own requests do not
// use the proxy.
type registry struct {
	name              string // its value of the key members.store
	addr, url         string
	proxy             *lab.TCPProxy // the proxy in front of the server
	stop, start, wipe func(context.Context) error
	// rows returns how many registrations with this member id the server has. Expired ones that are not removed yet
	// count, too.
	rows func(ctx context.Context, scope membership.Scope, id string) (int, error)
}

// registries starts a Postgres and a Redis, each with a proxy in front of it.
func registries(t *testing.T) []*registry {
	t.Helper()
	pg, err := lab.StartPostgres(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, pg.Stop)
	rd, err := lab.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, rd.Stop)
	all := []*registry{
		{
			name: "postgres", addr: pg.Addr, url: pg.URL, proxy: cable(t, pg.Addr),
			stop: func(context.Context) error { return pg.Stopped() }, start: pg.Start,
			wipe: func(ctx context.Context) error {
				return ask(ctx, pg.URL, "DROP TABLE consumer_registrations; TRUNCATE consumer_last_seen")
			},
			rows: func(ctx context.Context, s membership.Scope, id string) (n int, err error) {
				err = ask(ctx, pg.URL, "SELECT count(*) FROM consumer_registrations WHERE consumer_id = '"+id+"'", &n)
				return n, err
			},
		},
		{
			name: "redis", addr: rd.Addr, url: rd.URL, proxy: cable(t, rd.Addr),
			stop: func(context.Context) error { return rd.Stop() }, start: rd.Start, wipe: rd.Wipe,
		},
	}
	for _, r := range all {
		if r.rows == nil { // Redis removes expired keys itself, so there are no stale registrations to count
			r.rows = func(ctx context.Context, s membership.Scope, id string) (int, error) {
				m, err := r.member(ctx, s, func(of string) bool { return of == id })
				if m == nil || !m.Registered {
					return 0, err
				}
				return 1, err
			}
		}
	}
	return all
}

// cable returns a proxy to upstream, which the test may cut.
func cable(t *testing.T, upstream string) *lab.TCPProxy {
	t.Helper()
	p, err := lab.StartTCPProxy()
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, p.Close)
	p.Connect(upstream)
	return p
}

func cleanUp(t *testing.T, end func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// ask opens a connection to Postgres and executes a statement. If the caller gives pointers in into, ask stores the
// columns of the first row of the result in them.
func ask(ctx context.Context, url, sql string, into ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if len(into) > 0 {
		return conn.QueryRow(ctx, sql).Scan(into...)
	}
	_, err = conn.Exec(ctx, sql)
	return err
}

// member returns the first registration in r for whose id the function is returns true, or nil if there is none.
func (r *registry) member(ctx context.Context, s membership.Scope, is func(id string) bool) (*membership.Member, error) {
	var store membership.Store
	var err error
	if r.name == "postgres" {
		store, err = postgres.Open(ctx, postgres.Options{URL: r.url, Scope: s})
	} else {
		store, err = redis.Open(redis.Options{URL: r.url, Scope: s})
	}
	if err != nil {
		return nil, err
	}
	members, err := store.Members(ctx)
	for _, m := range members {
		if is(m.ID) {
			return &m, errors.Join(err, store.Close())
		}
	}
	return nil, errors.Join(err, store.Close())
}

// registered is a member and the registry in which it registers.
type registered struct {
	*member
	in  *registry
	log string // the path of the member's log
}

// registering is a setting that makes a member register in r, by its proxy or directly.
func (s *scene) registering(r *registry, byProxy bool) setting {
	s.t.Helper()
	url := r.url
	if byProxy {
		url = strings.Replace(url, r.addr, r.proxy.Addr, 1)
	}
	file := filepath.Join(s.dir, fmt.Sprintf("%s-%v.url", r.name, byProxy))
	if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return func(c *settings) {
		c.patient += fmt.Sprintf("\nmembers: {store: %s, url_file: %s, beat: 2s, ttl: 10s, sweep: 10s}", r.name, file)
	}
}

// registers starts a member that registers in r.
func (s *scene) registers(r *registry, byProxy bool, change ...setting) registered {
	s.t.Helper()
	m := s.start(append(change, s.registering(r, byProxy))...)
	return registered{m, r, filepath.Join(s.dir, fmt.Sprintf("member-%d.log", s.members))}
}

// awaitLine waits until the member's log contains a text.
func (m registered) awaitLine(text string) {
	m.s.t.Helper()
	m.s.await(m.Name+" says "+text, func() (bool, error) {
		lines, err := os.ReadFile(m.log)
		return strings.Contains(string(lines), text), err
	})
}

func (s *scene) scope() membership.Scope { return membership.Scope{Pipeline: s.name, Group: s.name} }

// look returns the member's registration, or nil if the registry has none.
func (m registered) look() (*membership.Member, error) {
	return m.in.member(m.s.ctx, m.s.scope(), func(id string) bool { return strings.Contains(id, fmt.Sprintf("-%d-", m.Pid())) })
}

// awaitIn waits until check returns true for the member's registration, and returns the registration. Both are nil
// while the registry has none. what completes the sentence "wait until".
func (m registered) awaitIn(what string, check func(*membership.Member) bool) (last *membership.Member) {
	m.s.t.Helper()
	defer func() {
		if m.s.t.Failed() {
			m.s.t.Logf("%s in %s: %+v\n%s", m.Name, m.in.name, last, m.Tail())
		}
	}()
	m.s.await(fmt.Sprintf("%s in %s: %s", m.Name, m.in.name, what), func() (bool, error) {
		known, err := m.look()
		last = known
		return err == nil && check(known), err
	})
	return last
}

func (m registered) awaitActive() *membership.Member {
	m.s.t.Helper()
	return m.awaitIn("it is active", func(k *membership.Member) bool { return k != nil && k.Active() && k.Status == membership.Running })
}

// awaitMissing waits until the registration has expired and the registry has removed it, but still lists the member as
// missing.
func (m registered) awaitMissing() {
	m.s.t.Helper()
	known := m.awaitIn("it is missing", func(k *membership.Member) bool { return k != nil && !k.Registered })
	if known.Age < 10*time.Second {
		m.s.t.Errorf("%s is missing in %s after %s", m.Name, m.in.name, known.Age)
	}
	m.s.await(fmt.Sprintf("the registration of %s in %s is removed", m.Name, m.in.name), func() (bool, error) {
		n, err := m.in.rows(m.s.ctx, m.s.scope(), known.ID)
		return n == 0, err
	})
}

// awaitSilent waits until the registration has expired or is removed.
func (m registered) awaitSilent() {
	m.s.t.Helper()
	m.awaitIn("its registration is over", func(k *membership.Member) bool { return k != nil && !k.Registered })
}

// awaitStatus waits until the member reports this status of the members.
func (m registered) awaitStatus(want health.MembersStatus) {
	m.s.t.Helper()
	m.await("it reports the members as "+string(want), func(r report) bool { return r.Components["members"].Status == string(want) })
}

// awaitAll waits until the given members, counted together, own as many partitions as partitions says.
func (s *scene) awaitAll(partitions int, members ...registered) {
	s.t.Helper()
	s.await("the other members own all partitions", func() (bool, error) {
		n := 0
		for _, m := range members {
			r, err := m.health()
			if err != nil {
				return false, err
			}
			if r.Ready {
				n += len(r.Partitions)
			}
		}
		return n == partitions, nil
	})
}
