package membership_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
	"sluice/health/membership"
	"sluice/health/membership/membershiptest"
)

// faulty is a store that can be down, slow or hung.
type faulty struct {
	membership.Store
	mu    sync.Mutex
	err   error
	delay time.Duration
}

func (f *faulty) set(err error, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.delay = err, delay
}

func (f *faulty) fail(ctx context.Context) error {
	f.mu.Lock()
	err, delay := f.err, f.delay
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", membership.ErrUnavailable, ctx.Err())
	case <-time.After(delay):
	}
	if errors.Is(err, errPanics) {
		panic("a secret of the server")
	}
	return err
}

// errPanics, as the error of a faulty store, makes the store panic.
var errPanics = errors.New("panic")

func (f *faulty) Beat(ctx context.Context, b membership.Beat) (bool, error) {
	if err := f.fail(ctx); err != nil && !errors.Is(err, membership.ErrForeign) {
		return false, err
	}
	return f.Store.Beat(ctx, b)
}

func (f *faulty) Leave(ctx context.Context, id string) error {
	if err := f.fail(ctx); err != nil && !errors.Is(err, membership.ErrForeign) {
		return err
	}
	return f.Store.Leave(ctx, id)
}

func (f *faulty) Members(ctx context.Context) ([]membership.Member, error) {
	err := f.fail(ctx)
	if err != nil && !errors.Is(err, membership.ErrForeign) {
		return nil, err
	}
	members, _ := f.Store.Members(ctx)
	return members, err
}

func (f *faulty) Sweep(ctx context.Context, forget time.Duration) (int, error) {
	if err := f.fail(ctx); err != nil && !errors.Is(err, membership.ErrForeign) {
		return 0, err
	}
	return f.Store.Sweep(ctx, forget)
}

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// take returns the lines since the last call, as level, message and the named values.
func (l *lines) take(keys ...string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			panic(err)
		}
		text := fmt.Sprint(m["level"], " ", m["msg"])
		for _, k := range keys {
			if v, ok := m[k]; ok {
				text += fmt.Sprintf(" %s=%v", k, v)
			}
		}
		all = append(all, text)
	}
	l.buf.Reset()
	return all
}

// bench is a test in virtual time with a keeper and its store.
type bench struct {
	*testing.T
	memory   *membershiptest.Memory
	store    *faulty
	keeper   *membership.Keeper
	registry *prometheus.Registry
	log      lines
	drain    chan struct{}
	stop     func()
	idle     atomic.Int64
	lag      atomic.Int64
	address  atomic.Value // a string, or nil for none
}

var scope = membership.Scope{Pipeline: "p", Group: "g"}

// keep runs test in a bubble, with a keeper that has started.
func keep(t *testing.T, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, memory: membershiptest.NewMemory(time.Now), registry: prometheus.NewRegistry(), drain: make(chan struct{})}
		b.idle.Store(-1)
		b.lag.Store(-1)
		b.store = &faulty{Store: b.memory.Store(scope)}
		b.start()
		test(b)
		b.stop()
	})
}

