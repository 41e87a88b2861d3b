package story_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/decode"
	"sluice/connector/plan"
	"sluice/connector/schema"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/test/story"
)

var expiries = flag.Int("story.expiries", defaultExpiries, "how many seeded schedules to run in which the log is cleaned up and positions expire")

// forgotten counts the log entries and txns that schedules have removed from the table's log, and other events.
type forgotten struct{ cleanups, entries, drops, txns, sleeps, partial, unset, operator, schedules, cleaned, expired int }

func (f *forgotten) add(o forgotten) {
	f.cleanups, f.entries, f.drops, f.txns = f.cleanups+o.cleanups, f.entries+o.entries, f.drops+o.drops, f.txns+o.txns
	f.sleeps, f.partial, f.unset, f.operator = f.sleeps+o.sleeps, f.partial+o.partial, f.unset+o.unset, f.operator+o.operator
	f.schedules++
	f.cleaned += min(o.entries, 1)
	f.expired += min(o.txns, 1)
}

func (f *forgotten) String() string {
	return fmt.Sprintf("%d schedules: %d with log cleanup (%d cleanups, %d log entries deleted), %d with expiry of txns (%d checkpoints dropped %d txns, "+
		"%d of them left other partitions their positions), the property unset %d times, members slept %d times within a request, an operator set positions %d times",
		f.schedules, f.cleaned, f.cleanups, f.entries, f.expired, f.drops, f.txns, f.partial, f.unset, f.sleeps, f.operator)
}

// TestSchedules_LogCleanupAndExpiry runs two members over the shipped Delta table. Another program deletes log entries
// after minutes, and its checkpoints drop txns after 30 days. Members sleep for minutes between two requests, and both
// members stop for days or weeks. In every schedule the table must have each record once, and no version of the log may
// be written twice.
//
// make schedules runs 20 000 schedules.
func TestSchedules_LogCleanupAndExpiry(t *testing.T) {
	first, last := uint64(1), uint64(*expiries)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	total := &forgotten{}
	for s := first; s <= last && !t.Failed(); s++ {
		if s%1000 == 0 {
			fmt.Println(total)
		}
		runtime.GC() // frees encoders of the bubble before, see TestSchedules_ShippedTable
		runtime.GC()
		synctest.Test(t, func(t *testing.T) { total.add(forget(t, s)) })
	}
	t.Log(total)
	if last-first >= 500 && (total.entries == 0 || total.partial == 0 || total.unset == 0 || total.sleeps == 0 || total.operator == 0) {
		t.Errorf("something did not happen at all: %v", total)
	}
}

const (
	txnsKept = 30 * 24 * time.Hour
	// logKept is how long log entries are kept. Real tables keep them for at least an hour, and commits rely on one
	// minute; three minutes keep schedules short.
	logKept = 3 * time.Minute
)

// oncelog is a store that records each key whose put-if-absent succeeded, and in twice those that succeeded a second
// time. It finds a version that is written again after a cleanup, when the log no longer shows the first one.
type oncelog struct {
	objstore.Store
	mu      sync.Mutex
	written map[string]bool
	twice   []string
}

func (o *oncelog) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	err := o.Store.Put(ctx, key, body, mode)
	if o.mu.Lock(); err == nil && mode == objstore.IfAbsent {
		if o.written[key] {
			o.twice = append(o.twice, key)
		}
		o.written[key] = true
	}
	o.mu.Unlock()
	return err
}

// asleep is a process's client of the store. If a response comes while the process sleeps, the client returns it when
// the process wakes up.
type asleep struct {
	objstore.Store
	until atomic.Int64 // when the process wakes up, in nanoseconds since 1970
}

func (a *asleep) nap() { time.Sleep(time.Until(time.Unix(0, a.until.Load()))) }

func (a *asleep) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := a.Store.Get(ctx, key, off, n)
	a.nap()
	return r, err
}

func (a *asleep) Head(ctx context.Context, key string) (objstore.Info, error) {
	i, err := a.Store.Head(ctx, key)
	a.nap()
	return i, err
}

func (a *asleep) Put(ctx context.Context, key string, body io.ReadSeeker, mode objstore.Mode) error {
	err := a.Store.Put(ctx, key, body, mode)
	a.nap()
	return err
}

func (a *asleep) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	all := a.Store.List(ctx, prefix, after)
	a.nap()
	return all
}

// upkeep is a harness with a Delta table whose log another program cleans up.
type upkeep struct {
	*story.Harness
	t       *testing.T
	store   *oncelog
	mem     *objstore.Mem
	columns *schema.Schema
	asleep  map[string]*asleep // the clients of the store, by process
	seen    forgotten

	mu     sync.Mutex
	newest *deltalog.State // the newest state; nil if it must be loaded again
}

