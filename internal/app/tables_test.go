package app

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/laketest"
)

// TestMetricsOfTables: metrics of a table have the label table, and metrics of shared dependencies exist once. A
// retired table has no metrics any more.
func TestMetricsOfTables(t *testing.T) {
	l := newLake(t, `topics: {orders: {}, users: {}, visits: {table: users}}`)
	s, err := New(t.Context(), laketest.Load(t, l.Config), Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			found[f.GetName()] = append(found[f.GetName()], strings.Join(labels, " "))
		}
	}
	for name, want := range map[string][]string{
		"sluice_delta_table_version": {"table=orders", "table=users"},
		"sluice_breaker_state": {
			"dependency=dead_letters table=orders", "dependency=dead_letters table=users", "dependency=kafka table=",
			"dependency=operations_log table=", "dependency=store table=orders", "dependency=store table=users",
		},
	} {
		if d := cmp.Diff(want, found[name]); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	closed := s.retire("users")
	closed()
	if families, err = s.registry.Gather(); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "users" {
					t.Errorf("%s is left of a table that was retired", f.GetName())
				}
			}
		}
	}
	if _, target, ok := s.route("visits"); !ok || target.Table == nil {
		t.Error("a table that was retired does not come back")
	}

	var names []string
	for _, d := range s.Report().Dependencies {
		names = append(names, d.Name+" "+d.Table)
	}
	if d := cmp.Diff([]string{"store orders", "dead_letters orders", "store users", "dead_letters users", "kafka ", "operations_log "}, names); d != "" {
		t.Error(d)
	}
}

// TestFix_WatchersReadTopics: fix stores the topics of a run until current, while the watchers of dead letters and of
// the group call matches and laterTopics. If fix changed a map that they read, the race detector would fail this test.
func TestFix_WatchersReadTopics(t *testing.T) {
	l := newLake(t, `topics: {some: {pattern: "o.*", deny: []}}`)
	l.Create("orders", 1)
	s, err := New(t.Context(), laketest.Load(t, l.Config), Options{UntilCurrent: true}, l.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	started, found := make(chan struct{}), make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		s.matches("orders")
		close(started)
		for {
			s.matches("orders")
			s.laterTopics()
			select {
			case <-found:
				return
			default:
			}
		}
	})
	<-started
	err = s.fix(t.Context())
	close(found)
	watcher.Wait()
	if err != nil {
		t.Fatal(err)
	}
	l.Create("others", 1)
	if !s.matches("orders") || s.matches("others") {
		t.Error("a run until current does not keep to the topics of its start")
	}
	if !slices.Equal(s.pipeline.Topics, []string{"orders"}) {
		t.Error(s.pipeline.Topics)
	}
}
