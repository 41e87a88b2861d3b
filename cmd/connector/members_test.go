package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"

	"sluice/health"
	"sluice/health/membership"
	"sluice/health/membership/redis"
	"sluice/internal/admin"
	"sluice/internal/laketest"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// newRegisteringLake returns a lake whose members register at the Redis server at this address.
func newRegisteringLake(t *testing.T, address string) *lake {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("redis://"+address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newLake(t, "topics: {orders: {}}\nmembers: {store: redis, url_file: "+filepath.ToSlash(file)+", beat: 1s, ttl: 10s}")
}

// registrations opens the Redis server at this address as a store of registrations, as the members command does.
func registrations(t *testing.T, address string) membership.Store {
	t.Helper()
	s, err := redis.Open(redis.Options{URL: "redis://" + address, Scope: membership.Scope{Pipeline: "p", Group: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestMembersCommand expects the command to show active and missing members, and members cleanup to forget the missing
// ones.
func TestMembersCommand(t *testing.T) {
	server := miniredis.RunT(t)
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	server.SetTime(start)
	l := newRegisteringLake(t, server.Addr())
	out, _ := l.runs(exitOK, "members")
	if out != "0 active consumers\n" {
		t.Errorf("no members: %q", out)
	}
	store := registrations(t, server.Addr())
	beat := func(id string, status membership.Status, idle time.Duration, lag int64, ttl time.Duration) {
		t.Helper()
		if _, err := store.Beat(t.Context(), membership.Beat{ID: id, Status: status, Idle: idle, Lag: lag, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	pass := func(d time.Duration) {
		start = start.Add(d)
		server.SetTime(start)
		server.FastForward(d)
	}
	beat("gone", membership.Running, time.Second, 5, 30*time.Second)
	beat("sto\x1bps", membership.ShuttingDown, -1, -1, 10*time.Minute)
	pass(2*time.Minute + time.Second)
	beat("sto\x1bps", membership.ShuttingDown, -1, -1, 10*time.Minute)
	beat("idle", membership.Running, 6*time.Minute, 0, 30*time.Second)
	beat("well", membership.Running, 0, 3, 30*time.Second)

	if listed, _ := l.runs(exitFound, "members", "list", "gone"); !strings.Contains(listed, "\ngone ") || strings.Contains(listed, "idle") {
		t.Errorf("members list gone: %s", listed)
	}
	if listed, _ := l.runs(exitFound, "members", "list"); !strings.Contains(listed, "\nidle ") {
		t.Errorf("members list takes its own name for an id: %s", listed)
	}
	out, _ = l.runs(exitFound, "members")
	for _, want := range []string{
		"gone       RUNNING        no      121s ago", "sto\\x1bps  SHUTTING_DOWN  yes     0s ago     -",
		"critical: gone: no heartbeat for 2m1s\n", "warning: sto\\x1bps: shutting down for 2m1s", "warning: idle: no record for 6m0s without a lag: it is idle",
		"Stale consumers: gone\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var h health.Members
	out, _ = l.runs(exitFound, "members", "--output", "json")
	if err := json.Unmarshal([]byte(out), &h); err != nil || h.Status != health.MembersDegraded || len(h.Members) != 4 || len(h.Findings) != 3 || *h.Members[0].Lag != 5 {
		t.Errorf("%v: %s", err, out)
	}
	for id, code := range map[string]int{"well": exitOK, "gone": exitFound, "idle": exitFound, "nobody": exitFound} {
		if out, _ = l.runs(code, "members", id); strings.Contains(out, "sto") {
			t.Errorf("%s: %s", id, out)
		}
	}

	// members cleanup shows the members to forget, asks, and forgets them.
	out, errs := l.runs(exitOK, "members", "cleanup", "--dry-run")
	if out != "forget gone, last seen 2m1s ago\n1 member without a registration\n" || !strings.Contains(errs, "dry run") {
		t.Errorf("%s%s", out, errs)
	}
	if _, errs = l.runs(exitUsage, "members", "cleanup", "--yes"); !strings.Contains(errs, "the reason is missing") {
		t.Error(errs)
	}
	if _, errs = l.runs(exitUsage, "members", "cleanup", "--reason", "a test"); !strings.Contains(errs, "--yes") {
		t.Error(errs)
	}
	var done admin.CleanupResult
	out, _ = l.runs(exitOK, "members", "cleanup", "--yes", "--operator", "ann", "--reason", "a test", "--output", "json")
	if err := json.Unmarshal([]byte(out), &done); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(admin.CleanupResult{Removed: 1, Forgotten: []string{"gone"}}, done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if out, _ = l.runs(exitOK, "members", "cleanup", "--reason", "once more"); out != "Removed 0 stale consumers, forgot 0\n" {
		t.Errorf("once more: %s", out)
	}
	if out, _ = l.runs(exitFound, "members"); strings.Contains(out, "gone") || !strings.Contains(out, "3 active consumers") {
		t.Error(out)
	}
	// One entry says which member was deleted, who deleted it and why. A call that changes nothing writes no entry.
	if diff := cmp.Diff([]opslog.Body{opslog.ForgetMembers{Members: []string{"gone"}}}, l.operations()); diff != "" {
		t.Errorf("the operations log (-want +got):\n%s", diff)
	}
	if listed, _ := l.runs(exitOK, "audit", "list"); !strings.Contains(listed, "members cleanup forgets gone") {
		t.Error(listed)
	}
	if out, _ = l.runs(exitOK, "audit", "verify"); !strings.Contains(out, "is what was written: 1 entries") {
		t.Error(out)
	}

	// members reports data that another program wrote to the store, and still shows all members.
	if err := server.Set("worker:connector:well", "hello"); err != nil {
		t.Fatal(err)
	}
	if out, errs = l.runs(exitFound, "members"); !strings.Contains(errs, "another program wrote") || !strings.Contains(out, "well") {
		t.Errorf("%s%s", out, errs)
	}
	server.Close()
	if _, errs = l.runs(exitDependency, "members"); !strings.Contains(errs, "unavailable") {
		t.Error(errs)
	}
	if out, _ = l.runs(exitFound, "check", "--timeout", "5s"); !strings.Contains(out, "members") {
		t.Error(out)
	}
	none := newLake(t, "topics: {orders: {}}")
	if _, errs = none.runs(exitUsage, "members"); !strings.Contains(errs, "members.store") {
		t.Error(errs)
	}
}

// TestMemberRegisters expects a running member to be registered, with its partitions and counts, until it stops. During
// an outage of the store it must keep moving records.
func TestMemberRegisters(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	l := newRegisteringLake(t, server.Addr())
	logger, log := newLogged(t)
	l.Logger = logger
	l.Create("orders", 2)
	l.Produce("orders", 3, 0, 1)
	store := registrations(t, server.Addr())
	t.Run("run", func(t *testing.T) {
		l := *l
		l.T = t // the member must end with this subtest
		s := l.start()
		l.Awaits("orders", laketest.UpTo(3, "orders:0", "orders:1"))
		l.Await("the registration says so", func() bool {
			members, err := store.Members(t.Context())
			return err == nil && len(members) == 1 && members[0].Active() && members[0].Status == membership.Running &&
				members[0].Idle >= 0 && members[0].Lag == 0 && members[0].TTL == 10*time.Second && members[0].ID == s.Name()
		})
		l.Await("health says so", func() bool {
			m := s.Report().Members
			return m != nil && m.Status == health.MembersOK && m.Reason == "1 active consumer" && m.Members[0].LastRecord != nil
		})
		server.Close()
		l.Await("the members are unknown", func() bool { return s.Report().Members.Status == health.MembersUnknown })
		l.Produce("orders", 2, 0)
		l.Awaits("orders", map[string][]int64{"orders:0": {0, 1, 2, 3, 4}, "orders:1": {0, 1, 2}})
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		l.Await("it is well again", func() bool { return s.Report().Members.Status == health.MembersOK })
		if out, _ := l.runs(exitOK, "members"); !strings.Contains(out, s.Name()) {
			t.Error(out)
		}
	})
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
	for _, want := range []string{"registered", "heartbeat failed", "heartbeats work again", "members can be listed again"} {
		if len(log.Lines(t, want)) == 0 {
			t.Errorf("no line %q", want)
		}
	}
}

// TestMembers_SilentStore has a store of registrations that accepts connections and never responds. It must delay
// neither the records nor the shutdown.
func TestMembers_SilentStore(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l := newRegisteringLake(t, silent.Addr().String())
	l.Create("orders", 1)
	l.Produce("orders", 5, 0)
	l.runs(exitOK, "run", "--until-current")
	l.Has("orders", laketest.UpTo(5, "orders:0"))
}

// TestMembersCleanup_BrokenLog expects members cleanup to forget no member if the operations log accepts no entry.
func TestMembersCleanup_BrokenLog(t *testing.T) {
	server := miniredis.RunT(t)
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	server.SetTime(start)
	l := newRegisteringLake(t, server.Addr())
	if _, err := registrations(t, server.Addr()).Beat(t.Context(), membership.Beat{ID: "gone", Status: membership.Running, TTL: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	server.SetTime(start.Add(2 * time.Minute))
	server.FastForward(2 * time.Minute)
	if err := l.Store.Put(t.Context(), "_sluice/p/ops/00000000000000000001.json", strings.NewReader("{}"), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
	l.runs(exitFound, "members", "cleanup", "--yes", "--operator", "ann", "--reason", "a test")
	if out, _ := l.runs(exitFound, "members", "gone"); !strings.Contains(out, "no heartbeat for 2m0s") {
		t.Errorf("the member is forgotten without an entry: %s", out)
	}
}

// TestMembers_HostileStatus expects the output of members to escape ids and statuses that other programs wrote.
func TestMembers_HostileStatus(t *testing.T) {
	var out bytes.Buffer
	h := health.Members{Members: []health.Member{{ID: "a\x1b[2J", Status: "RUN\x1b[2J"}}, Reason: "\x1b[2J"}
	h.Findings = []health.MemberFinding{{ID: "\x1b[2J", Severity: health.LevelWarning, Finding: "is odd"}}
	if err := printMembers(&out, false, h); err != nil || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), `RUN\x1b[2J`) {
		t.Errorf("%v: %q", err, &out)
	}
}
