package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const dashboardFile = "../../deploy/grafana/sluice.json"

// dashboard has the parts of a Grafana dashboard that the tests check.
type dashboard struct {
	SchemaVersion int
	Title, UID    string
	Panels        []dashboardPanel
	Templating    struct{ List []dashboardVariable }
	Annotations   struct{ List []dashboardAnnotation }
}

type dashboardVariable struct {
	Name, Type, AllValue string
	IncludeAll, Multi    bool
	Query                json.RawMessage // the query as a string, or an object with the field query
}

type dashboardAnnotation struct {
	Name, Expr, TitleFormat, TextFormat, TagKeys string
	Enable                                       bool
	BuiltIn                                      int
	Datasource                                   struct{ Type, UID string }
}

type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               struct{ Type, UID string }
	Targets                  []struct {
		Expr, RefID, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	labelValues   = regexp.MustCompile(`label_values\((.*), ([a-z_]+)\)`)
	legendLabel   = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	grafanaInText = regexp.MustCompile(`\$\{?([a-z_]+)`)
)

// values returns the query from which a variable gets its values, and the label that has these values.
func (v *dashboardVariable) values(t *testing.T) (query, label string) {
	t.Helper()
	m := labelValues.FindStringSubmatch(strings.ReplaceAll(string(v.Query), `\"`, `"`))
	if m == nil {
		t.Fatalf("variable %s asks for %s", v.Name, v.Query)
	}
	return m[1], m[2]
}

// TestDashboard compares the dashboard with the code: a connector must have each metric and label, and each panel must
// have what Grafana needs to show it.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.SchemaVersion < 39 || d.Title == "" || d.UID == "" {
		t.Errorf("schema %d, title %q, uid %q", d.SchemaVersion, d.Title, d.UID)
	}
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	k := knownMetrics(t, rules)
	sources := map[string]string{} // the query of each variable, by its name
	variables := []string{"__rate_interval", "__all"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		switch v.Type {
		case "datasource":
			var kind string
			if err := json.Unmarshal(v.Query, &kind); err != nil {
				t.Fatal(err)
			}
			sources["${"+v.Name+"}"] = kind
		case "query":
			if query, label := v.values(t); !slices.Contains(k.check(t, "variable "+v.Name, query), label) {
				t.Errorf("variable %s: no label %s", v.Name, label)
			}
		}
	}
	for _, m := range grafanaInText.FindAllStringSubmatch(read(t, dashboardFile), -1) {
		if !slices.Contains(variables, m[1]) {
			t.Errorf("there is no variable %s", m[1])
		}
	}
	for _, m := range []string{"namespace", "group", "topic", "datasource"} {
		if !slices.Contains(variables, m) {
			t.Errorf("there is no variable %s", m)
		}
	}

	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	lines := spokenLines(t)
	said := regexp.MustCompile(`\|=? ?"([^"]+)"|\|~ "([^"]+)"`)
	for _, p := range d.Panels {
		where := fmt.Sprintf("panel %q", p.Title)
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: its id %d has to be its own", where, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s lies beside the grid: %+v", where, g)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok {
					t.Fatalf("%s lies over %q", where, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if titles[p.Title] || p.Title == "" {
			t.Errorf("%s: its title has to be its own", where)
		}
		titles[p.Title] = true
		if p.Description == "" || len(p.Targets) == 0 || sources[p.Datasource.UID] != p.Datasource.Type {
			t.Errorf("%s: description %q, %d targets, datasource %v", where, p.Description, len(p.Targets), p.Datasource)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" || target.Datasource != p.Datasource {
				t.Errorf("%s: target %q of %v", where, target.RefID, target.Datasource)
			}
			refs[target.RefID] = true
			if target.Datasource.Type == "loki" {
				for _, m := range said.FindAllStringSubmatch(target.Expr, -1) {
					for word := range strings.SplitSeq(m[1]+m[2], "|") {
						if !slices.ContainsFunc(slices.Collect(maps.Keys(lines)), func(msg string) bool { return strings.Contains(msg, word) }) {
							t.Errorf("%s: no line says %q", where, word)
						}
					}
				}
				continue
			}
			labels := k.check(t, where, target.Expr)
			if by := parseQuery(t, target.Expr).by; len(by) > 0 {
				labels = by[0].labels
			}
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: its legend names the label %s, which is not left of %s", where, m[1], target.Expr)
				}
			}
		}
	}
	for _, title := range []string{"Total Consumer Lag", "Health Status", "Per-Partition Lag", "Backpressure Events", "Pod Restarts"} {
		if !titles[title] {
			t.Errorf("there is no panel %q", title)
		}
	}
}

