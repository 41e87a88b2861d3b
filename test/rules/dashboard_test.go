//go:build lab

package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// dashboardQuery is a Prometheus query of the dashboard, with its variables.
type dashboardQuery struct{ panel, ref, expr string }

// dashboardQueries returns the queries of all panels and annotations.
func dashboardQueries(t *testing.T) (all []dashboardQuery) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(t), "grafana", "sluice.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct {
				Expr, RefID string
				Datasource  struct{ Type string }
			}
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			if q.Datasource.Type == "prometheus" {
				all = append(all, dashboardQuery{p.Title, q.RefID, q.Expr})
			}
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			all = append(all, dashboardQuery{panel: a.Name, expr: a.Expr})
		}
	}
	return all
}

// in returns the query as Grafana sends it if a user selects namespace in the variable $namespace and all values in
// every other variable.
func (q dashboardQuery) in(namespace string) string {
	return strings.NewReplacer("$namespace", namespace, "$__rate_interval", "5m", "$job", "(sluice)", "$pod", "(a|b)", "$group", ".*", "$topic", ".*").Replace(q.expr)
}

// TestDashboardQueries expects promtool to parse each query of the dashboard.
func TestDashboardQueries(t *testing.T) {
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	type group struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	var g group
	g.Name = "dashboard"
	for i, q := range dashboardQueries(t) {
		expr := q.in(".*")
		if strings.Contains(expr, "$") {
			t.Errorf("panel %q, query %s: a variable is left: %s", q.panel, q.ref, expr)
		}
		g.Rules = append(g.Rules, rule{fmt.Sprintf("query:%d", i), expr})
	}
	text, err := yaml.Marshal(map[string][]group{"groups": {g}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, ok := promtool(t, "check", "rules", "--lint=none", path); !ok || !strings.Contains(out, fmt.Sprintf("%d rules found", len(g.Rules))) {
		t.Error(out)
	}
}

// TestDashboardValues evaluates queries of the dashboard over given series: of two members that export the same thing,
// and of pipelines in two namespaces. Each query must return the given samples, so that a thing that two members export
// counts once.
func TestDashboardValues(t *testing.T) {
	type want struct {
		panel, ref, namespace string
		samples               []promtoolSample
	}
	for _, c := range []struct {
		name   string
		series []string // the series that the query must return, each with its value at minute 10
		wants  []want
	}{
		{"both members export the hold of a topic, which counts once", []string{
			`sluice_partition_held{job="sluice", instance="a", topic="gone", partition="-1", reason="topic_missing"} 1`,
			`sluice_partition_held{job="sluice", instance="b", topic="gone", partition="-1", reason="topic_missing"} 1`,
			`sluice_partition_held{job="sluice", instance="a", topic="orders", partition="0", reason="poison"} 1`,
			`sluice_partition_held{job="sluice", instance="b", topic="orders", partition="1", reason="poison"} 1`,
			`sluice_held_partitions{job="sluice", instance="a", reason="topic_missing"} 1`,
			`sluice_held_partitions{job="sluice", instance="b", reason="topic_missing"} 1`,
		}, []want{
			{"Held partitions", "A", ".*", []promtoolSample{{"{}", 3}}},
			{"Held partitions by reason", "A", ".*", []promtoolSample{{`{reason="topic_missing"}`, 1}, {`{reason="poison"}`, 2}}},
			{"Holds", "A", ".*", []promtoolSample{
				{`{topic="gone", partition="-1", reason="topic_missing"}`, 1},
				{`{topic="orders", partition="0", reason="poison"}`, 1},
				{`{topic="orders", partition="1", reason="poison"}`, 1},
			}},
		}},
		{"without a hold the count is 0, without a member nothing", []string{
			`sluice_held_partitions{job="sluice", namespace="here", instance="a", reason="poison"} 0`,
			`sluice_held_partitions{job="sluice", namespace="here", instance="b", reason="poison"} 0`,
		}, []want{{"Held partitions", "A", "(here)", []promtoolSample{{"{}", 0}}}, {"Held partitions", "A", "(there)", nil}}},
		{"each member has its own age, and the newest beat counts", []string{
			`worker_heartbeat_timestamp{job="sluice", instance="a", consumer_id="a-1"} 598`,
			`worker_heartbeat_timestamp{job="sluice", instance="b", consumer_id="a-1"} 590`,
			`worker_heartbeat_timestamp{job="sluice", instance="a", consumer_id="b-1"} 300`,
			`worker_heartbeat_timestamp{job="sluice", instance="b", consumer_id="b-1"} 300`,
			`consumer_heartbeat_age{job="sluice", instance="a", consumer_id="a-1"} 2`,
			`consumer_heartbeat_age{job="sluice", instance="b", consumer_id="a-1"} 10`,
			`consumer_heartbeat_age{job="sluice", instance="a", consumer_id="b-1"} 300`,
			`consumer_heartbeat_age{job="sluice", instance="b", consumer_id="b-1"} 300`,
		}, []want{
			{"Age of heartbeats", "A", ".*", []promtoolSample{{`{consumer_id="a-1"}`, 2}, {`{consumer_id="b-1"}`, 300}}},
			{"Age of heartbeats", "B", ".*", []promtoolSample{{`{consumer_id="a-1"}`, 2}, {`{consumer_id="b-1"}`, 300}}},
		}},
		{"series without a namespace", []string{
			`kafka_consumer_total_lag{job="sluice", instance="a", group="p"} 5`,
			`kafka_consumer_total_lag{job="sluice", instance="b", group="p"} 7`,
		}, []want{
			{"Total Consumer Lag", "A", ".*", []promtoolSample{{`{group="p"}`, 12}}},
			{"Total Consumer Lag", "A", "(here)", nil},
		}},
		{"two pipelines of one name in two namespaces", []string{
			`kafka_consumer_lag{job="sluice", namespace="here", instance="a", group="p", topic="orders", partition="0"} 5`,
			`kafka_consumer_lag{job="sluice", namespace="there", instance="b", group="p", topic="orders", partition="0"} 7`,
			`sluice_adjusted_lag_records{job="sluice", namespace="here", instance="a", group="p", topic="orders", partition="0"} 5`,
			`sluice_adjusted_lag_records{job="sluice", namespace="there", instance="b", group="p", topic="orders", partition="0"} 7`,
			`sluice_partition_held{job="sluice", namespace="here", instance="a", topic="orders", partition="0", reason="poison"} 1`,
			`sluice_partition_held{job="sluice", namespace="there", instance="b", topic="orders", partition="0", reason="poison"} 1`,
			`sluice_unresolved_dead_letters{job="sluice", namespace="here", instance="a", topic="orders", class="poison"} 1`,
			`sluice_unresolved_dead_letters{job="sluice", namespace="there", instance="b", topic="orders", class="poison"} 2`,
			`sluice_unresolved_dead_letters{job="sluice", namespace="there", instance="c", topic="orders", class="poison"} 2`,
			`sluice_partition_verdict{job="sluice", namespace="here", instance="a", topic="orders", partition="0", verdict="OK"} 1`,
			`sluice_partition_verdict{job="sluice", namespace="there", instance="b", topic="orders", partition="0", verdict="OK"} 1`,
		}, []want{
			{"Per-Partition Lag", "A", "(there)", []promtoolSample{{`{namespace="there", group="p", topic="orders", partition="0"}`, 7}}},
			{"Adjusted lag and thresholds", "A", "(here)", []promtoolSample{{`{topic="orders"}`, 5}}},
			{"Adjusted lag and thresholds", "A", ".*", []promtoolSample{{`{topic="orders"}`, 12}}},
			{"Held partitions", "A", "(here|there)", []promtoolSample{{"{}", 2}}},
			{"Unresolved dead letters", "A", ".*", []promtoolSample{{"{}", 3}}},
			{"Unresolved letters", "A", ".*", []promtoolSample{{`{topic="orders", class="poison"}`, 3}}},
			{"Verdicts", "A", ".*", []promtoolSample{{`{verdict="OK"}`, 2}}},
		}},
		{"alerts with and without a namespace", []string{
			`ALERTS{alertname="SluiceStale", alertstate="firing", job="sluice", namespace="here", topic="orders"} 1`,
			`ALERTS{alertname="SluiceStale", alertstate="firing", job="sluice", namespace="there", topic="orders"} 1`,
			`ALERTS{alertname="SluiceStale", alertstate="pending", job="sluice", namespace="here", topic="users"} 1`,
			`ALERTS{alertname="SluiceGroupGone", alertstate="firing"} 1`,
			`ALERTS{alertname="SluiceStale", alertstate="firing", job="other", namespace="here"} 1`,
			`ALERTS{alertname="DiskFull", alertstate="firing", job="sluice", namespace="here"} 1`,
		}, []want{{"Alerts", "", "(here)", []promtoolSample{
			{`ALERTS{alertname="SluiceStale", alertstate="firing", job="sluice", namespace="here", topic="orders"}`, 1},
			{`ALERTS{alertname="SluiceGroupGone", alertstate="firing"}`, 1},
		}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			test := promtoolTest{Name: c.name, Interval: "1m"}
			for _, s := range c.series {
				at := strings.LastIndex(s, " ")
				test.Series = append(test.Series, promtoolSeries{s[:at], s[at+1:] + "x15"})
			}
			for _, w := range c.wants {
				found := false
				for _, q := range dashboardQueries(t) {
					if q.panel == w.panel && q.ref == w.ref {
						found = true
						test.Queries = append(test.Queries, promtoolQuery{Expr: q.in(w.namespace), At: "10m", Samples: w.samples})
					}
				}
				if !found {
					t.Errorf("panel %q has no query %s", w.panel, w.ref)
				}
			}
			text, err := yaml.Marshal(promtoolFile{Interval: "1m", Tests: []promtoolTest{test}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "dashboard.yaml")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, ok := promtool(t, "test", "rules", path); !ok {
				t.Error(out)
			}
		})
	}
}
