//go:build lab

package e2e

import (
	"maps"
	"strings"
	"testing"
	"time"

	"sluice/health"
	"sluice/health/membership"
	"sluice/test/tablelog"
)

// takeover is the time within which other members must own the partitions of a dead member: its session of 6 s plus ten
// seconds.
const takeover = 6*time.Second + 10*time.Second

// pair starts one member for each registry and waits until both work.
func (s *scene) pair(in []*registry, byProxy bool, change ...setting) (pair []registered) {
	s.t.Helper()
	for _, r := range in {
		pair = append(pair, s.registers(r, byProxy, change...))
	}
	for _, m := range pair {
		m.awaitActive()
		m.await("it owns partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
	}
	return pair
}

// TestRecoveryOfLeftAndKilled stops two members in an orderly way and kills two others. Stopped members must
// unregister. Killed members must become missing, and the members that still run must take over their partitions. No
// record may be lost or doubled. In each pair of members one registers in Postgres, the other in Redis.
func TestRecoveryOfLeftAndKilled(t *testing.T) {
	t.Parallel()
	in := registries(t)
	s := newScene(t, 8)
	end := s.stream(1000)
	stay := s.pair(in, false)

	leave := s.pair(in, false)
	for _, m := range leave {
		m.drain()
		m.awaitIn("it has unregistered", func(k *membership.Member) bool { return k == nil })
	}
	s.awaitAll(8, stay...)

	die := s.pair(in, false)
	for _, m := range die {
		m.kill()
	}
	killed := time.Now()
	s.awaitAll(8, stay...)
	if took := time.Since(killed); took > takeover {
		t.Errorf("the other members took over after %s, want at most 16 s", took)
	}
	before := s.rows()
	s.awaitRows(before + 2000)
	for i, m := range die {
		m.awaitMissing()
		stay[i].awaitLine(`"msg":"Removed stale consumers","count":1`)
		path, _ := s.config(s.registering(m.in, false))
		if code, text := s.command("members", "cleanup", "--yes", "--reason", "it was killed", "--config", path); code != 0 || !strings.Contains(text, "Removed 0 stale consumers, forgot 1") {
			t.Errorf("%s: exit code %d: %s", m.in.name, code, text)
		}
		m.awaitIn("the registry has no record of it", func(k *membership.Member) bool { return k == nil })
	}
	end()
	for _, m := range stay {
		m.drain()
		m.awaitIn("it has unregistered", func(k *membership.Member) bool { return k == nil })
	}
	s.untilCurrent()
	s.await("the group has the positions of the table", func() (bool, error) {
		lines, err := s.describe()
		offsets := map[int32]int64{}
		for id, d := range lines {
			offsets[id] = d.offset
		}
		return maps.Equal(offsets, tablelog.Positions(s.commits())), err
	})
	s.check("--readers", "duckdb,polars")
}

// TestRecoveryOfCutOff cuts members off from Kafka and from their registry, which must list them as missing. When the
// network is back, they must register again and continue by themselves, without a lost or doubled record.
func TestRecoveryOfCutOff(t *testing.T) {
	t.Parallel()
	in := registries(t)
	s := newScene(t, 8)
	end := s.stream(1000)
	stay := s.pair(in, false)
	cut := s.pair(in, true, overCable)
	ids := map[string]string{}
	for _, m := range cut {
		ids[m.Name] = m.awaitActive().ID
	}

	shared.cable.Cut()
	for _, r := range in {
		r.proxy.Cut()
	}
	s.awaitAll(8, stay...)
	before := s.rows()
	s.awaitRows(before + 2000)
	for _, m := range cut {
		m.awaitMissing()
		m.awaitStatus(health.MembersUnknown)
	}

	shared.cable.Connect(shared.kafka.Proxied)
	for _, r := range in {
		r.proxy.Connect(r.addr)
	}
	for _, m := range cut {
		if id := m.awaitActive().ID; id != ids[m.Name] {
			t.Errorf("%s was %s and is %s", m.Name, ids[m.Name], id)
		}
		m.awaitLine("registered again: the registration was lost")
		m.await("it owns partitions again", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
		m.awaitStatus(health.MembersOK)
	}
	before = s.rows()
	s.awaitRows(before + 2000)
	end()
	for _, m := range append(cut, stay...) {
		m.drain()
	}
	s.untilCurrent()
	s.check("--readers", "duckdb,polars")
}

// TestRecoveryOfSuspended suspends the processes of members, which their registries must list as missing. When the
// processes continue, the members must register again: with the same id and status, and a young heartbeat.
func TestRecoveryOfSuspended(t *testing.T) {
	t.Parallel()
	in := registries(t)
	s := newScene(t, 4)
	end := s.stream(1000)
	frozen := s.pair(in, false)
	ids := map[string]string{}
	for _, m := range frozen {
		ids[m.Name] = m.awaitActive().ID
		m.freeze()
	}
	for _, m := range frozen {
		m.awaitSilent()
		m.thaw()
	}
	for _, m := range frozen {
		if id := m.awaitActive().ID; id != ids[m.Name] {
			t.Errorf("%s was %s and is %s", m.Name, ids[m.Name], id)
		}
		m.await("it logs that it registered again", func(report) bool { return strings.Contains(m.Tail(), "registered again: the registration was lost") })
		m.awaitStatus(health.MembersOK)
	}
	before := s.rows()
	s.awaitRows(before + 2000)
	end()
	for _, m := range frozen {
		m.drain()
	}
	s.untilCurrent()
	s.check("--readers", "duckdb,polars")
}

// TestRegistriesFail stops and slows stores of registrations. Members must stay ready and commit, and must report the
// other members as unknown until the store is back. Then it wipes the stores, and members must register again.
func TestRegistriesFail(t *testing.T) {
	t.Parallel()
	in := registries(t)
	s := newScene(t, 4)
	end := s.stream(1000)
	members := s.pair(in, true)
	outage := func(what string, begin, heal func(*registry) error) {
		t.Helper()
		for _, m := range members {
			m.awaitStatus(health.MembersOK)
			if err := begin(m.in); err != nil {
				t.Fatalf("%s: %s: %v", what, m.in.name, err)
			}
		}
		for _, m := range members {
			m.await(what+": it reports the members as unknown", func(r report) bool {
				if !r.Ready {
					t.Errorf("%s: %s is not ready", what, m.Name)
				}
				return r.Components["members"].Status == string(health.MembersUnknown)
			})
		}
		before, commits := s.rows(), make([]float64, len(members))
		for i, m := range members {
			commits[i] = m.metric("sluice_commits_total")
		}
		s.awaitRows(before + 3000)
		for i, m := range members {
			s.await(what+": "+m.Name+" commits", func() (bool, error) { return m.metric("sluice_commits_total") > commits[i], nil })
			m.awaitStatus(health.MembersUnknown) // the status must still be unknown after the commits
			if err := heal(m.in); err != nil {
				t.Fatalf("%s: %s: %v", what, m.in.name, err)
			}
		}
		for _, m := range members {
			m.awaitStatus(health.MembersOK)
			m.awaitActive()
		}
	}
	outage("stopped", func(r *registry) error { return r.stop(s.ctx) }, func(r *registry) error { return r.start(s.ctx) })
	slower := func(d time.Duration) func(*registry) error {
		return func(r *registry) error { r.proxy.Delay(d); return nil }
	}
	outage("slow", slower(5*time.Second), slower(0))
	for _, m := range members {
		if err := m.in.wipe(s.ctx); err != nil {
			t.Fatal(err)
		}
		m.awaitActive()
		m.awaitStatus(health.MembersOK)
	}
	end()
	for _, m := range members {
		m.drain()
	}
	s.untilCurrent()
	s.check("--readers", "duckdb,polars")
}
