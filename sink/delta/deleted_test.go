package delta_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

// removeAll deletes all objects of a table.
func removeAll(t *testing.T, store objstore.Store) {
	t.Helper()
	for info, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTable_DeletedAndCreatedAgain: the table is deleted and another one is created in its place. However many versions
// the new table has, the member must continue with it and log once that the table was replaced. It must not take this
// for an overwritten commit.
func TestTable_DeletedAndCreatedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		looks bool // the member reads the log while the folder is empty
		n     int  // versions of the new table after its first one
		mine  bool // the member itself committed the newest version of the old table
	}{
		"ItSawTheEmptyFolder": {looks: true, n: 1, mine: true},
		"FewerVersions":       {n: 1, mine: true},
		"TheSameVersions":     {n: 3, mine: true},
		"MoreVersions":        {n: 6, mine: true},
		"MoreVersionsThanOnesThatAnotherMemberWrote": {n: 6},
		"TheNewestVersionIsAnotherMembers":           {n: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store, reg := objstore.NewMem(), prometheus.NewRegistry()
				var log bytes.Buffer
				tab := open(t, store, func(o *delta.Options) {
					o.Logger, o.Registerer = slog.New(slog.NewTextHandler(&log, nil)), reg
				})
				before := appendCommits(t, tab, 3)
				if !c.mine {
					appendCommits(t, open(t, store), 1)
					before = load(t, tab)
				}
				removeAll(t, store)
				if c.looks {
					time.Sleep(time.Hour)
					_, err := tab.Load(t.Context())
					holds(t, err, hold.TableReplaced, "the folder has no Delta log: table "+before.TableID+", which was written here, is gone")
				}
				appendCommits(t, open(t, store), c.n)
				time.Sleep(time.Hour)
				after := load(t, tab)
				if after.TableID == before.TableID || after.Positions[app(0)] != int64(3*c.n) {
					t.Errorf("table %s with position %d, it was %s", after.TableID, after.Positions[app(0)], before.TableID)
				}
				if got := log.String(); strings.Contains(got, "level=ERROR") || strings.Count(got, "table was replaced by another") != 1 {
					t.Error(got)
				}
				if n := metric(t, reg, "sluice_delta_commits_overwritten_total"); n != 0 {
					t.Errorf("%v commits were overwritten", n)
				}
				load(t, tab)
				if got := log.String(); strings.Count(got, "table was replaced") != 1 {
					t.Error(got)
				}
			})
		})
	}
}