func newUpkeep(t *testing.T, s uint64) *upkeep {
	t.Helper()
	columns, err := schema.ParseDDL("v bigint not null")
	if err != nil {
		t.Fatal(err)
	}
	mem := objstore.NewMem()
	u := &upkeep{
		Harness: story.NewHarness(s, 3), t: t, mem: mem, columns: columns, asleep: map[string]*asleep{},
		store: &oncelog{Store: mem, written: map[string]bool{}},
	}
	u.Logger = logger()
	u.Wedged.Store(true) // the loops of a sleeping member make no progress
	u.Broker.Value = func(_ story.Kind, offset int64) []byte { return fmt.Appendf(nil, `{"v":%d}`, offset*3) }
	b := &bucket{mem: mem, harness: u.Harness}
	u.Open = func(process string) (connector.Target, func(), func()) {
		u.asleep[process] = &asleep{Store: objstoretest.NewFaulty(u.store, b.fault)}
		m := &mortal{Store: u.asleep[process]}
		// Half of the schedules have members that write no txn again before it expires, as old versions did.
		var retention func() time.Duration
		if s%2 == 0 {
			retention = func() time.Duration { return 0 }
		}
		table := u.table(m, "sluice/"+process, retention)
		return connector.Target{Table: table, Decoder: decode.JSON{}}, func() { m.dead.Store(true) }, table.Close
	}
	u.Positions = u.positions
	return u
}

// positions returns the txns of the table's newest version by appId, nil if it cannot be read.
func (u *upkeep) positions() map[string]int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	now, err := (*deltalog.State)(nil), deltalog.ErrCorrupt
	if u.newest != nil {
		now, err = deltalog.Refresh(u.t.Context(), u.mem, u.newest)
	}
	if errors.Is(err, deltalog.ErrCorrupt) {
		now, err = deltalog.Load(u.t.Context(), u.mem)
	}
	if err != nil {
		return nil
	}
	u.newest = now
	at := make(map[string]int64, len(now.Txns))
	for appID, x := range now.Txns {
		at[appID] = x.Version
	}
	return at
}

func (u *upkeep) table(store objstore.Store, engine string, retention func() time.Duration) *delta.Table {
	table, err := delta.Open(store, delta.Options{
		Pipeline: story.Pipeline, Engine: engine, Schema: u.columns, Logger: u.Logger, Retention: retention,
		Guard: reliability.NewGuard("store", reliability.Config{
			Backoff:  reliability.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.25},
			Failures: 5, OpenFor: 2 * time.Second, Successes: 1,
		}, slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists),
	})
	if err != nil {
		panic(err)
	}
	return table
}

// append adds a version of another program with the actions that change returns. If a member puts that version first,
// append tries the next one.
func (u *upkeep) append(change func(*deltalog.State) []deltalog.Action) *deltalog.State {
	u.t.Helper()
	for {
		s, err := deltalog.Load(u.t.Context(), u.mem)
		if err != nil {
			u.t.Fatal(err)
		}
		actions := append(change(s), deltalog.CommitInfo{Operation: "UPKEEP", TxnID: "upkeep"})
		body, err := deltalog.Encode(actions)
		if err != nil {
			u.t.Fatal(err)
		}
		err = u.store.Put(u.t.Context(), deltalog.CommitKey(s.Version+1), bytes.NewReader(body), objstore.IfAbsent)
		if err == nil {
			if s, err = s.After(deltalog.Commit{Version: s.Version + 1, Bytes: int64(len(body)), Actions: actions}); err != nil {
				u.t.Fatal(err)
			}
			return s
		}
		if !errors.Is(err, objstore.ErrExists) {
			u.t.Fatal(err)
		}
	}
}

// retain sets the table's log retention to an hour, and its retention of txns to 30 days or, if on is false, to none.
func (u *upkeep) retain(on bool) {
	u.append(func(s *deltalog.State) []deltalog.Action {
		m := s.Metadata
		m.Configuration = map[string]string{"delta.logRetentionDuration": "interval 1 hour", "delta.checkpointInterval": "20"}
		if on {
			m.Configuration["delta.setTransactionRetentionDuration"] = "interval 30 days"
		}
		return []deltalog.Action{m}
	})
}