func (b *bench) start() {
	k, err := membership.NewKeeper(b.store, membership.Config{
		ID: "me", Beat: 10 * time.Second, TTL: 30 * time.Second, Sweep: 59 * time.Second, // 59 s, so that a sweep does not come at the time of a heartbeat
		Poll: func() (time.Duration, int64) { return time.Duration(b.idle.Load()), b.lag.Load() },
		Address: func(ctx context.Context) string {
			if _, bounded := ctx.Deadline(); !bounded {
				b.Error("the search of the address may take forever")
			}
			address, _ := b.address.Load().(string)
			return address
		},
		Logger: slog.New(slog.NewJSONHandler(&b.log, nil)), Registerer: b.registry,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.keeper = k
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx, b.drain)
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	synctest.Wait()
}

// pass advances the virtual time.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// other stores a heartbeat of another member.
func (b *bench) other(id string, status membership.Status, ttl time.Duration) {
	b.Helper()
	if _, err := b.memory.Store(scope).Beat(b.Context(), membership.Beat{ID: id, Status: status, Idle: -1, Lag: -1, TTL: ttl}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) stored() map[string]membership.Member {
	b.Helper()
	all, err := b.memory.Store(scope).Members(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	members := map[string]membership.Member{}
	for _, m := range all {
		members[m.ID] = m
	}
	return members
}

func (b *bench) want(status health.MembersStatus, reason string) {
	b.Helper()
	if h := b.keeper.Members(); h.Status != status || h.Reason != reason {
		b.Errorf("members are %s: %s; want %s: %s", h.Status, h.Reason, status, reason)
	}
}

func (b *bench) wantLines(want []string, keys ...string) {
	b.Helper()
	if diff := cmp.Diff(want, b.log.take(keys...)); diff != "" {
		b.Errorf("lines (-want +got):\n%s", diff)
	}
}

// gauges returns the values of a metric by the value of its label.
func (b *bench) gauges(name string) map[string]float64 {
	b.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				label = l.GetValue()
			}
			values[label] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func (b *bench) wantGauges(name string, want map[string]float64) {
	b.Helper()
	if diff := cmp.Diff(want, b.gauges(name)); diff != "" {
		b.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestLife: a member registers, its heartbeats carry its status and lag, it announces its shutdown, and it is
// unregistered at the end.
func TestLife(t *testing.T) {
	keep(t, func(b *bench) {
		b.want(health.MembersOK, "1 active consumer")
		b.idle.Store(int64(3 * time.Second))
		b.lag.Store(42)
		b.pass(10 * time.Second)
		m := b.stored()["me"]
		if m.Status != membership.Running || m.Idle != 3*time.Second || m.Lag != 42 || m.TTL != 30*time.Second || m.Age != 0 {
			b.Errorf("registered as %+v", m)
		}
		b.pass(25 * time.Second)
		if m = b.stored()["me"]; m.Age != 5*time.Second || !m.Active() {
			b.Errorf("35 s after the start: %+v", m)
		}
		close(b.drain)
		synctest.Wait()
		if m = b.stored()["me"]; m.Status != membership.ShuttingDown || m.TTL != time.Minute || m.Age != 0 {
			b.Errorf("while it drains: %+v", m)
		}
		b.pass(3 * time.Minute) // heartbeats continue during a long drain, and report it
		if m = b.stored()["me"]; m.Status != membership.ShuttingDown || m.Age > 10*time.Second || m.InStatus != 3*time.Minute {
			b.Errorf("at the end of a long drain: %+v", m)
		}
		if f := b.keeper.Members().Findings; len(f) != 1 || f[0].Severity != health.LevelWarning {
			b.Errorf("findings of a long drain: %+v", f)
		}
		b.stop()
		if left := b.stored(); len(left) != 0 {
			b.Errorf("left behind: %+v", left)
		}
		b.wantLines([]string{"INFO registered consumer_id=me"}, "consumer_id")
		b.wantGauges("sluice_member_beats_total", map[string]float64{"registered": 1, "renewed": 22})
	})
}

// TestLost: if the registration of a member is missing in the store, or the store lost all data, the next heartbeat
// restores it, and a log line reports this.
func TestLost(t *testing.T) {
	keep(t, func(b *bench) {
		b.log.take()
		b.memory.Lose(scope, "me")
		b.pass(10 * time.Second)
		b.wantLines([]string{"INFO registered again: the registration was lost seconds=10"}, "seconds")
		if !b.stored()["me"].Active() {
			b.Error("it is not active again")
		}
		b.memory.Wipe()
		b.pass(10 * time.Second)
		b.wantLines([]string{"INFO registered again: the registration was lost seconds=10"}, "seconds")
		b.pass(time.Minute)
		b.wantLines(nil)
	})
}

// TestPartition: while a member cannot reach the store, the others list it as missing. It registers again as soon as it
// can. The log has one line when it becomes silent and one when it is back.
func TestPartition(t *testing.T) {
	keep(t, func(b *bench) {
		b.other("peer", membership.Running, time.Hour)
		b.pass(10 * time.Second)
		b.log.take()
		b.store.set(fmt.Errorf("%w: no route to host", membership.ErrUnavailable), 0)
		b.pass(40 * time.Second)
		if b.stored()["me"].Registered {
			b.Error("the registration outlived its ttl")
		}
		b.want(health.MembersUnknown, "the store of registrations is unavailable: no route to host")
		b.wantLines([]string{
			"WARN heartbeat failed", "WARN members cannot be listed",
		}, "left_out")
		b.pass(10 * time.Minute)
		b.wantLines([]string{
			"WARN stale consumers cannot be removed",
			"WARN heartbeat failed left_out=5", "WARN members cannot be listed left_out=5",
			"WARN stale consumers cannot be removed left_out=1",
			"WARN heartbeat failed left_out=29", "WARN members cannot be listed left_out=29",
			"WARN stale consumers cannot be removed left_out=5",
		}, "left_out")
		b.store.set(nil, 0)
		b.pass(10 * time.Second)
		b.wantLines([]string{
			"INFO heartbeats work again left_out=27",
			"INFO registered again: the registration was lost seconds=650",
			"INFO members can be listed again left_out=27",
			"WARN Consumer has not sent heartbeat seconds=660",
		}, "left_out", "seconds")
		b.pass(time.Minute)
		b.wantLines([]string{"INFO stale consumers can be removed again left_out=2"}, "left_out")
		if !b.stored()["me"].Active() {
			b.Error("it is not active again")
		}
	})
}

// TestWatch: other members without heartbeats are logged, counted and reported as findings. A member has metric series
// as long as the store's index of last heartbeats has it.
func TestWatch(t *testing.T) {
	keep(t, func(b *bench) {
		started := time.Now()
		b.log.take()
		b.other("a", membership.Running, 30*time.Second)
		b.other("b", membership.Running, 30*time.Second)
		b.other("stays", membership.Running, 2*time.Hour)
		b.other("stops", membership.ShuttingDown, time.Minute)
		b.pass(10 * time.Second)
		b.want(health.MembersOK, "5 active consumers")
		b.wantGauges("sluice_members", map[string]float64{"running": 4, "shutting_down": 1, "missing": 0})
		b.pass(10 * time.Second)
		b.wantLines(nil)
		b.other("b", membership.Running, 30*time.Second)
		b.other("stops", membership.ShuttingDown, time.Minute)
		b.pass(10 * time.Second)
		b.wantLines([]string{"WARN Consumer has not sent heartbeat consumer_id=a seconds=30", "WARN Consumer has not sent heartbeat consumer_id=stays seconds=30"}, "consumer_id", "seconds")
		b.want(health.MembersOK, "4 active consumers")
		b.wantGauges("sluice_members", map[string]float64{"running": 3, "shutting_down": 1, "missing": 1})
		b.wantGauges("sluice_member_shutting_down_timestamp_seconds", map[string]float64{"stops": float64(started.Unix())})
		b.other("stays", membership.Running, 2*time.Hour)
		b.other("b", membership.Running, 2*time.Hour)
		b.other("stops", membership.ShuttingDown, 2*time.Hour)
		b.pass(35 * time.Second)
		b.want(health.MembersOK, "4 active consumers") // a member counts as stale only after more than a minute
		b.pass(5 * time.Second)
		b.want(health.MembersDegraded, "Stale consumers: a")
		if f := b.keeper.Members().Findings; len(f) != 1 || f[0].ID != "a" || f[0].Severity != health.LevelCritical {
			b.Errorf("findings %+v", f)
		}
		b.wantLines([]string{
			"INFO Consumer sends heartbeats again consumer_id=stays",
			"INFO Removed stale consumers count=1",
			"WARN Consumer has not sent heartbeat consumer_id=a seconds=60", // the poll before has logged this
			"WARN Consumer has not sent heartbeat consumer_id=b seconds=30",
			"WARN Consumer has not sent heartbeat consumer_id=stays seconds=30",
			"WARN Consumer has not sent heartbeat consumer_id=stops seconds=30",
		}, "consumer_id", "seconds", "count")
		timestamps, ages := b.gauges("worker_heartbeat_timestamp"), b.gauges("consumer_heartbeat_age")
		if timestamps["a"] != float64(started.Unix()) || ages["a"] != 70 || len(timestamps) != 5 || len(ages) != 5 || ages["me"] != 0 {
			b.Errorf("timestamps %v, ages %v", timestamps, ages)
		}
		// The series of a member end when it leaves, or when the index drops it.
		if err := b.memory.Store(scope).Leave(b.Context(), "stops"); err != nil {
			b.Fatal(err)
		}
		b.pass(5 * time.Second)
		if ages = b.gauges("consumer_heartbeat_age"); ages["a"] != 75 || ages["me"] != 5 {
			b.Errorf("ages between looks: %v", ages)
		}
		b.pass(5 * time.Second)
		if _, there := b.gauges("consumer_heartbeat_age")["stops"]; there {
			b.Error("a member that left still has a series")
		}
		b.pass(membership.Forget)
		timestamps, ages = b.gauges("worker_heartbeat_timestamp"), b.gauges("consumer_heartbeat_age")
		for _, values := range []map[string]float64{timestamps, ages} {
			if _, there := values["a"]; there || len(values) != 3 {
				b.Errorf("after an hour: %v", values)
			}
		}
		b.want(health.MembersDegraded, "Stale consumers: b, stays")
	})
}

// TestStoreDown: while the store is down, slow or hanging, the keeper has no series for other members, and its own
// series has the time of its last successful heartbeat. Afterwards all series are back.
func TestStoreDown(t *testing.T) {
	for name, fault := range map[string]func(*faulty){
		"down": func(f *faulty) { f.set(membership.ErrUnavailable, 0) },
		"slow": func(f *faulty) { f.set(nil, 5*time.Second) },
		"hung": func(f *faulty) { f.set(nil, 100*time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			keep(t, func(b *bench) {
				b.other("peer", membership.Running, time.Hour)
				b.pass(10 * time.Second)
				b.wantGauges("sluice_members_store_up", map[string]float64{"": 1})
				if len(b.gauges("worker_heartbeat_timestamp")) != 2 {
					b.Error("the peer has no series")
				}
				last := time.Now()
				fault(b.store)
				b.pass(70 * time.Second)
				if h := b.keeper.Members(); h.Status != health.MembersUnknown || h.Reason == "" || len(h.Findings) != 0 || len(h.Members) != 2 {
					b.Errorf("members %+v", h)
				}
				b.wantGauges("sluice_members_store_up", map[string]float64{"": 0})
				b.wantGauges("worker_heartbeat_timestamp", map[string]float64{"me": float64(last.Unix())})
				b.wantGauges("consumer_heartbeat_age", map[string]float64{"me": 70})
				b.wantGauges("sluice_members", map[string]float64{})
				b.store.set(nil, 0)
				b.other("peer", membership.Running, time.Hour)
				b.pass(15 * time.Second)
				b.want(health.MembersOK, "2 active consumers")
				b.wantGauges("sluice_members_store_up", map[string]float64{"": 1})
			})
		})
	}
}

// TestEnd: however the store behaves, Run ends within two seconds after the end of ctx. It ends at once if the store
// answers.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*bench)
		most  time.Duration
		line  bool
	}{
		"well":                    {func(*bench) {}, 0, false},
		"down":                    {func(b *bench) { b.store.set(membership.ErrUnavailable, 0); b.pass(10 * time.Second) }, 0, true},
		"hung in between":         {func(b *bench) { b.store.set(nil, time.Hour) }, membership.CallTimeout, true},
		"hung for long":           {func(b *bench) { b.store.set(nil, time.Hour); b.pass(29 * time.Second) }, membership.Hopeless, true},
		"hung in a call":          {func(b *bench) { b.pass(9 * time.Second); b.store.set(nil, time.Hour); b.pass(2 * time.Second) }, 2 * time.Second, true},
		"hung in a call, drained": {func(b *bench) { b.store.set(nil, time.Hour); close(b.drain); b.pass(time.Second) }, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			keep(t, func(b *bench) {
				b.log.take()
				c.fault(b)
				b.log.take()
				before := time.Now()
				b.stop()
				if took := time.Since(before); took > c.most {
					b.Errorf("the end took %s, want %s at most", took, c.most)
				}
				if lines := b.log.take(); c.line != (len(lines) == 1 && strings.HasPrefix(lines[0], "WARN could not unregister")) {
					b.Errorf("lines %q", lines)
				}
			})
		})
	}
}

// TestKeeper_Panic: a store that panics counts as down. The stack is logged once, and the value of the panic is never
// logged. At its end the keeper logs the same as with any store that fails.
func TestKeeper_Panic(t *testing.T) {
	keep(t, func(b *bench) {
		b.log.take()
		b.store.set(errPanics, 0)
		b.pass(70 * time.Second)
		b.want(health.MembersUnknown, "the store of registrations is unavailable: panic of type string")
		b.wantLines([]string{
			"ERROR a panic while the store of registrations was asked: members are unknown, records continue; report it with the stack err=panic of type string",
			"WARN heartbeat failed err=the store of registrations is unavailable: panic of type string",
			"WARN members cannot be listed err=the store of registrations is unavailable: panic of type string",
			"WARN stale consumers cannot be removed err=the store of registrations is unavailable: panic of type string",
			"WARN heartbeat failed err=the store of registrations is unavailable: panic of type string", // the line that comes after a minute
			"WARN members cannot be listed err=the store of registrations is unavailable: panic of type string",
		}, "err")
		b.store.set(nil, 0)
		b.pass(15 * time.Second)
		b.want(health.MembersOK, "1 active consumer")
		b.store.set(errPanics, 0)
	})
}

// TestNewKeeper_LongID: NewKeeper refuses an id that is too long for other members to read.
func TestNewKeeper_LongID(t *testing.T) {
	for n, want := range map[int]bool{membership.MaxID: true, membership.MaxID + 1: false} {
		_, err := membership.NewKeeper(membershiptest.NewMemory(time.Now).Store(scope), membership.Config{ID: strings.Repeat("h", n)})
		if (err == nil) != want {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestOldAnswer: if the last response of the store is too old, as after the process was suspended, the status of the
// members is unknown. It is also unknown before the first response.
func TestOldAnswer(t *testing.T) {
	keep(t, func(b *bench) {
		b.stop()
		b.pass(31 * time.Second)
		b.want(health.MembersOK, "1 active consumer")
		b.pass(time.Second)
		b.want(health.MembersUnknown, "what is known of members is 32s old")
	})
	synctest.Test(t, func(t *testing.T) {
		k, err := membership.NewKeeper(membershiptest.NewMemory(time.Now).Store(scope), membership.Config{ID: "me", Beat: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if h := k.Members(); h.Status != health.MembersUnknown || h.Reason != "the store of registrations has not answered yet" || h.Members == nil {
			t.Errorf("before the first answer: %+v", h)
		}
	})
}

// TestForeign: data of other programs in the store are logged when they appear, then at intervals, and when they
// disappear. Members are listed nevertheless.
func TestForeign(t *testing.T) {
	keep(t, func(b *bench) {
		b.log.take()
		b.store.set(fmt.Errorf("%w: key x", membership.ErrForeign), 0)
		b.pass(2 * time.Minute)
		b.want(health.MembersOK, "1 active consumer")
		b.wantLines([]string{"WARN another program wrote among the registrations", "WARN another program wrote among the registrations left_out=5"}, "left_out")
		b.store.set(nil, 0)
		b.pass(10 * time.Second)
		b.wantLines([]string{"INFO no other program writes among the registrations any more left_out=5"}, "left_out")
	})
}

// TestBoundedSeries: at most MaxSeries members have series, even if there are thousands of other members or their ids
// are long. This member and the missing members are among them.
func TestBoundedSeries(t *testing.T) {
	keep(t, func(b *bench) {
		b.other("oldest", membership.Running, time.Second)
		b.pass(time.Second)
		for i := range 3000 {
			b.other(fmt.Sprint("m", i), membership.Running, time.Hour)
		}
		b.other("\xff", membership.Running, time.Hour)
		b.other(strings.Repeat("x", 10_000), membership.Running, time.Hour)
		b.pass(9 * time.Second)
		b.log.take()
		ages := b.gauges("consumer_heartbeat_age")
		_, oldest := ages["oldest"]
		_, own := ages["me"]
		if len(ages) != membership.MaxSeries || !oldest || !own || len(b.gauges("worker_heartbeat_timestamp")) != membership.MaxSeries {
			b.Errorf("%d series; oldest %v, own %v", len(ages), oldest, own)
		}
		b.wantGauges("sluice_members", map[string]float64{"running": 3003, "shutting_down": 0, "missing": 1})
		// If all of these members are silent, each poll logs at most LinesPerPoll of them by name.
		b.pass(20 * time.Second)
		b.pass(10 * time.Second)
		if lines := b.log.take("count"); len(lines) > 2*(membership.LinesPerPoll+1)+1 || !strings.HasPrefix(lines[len(lines)-1], "WARN more consumers have not sent heartbeat count=") {
			b.Errorf("%d lines: %q", len(lines), lines)
		}
	})
}

// TestKeeper_Address: a heartbeat has the address that is known at its time.
func TestKeeper_Address(t *testing.T) {
	keep(t, func(b *bench) {
		if got := b.stored()["me"].Address; got != "" {
			b.Errorf("address %q", got)
		}
		b.address.Store("http://10.1.2.3:8080")
		b.pass(10 * time.Second)
		if got := b.stored()["me"].Address; got != "http://10.1.2.3:8080" {
			b.Errorf("address %q", got)
		}
		if m := b.keeper.Members().Members; len(m) != 1 || m[0].Address != "http://10.1.2.3:8080" {
			b.Errorf("members %+v", m)
		}
	})
}
