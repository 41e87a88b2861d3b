package delta_test

import (
	"math"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

const day = 24 * time.Hour

// retaining sets the time for which Kafka keeps the topics of a table. Members set it, commands do not.
func retaining(kept *time.Duration) func(*delta.Options) {
	return func(o *delta.Options) { o.Retention = func() time.Duration { return *kept } }
}

// forgetful sets properties of a table: txns may be dropped after retention, and members write practically no
// checkpoints.
func forgetful(t *testing.T, store objstore.Store, retention string) {
	t.Helper()
	m := alter(t, store, ddl)
	m.Configuration = map[string]string{
		"delta.setTransactionRetentionDuration": retention, "delta.checkpointInterval": "1000000",
	}
	foreign(t, store, m)
}

// started makes the initial commit: the pipeline's mark in the table, and position 0 for partitions 0 and 1.
func started(t *testing.T, tab *delta.Table) {
	t.Helper()
	s := load(t, tab)
	c := &connector.Commit{Operation: "SLUICE START", Txns: []connector.Txn{
		{AppID: idempotency.TableAppID("p", s.TableID)}, {AppID: app(0)}, {AppID: app(1)},
	}}
	if _, err := tab.Commit(t.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// dropTxns writes a checkpoint as Spark does: without the txns that no commit has set within the retention.
func dropTxns(t *testing.T, store objstore.Store, retention time.Duration) {
	t.Helper()
	s, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	left := *s
	left.Txns = map[string]deltalog.Txn{}
	for appID, x := range s.Txns {
		if x.LastUpdated != nil && time.Since(time.UnixMilli(*x.LastUpdated)) < retention {
			left.Txns[appID] = x
		}
	}
	if _, err := deltalog.WriteCheckpoint(t.Context(), store, &left, time.Now(), ""); err != nil {
		t.Fatal(err)
	}
}

// TestTable_RepeatsTxns: in a table that drops old txns, commits repeat the pipeline's mark and the positions of idle
// partitions, so that they are kept. Few commits are made for that alone.
func TestTable_RepeatsTxns(t *testing.T) {
	for name, busy := range map[string]bool{"beside a partition with records": true, "of a table that is idle": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				mem, unknown := objstore.NewMem(), time.Duration(0)
				tab := open(t, mem, retaining(&unknown))
				started(t, tab)
				forgetful(t, mem, "interval 40 days")
				at, commits := int64(0), int64(0)
				for range 100 {
					time.Sleep(day)
					s := load(t, tab)
					for app, x := range stateOf(t, mem).Txns {
						if age := time.Since(time.UnixMilli(*x.LastUpdated)); age > 10*day {
							t.Fatalf("%s was set %v ago, a quarter of the retention is 10 days", app, age)
						}
					}
					if busy {
						if _, err := (rowRange{0, at, at + 1}).write(t.Context(), tab, s); err != nil {
							t.Fatal(err)
						}
						at, commits = at+1, commits+1
					}
				}
				dropTxns(t, mem, 40*day)
				s := load(t, open(t, mem))
				if why := plan.Replaced(s, "p"); why != "" {
					t.Errorf("the mark is gone: %s", why)
				}
				for id, want := range []int64{at, 0} {
					if got, ok := s.Positions[app(int32(id))]; !ok || got != want {
						t.Errorf("partition %d is at %d (known: %v), want %d", id, got, ok, want)
					}
				}
				if extra := s.Version - 2 - commits; extra > 13 {
					t.Errorf("%d commits of repeated txns in 100 days", extra)
				}
			})
		})
	}
}