// TestDashboard_Namespace expects each query to filter by the variable namespace. The choice All of that variable must
// have the value ".*", which also matches series without the label namespace. A list of all namespaces would not.
func TestDashboard_Namespace(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	const matcher = `namespace=~"$namespace"`
	for _, v := range d.Templating.List {
		switch {
		case v.Name == "namespace":
			if query, label := v.values(t); query != "kafka_consumer_healthy" || label != "namespace" {
				t.Errorf("variable namespace has the values of %s in %s", label, query)
			}
			if !v.IncludeAll || v.AllValue != ".*" || !v.Multi {
				t.Errorf("variable namespace: include all %t, the value of all %q, several at a time %t", v.IncludeAll, v.AllValue, v.Multi)
			}
		case v.Type == "query":
			if query, _ := v.values(t); !strings.Contains(query, matcher) {
				t.Errorf("variable %s has values of all namespaces: %s", v.Name, query)
			}
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if got, want := strings.Count(target.Expr, matcher), strings.Count(target.Expr, "{"); got != want || want == 0 {
				t.Errorf("panel %q filters %d of %d selectors by namespace: %s", p.Title, got, want, target.Expr)
			}
		}
	}
}

// TestDashboard_Alerts expects annotations to show each alert of the rules while it fires, and only labels that alerts
// have.
func TestDashboard_Alerts(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	at := slices.IndexFunc(d.Annotations.List, func(a dashboardAnnotation) bool { return a.BuiltIn == 0 })
	if at < 0 {
		t.Fatal("there are no annotations of alerts")
	}
	a := d.Annotations.List[at]
	if a.Datasource.Type != "prometheus" || a.Datasource.UID != "${datasource}" || !a.Enable {
		t.Errorf("annotations %q are enabled: %t, of %v", a.Name, a.Enable, a.Datasource)
	}
	k := knownMetrics(t, rules)
	k.check(t, "annotations "+a.Name, a.Expr)
	q := parseQuery(t, a.Expr)
	if len(q.selectors) != 1 || q.selectors[0].metric != "ALERTS" {
		t.Fatalf("annotations %q show %s", a.Name, a.Expr)
	}
	matchers := map[string]string{}
	for _, m := range q.selectors[0].matchers {
		matchers[m.label] = m.op + m.value
	}
	names := matchers["alertname"]
	delete(matchers, "alertname")
	// The alert that fires when Prometheus scrapes no member has no target labels, so the matchers must accept series
	// without them.
	if d := cmp.Diff(map[string]string{"alertstate": "=firing", "namespace": "=~$namespace|", "job": "=~$job|"}, matchers); d != "" {
		t.Errorf("annotations %q (-want +got):\n%s", a.Name, d)
	}
	name := regexp.MustCompile("^(?:" + strings.TrimPrefix(names, "=~") + ")$")
	labels := []string{"alertname", "severity"}
	for _, alert := range rules.alerts() {
		if !name.MatchString(alert.Alert) {
			t.Errorf("annotations %q leave out %s: %s", a.Name, alert.Alert, a.Expr)
		}
		labels = append(labels, k.check(t, alert.Alert, alert.Expr)...)
	}
	shown := strings.Split(a.TagKeys, ",")
	for _, m := range legendLabel.FindAllStringSubmatch(a.TitleFormat+a.TextFormat, -1) {
		shown = append(shown, m[1])
	}
	for _, label := range shown {
		if !slices.Contains(labels, label) {
			t.Errorf("annotations %q show the label %s, which no alert has", a.Name, label)
		}
	}
	if !slices.Contains(shown, "alertname") {
		t.Errorf("annotations %q do not show which alert it is", a.Name)
	}
}

// externalMetrics are the metrics of the dashboard that other programs export.
var externalMetrics = []string{"kube_pod_container_status_restarts_total"} // kube-state-metrics

// samples has the labels of each sample of a scrape, by metric.
type samples map[string][]map[string]string

func parseScrape(t *testing.T, text string) samples {
	t.Helper()
	all := samples{}
	for _, s := range series(text) {
		metric, rest, _ := strings.Cut(s, "{")
		labels := map[string]string{}
		for m := promMatcher.FindStringSubmatch(rest); m != nil; m = promMatcher.FindStringSubmatch(rest) {
			labels[m[1]] = strings.Trim(m[3], `"`)
			rest = rest[len(m[0]):]
		}
		if rest != "" && rest != "}" {
			t.Fatalf("unknown form: %s", s)
		}
		all[metric] = append(all[metric], labels)
	}
	return all
}

// missing returns the names in a query that the scrape lacks: metrics, labels that the query filters or groups by, and
// label values of its matchers. It ignores labels that Prometheus adds, and metrics of other programs.
func (all samples) missing(q promQuery) (missing []string) {
	label := func(metric, label string) {
		if of := all[metric]; len(of) > 0 && !slices.Contains(targetLabels, label) && !slices.Contains(externalMetrics, metric) &&
			slices.ContainsFunc(of, func(labels map[string]string) bool { _, ok := labels[label]; return !ok }) {
			missing = append(missing, metric+" has no label "+label)
		}
	}
	for _, s := range q.selectors {
		for _, m := range s.matchers {
			label(s.metric, m.label)
		}
		switch of := all[s.metric]; {
		case slices.Contains(externalMetrics, s.metric):
		case len(of) == 0:
			missing = append(missing, "no sample of "+s.metric)
		case !slices.ContainsFunc(of, s.matches):
			missing = append(missing, fmt.Sprintf("no sample of %s matches %v", s.metric, s.matchers))
		}
	}
	for _, by := range q.by {
		for _, l := range by.labels {
			for _, s := range by.of {
				label(s.metric, l)
			}
		}
	}
	return missing
}