// clean writes a checkpoint as Spark does, without expired txns, and deletes log entries that are before it and older
// than logKept. Sometimes it also deletes the log entry of the checkpoint's version.
func (u *upkeep) clean() {
	u.t.Helper()
	ctx := u.t.Context()
	if _, err := deltalog.Load(ctx, u.mem); errors.Is(err, deltalog.ErrNoTable) {
		return
	}
	s := u.append(func(*deltalog.State) []deltalog.Action { return nil })
	left, positions := *s, 0
	if s.Metadata.Configuration["delta.setTransactionRetentionDuration"] != "" {
		left.Txns = maps.Clone(s.Txns)
		maps.DeleteFunc(left.Txns, func(_ string, x deltalog.Txn) bool { return time.Since(time.UnixMilli(*x.LastUpdated)) > txnsKept })
	}
	for _, p := range u.Broker.Partitions(story.Topic) {
		if _, ok := left.Txns[p.AppID(story.Pipeline)]; ok {
			positions++
		}
	}
	if dropped := len(s.Txns) - len(left.Txns); dropped > 0 {
		u.mu.Lock()
		u.newest = nil
		u.mu.Unlock()
		u.seen.drops++
		u.seen.txns += dropped
		if positions > 0 {
			u.seen.partial++
		}
	}
	if _, err := deltalog.WriteCheckpoint(ctx, u.mem, &left, time.Now(), ""); err != nil {
		u.t.Fatal(err)
	}
	u.seen.cleanups++
	end := deltalog.CommitKey(s.Version)
	if u.Chance.Is(4) {
		end = deltalog.CommitKey(s.Version + 1)
	}
	if u.Chance.Is(2) {
		time.Sleep(logKept + time.Second) // waits until the newest entries are old enough to be deleted, too
	}
	for o, err := range u.mem.List(ctx, deltalog.Dir, "") {
		if err != nil {
			u.t.Fatal(err)
		}
		own := strings.HasPrefix(o.Key, strings.TrimSuffix(deltalog.CommitKey(s.Version), ".json")+".checkpoint")
		if o.Key >= end || own || o.Key[len(deltalog.Dir)] == '_' || time.Since(o.Modified) < logKept {
			continue
		}
		if err := u.mem.Delete(ctx, o.Key); err != nil {
			u.t.Fatal(err)
		}
		u.seen.entries++
	}
}

// rows returns the offsets of the table's rows by partition.
func (u *upkeep) rows() map[int32][]int64 {
	u.t.Helper()
	rows := map[int32][]int64{}
	for f, err := range deltatest.Adds(u.t.Context(), u.mem) {
		if err != nil {
			u.t.Fatal(err)
		}
		for r, err := range delta.Offsets(u.t.Context(), u.mem, f) {
			if err != nil {
				u.t.Fatal(err)
			}
			rows[r.Partition] = append(rows[r.Partition], r.Offset)
		}
	}
	return rows
}