// TestTable_RepeatsTxns_OfItsPipelineOnly: a member does not repeat the txns of other writers. In a table that keeps
// txns for ever it repeats none.
func TestTable_RepeatsTxns_OfItsPipelineOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, unknown := objstore.NewMem(), time.Duration(0)
		tab, command := open(t, mem, retaining(&unknown)), open(t, mem)
		started(t, tab)
		foreign(t, mem, deltalog.Txn{AppID: "spark", Version: 7}, deltalog.Txn{AppID: "kd1:p2:c:orders:-:0", Version: 8})
		time.Sleep(100 * day)
		if s := load(t, tab); s.Version != 2 {
			t.Errorf("version %d: txns that stay for ever were repeated", s.Version)
		}
		forgetful(t, mem, "interval 40 days")
		if s := load(t, command); s.Version != 3 {
			t.Errorf("version %d: a command repeated txns", s.Version)
		}
		if s := load(t, tab); s.Version != 4 {
			t.Errorf("version %d: txns are due", s.Version)
		}
		c, err := deltalog.ReadCommit(t.Context(), mem, 4, deltalog.All)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range c.Actions {
			if x, ok := a.(deltalog.Txn); ok {
				n++
				if x.AppID == "spark" || x.AppID == "kd1:p2:c:orders:-:0" {
					t.Errorf("the txn of %s was repeated", x.AppID)
				}
			}
		}
		if n != 3 {
			t.Errorf("%d txns were repeated, want the mark and two positions", n)
		}
	})
}

// TestTable_RepeatsTxns_BesideAMove: between a member's read of the log and its commit that repeats txns, another
// member moves a position. The repeated txn must not set that position back.
func TestTable_RepeatsTxns_BesideAMove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, unknown := objstore.NewMem(), time.Duration(0)
		other := open(t, mem)
		moved := false
		store := &sleepy{Store: mem, before: func(key string) {
			if key == deltalog.CommitKey(3) && !moved {
				moved = true
				load(t, other)
				must(t, other, rowRange{1, 0, 7})
			}
		}}
		started(t, open(t, mem))
		forgetful(t, mem, "interval 40 days")
		time.Sleep(9 * day)
		s := load(t, open(t, store, retaining(&unknown)))
		if !moved || s.Positions[app(1)] != 7 || s.Version != 4 {
			t.Errorf("moved: %v; position %d, version %d", moved, s.Positions[app(1)], s.Version)
		}
	})
}

// TestTable_RetentionOfTopics: if a table drops txns earlier than Kafka drops the records of its topics, the table is
// refused once both times are known.
func TestTable_RetentionOfTopics(t *testing.T) {
	mem, kept := objstore.NewMem(), time.Duration(0)
	tab := open(t, mem, retaining(&kept))
	s := appendCommits(t, tab, 1)
	forgetful(t, mem, "interval 40 days")
	load(t, tab)
	kept = 40 * day
	load(t, tab)
	for want, d := range map[string]time.Duration{"for 984h0m0s; unset it, or set": 41 * day, "for ever; unset it": math.MaxInt64} {
		kept = d
		_, err := tab.Load(t.Context())
		holds(t, err, hold.TableUnsupported, want)
		at := s.Positions[app(0)]
		k := rowRange{0, at, at + 1}
		_, err = tab.Commit(t.Context(), k.commit(nil), k.pre)
		holds(t, err, hold.TableUnsupported, want)
	}
	m := alter(t, mem, ddl)
	m.Configuration = nil
	foreign(t, mem, m)
	appendCommits(t, tab, 1)
}

// TestTable_RepeatsTxns_NotAnOldEpoch: if a program moves a position without its leader epoch, the epoch in the table
// belongs to the position before. Commits do not repeat that epoch, because with a new time it would look like the
// epoch of the new position.
func TestTable_RepeatsTxns_NotAnOldEpoch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem, unknown := objstore.NewMem(), time.Duration(0)
		tab := open(t, mem, retaining(&unknown))
		started(t, tab)
		p := idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}}
		c := &connector.Commit{Operation: "SLUICE POSITIONS", Txns: []connector.Txn{{AppID: app(0), Version: 5}, {AppID: p.EpochAppID("p"), Version: 3}}}
		if _, err := tab.Commit(t.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		now := time.Now().UnixMilli()
		foreign(t, mem, deltalog.Txn{AppID: app(0), Version: 9, LastUpdated: &now})
		forgetful(t, mem, "interval 40 days")
		time.Sleep(15 * day)
		s := load(t, tab)
		if txn := stateOf(t, mem).Txns[app(0)]; time.Since(time.UnixMilli(*txn.LastUpdated)) > day {
			t.Error("the position was not repeated")
		}
		if epoch, kept := s.Epoch("p", p); kept || s.Positions[app(0)] != 9 {
			t.Errorf("position %d has epoch %d, of the position before", s.Positions[app(0)], epoch)
		}
	})
}