// matches reports whether a sample with these labels passes the selector's matchers. It ignores matchers with a Grafana
// variable and those of labels that Prometheus adds.
func (s promSelector) matches(labels map[string]string) bool {
	for _, m := range s.matchers {
		if strings.Contains(m.value, "$") || slices.Contains(targetLabels, m.label) {
			continue
		}
		equal := labels[m.label] == m.value
		if strings.HasSuffix(m.op, "~") {
			equal = regexp.MustCompile("^(?:" + m.value + ")$").MatchString(labels[m.label])
		}
		if equal == strings.HasPrefix(m.op, "!") {
			return false
		}
	}
	return true
}

// troubled returns the scrape of a member after all events that the dashboard shows: rows, duplicates, dead letters, a
// missing topic, a rebalance, and a broken connection.
func troubled(t *testing.T) samples {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("redis://"+miniredis.RunT(t).Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLake(t, `
defaults: {schema: "n int", commit: {every: 100ms}, identity: {by: "field:n"}}
topics: {orders: {lag: {warning: 100, critical: 500}}, late: {}, gone: {}}
members: {store: redis, url_file: "`+filepath.ToSlash(file)+`", beat: 1s, ttl: 10s}`)
	withProbes(t, l, "canary: {topic: p-canary}", "lag: {every: 1s}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	more := []*kgo.Record{{Topic: "orders", Value: []byte(`{"n":2}`)}, {Topic: "orders", Value: []byte("no JSON")}}
	if err := l.Client.ProduceSync(t.Context(), more...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	logger, out := newLogged(t)
	l.Logger = logger
	s := l.start()
	l.Awaits("orders", map[string][]int64{"orders:0": {0, 3}})
	l.Create("late", 1)
	l.Produce("late", 1, 0)
	l.Awaits("late", map[string][]int64{"late:0": {0}})
	var failing atomic.Bool
	failing.Store(true)
	l.Broker.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !failing.Load() {
			return nil, nil, false
		}
		l.Broker.KeepControl()
		return nil, errors.New("the test ends the connection"), true
	})
	for _, metric := range []string{"sluice_fetch_errors_total", "sluice_member_beats_total"} {
		l.Await(metric, func() bool { return sumOf(t, s, metric) > 0 })
	}
	failing.Store(false)
	var all samples
	l.Await("the scrape has what the member finds out now and then", func() bool {
		all = parseScrape(t, scrape(t, out))
		return len(all["sluice_partition_verdict"]) > 0 && len(all["sluice_partition_held"]) > 0 && len(all["sluice_seconds_to_data_loss"]) > 0
	})
	return all
}

// TestDashboard_Scrape expects a member to export each metric that a panel or a variable shows, with each label that
// the query filters or groups by, and with the values that it filters for.
func TestDashboard_Scrape(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	all := troubled(t)
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			query, label := v.values(t)
			for _, what := range all.missing(parseQuery(t, fmt.Sprintf("group by (%s) (%s)", label, query))) {
				t.Errorf("variable %s: %s", v.Name, what)
			}
		}
	}
	checked := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if target.Datasource.Type != "prometheus" {
				continue
			}
			checked++
			for _, what := range all.missing(parseQuery(t, target.Expr)) {
				t.Errorf("panel %q, query %s: %s", p.Title, target.RefID, what)
			}
		}
	}
	if checked < 60 {
		t.Errorf("%d queries are checked, want those of all panels", checked)
	}
}

// TestSamples_Missing expects missing to find the names that a scrape lacks.
func TestSamples_Missing(t *testing.T) {
	t.Parallel()
	all := parseScrape(t, `# TYPE a_total counter
a_total{result="ok",topic="x, \"y\""} 1
a_total{result="failed",topic="z"} 0
b 7
`)
	for query, want := range map[string][]string{
		`sum by (topic, namespace) (rate(a_total{result="ok", namespace=~"$namespace", topic=~"$topic"}[5m]))`: nil,
		`max by (pod) (b{job=~"$job"}) + on (instance) kube_pod_container_status_restarts_total{uid="1"}`:      nil,
		`c_total`:                      {"no sample of c_total"},
		`sum by (table) (a_total)`:     {"a_total has no label table"},
		`a_total{table=~"$table"}`:     {"a_total has no label table"},
		`a_total{result="won"}`:        {"no sample of a_total matches [{result = won}]"},
		`a_total{result!~"ok|failed"}`: {"no sample of a_total matches [{result !~ ok|failed}]"},
		`count(max by (result) (a_total)) / sum by (result) (b)`: {"b has no label result"},
		`count(max by (result) (a_total)) / sum by (job) (b)`:    nil,
	} {
		if d := cmp.Diff(want, all.missing(parseQuery(t, query))); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
}