// operate is an operator who ends holds for an unknown history or a replaced table as the documentation says: the
// operator sets positions that are after the rows in the table.
func (u *upkeep) operate(held map[int32]hold.Reason) {
	u.t.Helper()
	reasons := slices.Collect(maps.Values(held))
	if !slices.Contains(reasons, hold.UnknownHistory) && !slices.Contains(reasons, hold.TableReplaced) {
		return
	}
	table := u.table(u.mem, "operator", nil)
	defer table.Close()
	s, err := table.Load(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	rows, replaced := u.rows(), plan.Replaced(s, story.Pipeline) != ""
	m := plan.Moves{Pipeline: story.Pipeline, TableID: s.TableID, Accept: true}
	for _, p := range u.Broker.Partitions(story.Topic) {
		at, known := s.Positions[p.AppID(story.Pipeline)]
		switch {
		case known && replaced:
			m.Moves = append(m.Moves, plan.Move{Partition: p, From: at, Next: at})
		case !known && (held[p.ID] != "" || replaced && u.Chance.Is(2)): // in the other cases the member decides whether to make an initial commit
			next := int64(0)
			if len(rows[p.ID]) > 0 {
				next = slices.Max(rows[p.ID]) + 1
			}
			m.Moves = append(m.Moves, plan.Move{Partition: p, From: -1, Next: next})
		}
	}
	if len(m.Moves) == 0 {
		return
	}
	if _, err := commit.Move(u.t.Context(), table, &m); err != nil && classify.Of(err) != classify.Fenced {
		u.t.Fatal(err)
	}
	u.seen.operator++
}

// stop ends all members, lets up to 35 days pass, and begins two others. Meanwhile the group is usually deleted, and
// txns expire if the table has their retention set. Sometimes the retention is removed afterwards.
func (u *upkeep) stop(members []*story.Process) []*story.Process {
	for _, m := range members {
		if u.Chance.Is(2) {
			u.Crash(m)
		} else {
			u.Stop(m)
		}
	}
	time.Sleep(time.Duration(1+u.Chance.N(35)) * 24 * time.Hour)
	if u.Chance.Is(2) {
		u.retain(true)
	}
	if !u.Chance.Is(4) {
		u.Broker.ForgetGroup(story.Topic)
	}
	u.clean()
	if u.Chance.Is(3) {
		u.seen.unset++
		u.retain(false)
	}
	return []*story.Process{u.Begin(u.t.Context()), u.Begin(u.t.Context())}
}

// sleep makes a member sleep within its next requests to the store, for longer than log entries are kept. The other
// member continues, and the log is cleaned up.
func (u *upkeep) sleep(m *story.Process) {
	u.seen.sleeps++
	long := logKept + time.Duration(1+u.Chance.N(300))*time.Second
	u.asleep[m.Name].until.Store(time.Now().Add(long).UnixNano())
	for left := long; left > 0; left -= time.Minute {
		u.Broker.Produce(story.Topic, int32(u.Chance.N(3)), "rrt"[:1+u.Chance.N(3)], "k")
		time.Sleep(min(left, time.Minute))
	}
	u.clean()
	u.Broker.Produce(story.Topic, int32(u.Chance.N(3)), "r", "k")
}

func (u *upkeep) assign(members []*story.Process) {
	var of [2][]connector.Partition
	for _, p := range u.Broker.Partitions(story.Topic) {
		where := u.Chance.N(5)
		if where != 0 {
			of[0] = append(of[0], p)
		}
		if where < 3 { // in some schedules both members believe that they own the partition
			of[1] = append(of[1], p)
		}
	}
	for i, m := range members {
		m.Member.Assign(connector.Assignment{Joined: true, Partitions: of[i]})
	}
}

// forget plays one schedule, judges the table, and returns the counts of what happened.
func forget(t *testing.T, s uint64) forgotten {
	t.Helper()
	u := newUpkeep(t, s)
	u.Broker.Flaky.Store(6)
	members := []*story.Process{u.Begin(t.Context()), u.Begin(t.Context())}
	u.assign(members)
	u.Broker.Produce(story.Topic, 0, "rr", "k")
	u.Broker.Produce(story.Topic, 1, "rr", "k")
	u.Broker.Produce(story.Topic, 2, "r", "k")
	time.Sleep(20 * time.Second)
	if _, err := deltalog.Load(t.Context(), u.mem); err == nil {
		u.retain(true)
	}
	for range 10 {
		i := u.Chance.N(2)
		switch u.Chance.N(11) {
		case 0, 1, 2:
			u.Broker.Produce(story.Topic, int32(u.Chance.N(3)), "rrtrcr"[:1+u.Chance.N(6)], fmt.Sprint(u.Chance.N(3)))
		case 3, 4:
			u.assign(members)
		case 5:
			u.Crash(members[i])
			members[i] = u.Begin(t.Context())
		case 6:
			u.clean()
		case 7:
			u.sleep(members[i])
		case 8, 9, 10:
			members = u.stop(members)
			u.assign(members)
		}
		time.Sleep(time.Duration(u.Chance.N(int(5 * time.Second))))
		for _, m := range members {
			u.operate(m.Holds())
		}
	}
	u.Broker.Flaky.Store(0)
	u.Stop(members[1])
	for id := range int32(3) { // a batch with rows is due after seconds, one without rows after minutes
		u.Broker.Produce(story.Topic, id, "r", "k")
	}
	m := members[0]
	m.Member.Assign(connector.Assignment{Joined: true, Partitions: u.Broker.Partitions(story.Topic)})
	for range 400 {
		if u.AtEnd() {
			break
		}
		time.Sleep(10 * time.Second)
		u.operate(m.Holds())
	}
	if !u.AtEnd() {
		t.Errorf("seed %d: stuck at %v, holds %v", s, u.Positions(), m.Holds())
	}
	u.Close()
	for _, v := range slices.Concat(u.Broker.Violations(), u.mem.Violations()) {
		t.Errorf("seed %d: %s", s, v)
	}
	if len(u.store.twice) > 0 {
		t.Errorf("seed %d: versions were written twice: %v", s, u.store.twice)
	}
	rows := u.rows()
	for _, p := range u.Broker.Partitions(story.Topic) {
		got, want := slices.Sorted(slices.Values(rows[p.ID])), u.Want(p.ID, 0, int64(len(u.Broker.Kinds(story.Topic, p.ID))))
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: partition %d has rows %v, want %v", s, p.ID, got, want)
		}
	}
	return u.seen
}
