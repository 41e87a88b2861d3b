package main

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.yaml.in/yaml/v3"

	"sluice/reliability/hold"
)

const (
	alertsFile     = "../../deploy/alerts.yaml"
	alertTestsFile = "../../deploy/alerts_test.yaml"
)

// ruleFile is a Prometheus rule file.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func (f ruleFile) rules(keep func(rule) bool) (all []rule) {
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if keep(r) {
				all = append(all, r)
			}
		}
	}
	return all
}

func (f ruleFile) alerts() []rule   { return f.rules(func(r rule) bool { return r.Alert != "" }) }
func (f ruleFile) recorded() []rule { return f.rules(func(r rule) bool { return r.Record != "" }) }

// strictYAML decodes a YAML file into v and fails the test if the file has a key that v lacks.
func strictYAML(t *testing.T, path string, v any) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader([]byte(read(t, path))))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// known has, for each metric that expressions may use, its labels.
type known map[string][]string

// targetLabels are the labels that Prometheus adds to each scraped series.
var targetLabels = []string{"job", "instance", "namespace", "pod", "container"}

// knownMetrics returns the metrics that expressions may use: those of a connector with all features, those that the
// recording rules make, and a few of other programs.
func knownMetrics(t *testing.T, rules ruleFile) known {
	t.Helper()
	k := known{
		"up":     nil,
		"ALERTS": {"alertname", "alertstate", "severity", "reason"}, // made by Prometheus itself
		"kube_pod_container_status_restarts_total": {"namespace", "pod", "container"}, // exported by kube-state-metrics
	}
	maps.Copy(k, describedMetrics(t))
	for _, r := range rules.recorded() {
		var labels []string
		for _, s := range parseQuery(t, r.Expr).selectors {
			labels = append(labels, k[s.metric]...)
		}
		k[r.Record] = labels
	}
	return k
}

// describedMetrics returns the metrics of a connector with all features.
func describedMetrics(t *testing.T) known {
	t.Helper()
	s, _ := everything(t)
	described := make(chan *prometheus.Desc)
	go func() {
		s.Registry().Describe(described)
		close(described)
	}()
	k := known{}
	text0 := regexp.MustCompile(`fqName: "([^"]+)".* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constant := regexp.MustCompile(`([a-z_]+)="`)
	for d := range described {
		m := text0.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("unknown form: %s", d)
		}
		labels := []string{}
		for _, c := range constant.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, c[1])
		}
		if m[3] != "" {
			labels = append(labels, strings.Split(m[3], ",")...)
		}
		k[m[1]] = append(k[m[1]], labels...)
	}
	return k
}

// labels returns the labels of a metric; ok is false if the metric is not known. The series of a histogram, with
// _bucket, _sum or _count after its name, have the labels of the histogram and le.
func (k known) labels(metric string) ([]string, bool) {
	if labels, ok := k[metric]; ok {
		return labels, true
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if bare, ok := strings.CutSuffix(metric, part); ok {
			labels, ok := k[bare]
			return append(slices.Clone(labels), "le"), ok
		}
	}
	return nil, false
}

// check fails the test for each wrong name in an expression: an unknown metric, label or hold reason, or a metric under
// rate that is not a counter. It returns the labels that the result of the expression may have.
func (k known) check(t *testing.T, where, expr string) (labels []string) {
	t.Helper()
	q := parseQuery(t, expr)
	if len(q.selectors) == 0 {
		t.Errorf("%s: no metric in %s", where, expr)
	}
	labels = slices.Clone(targetLabels)
	for _, s := range q.selectors {
		own, ok := k.labels(s.metric)
		if !ok {
			t.Errorf("%s: no connector has the metric %s", where, s.metric)
		}
		labels = append(labels, own...)
		for _, m := range s.matchers {
			if !slices.Contains(own, m.label) && !slices.Contains(targetLabels, m.label) {
				t.Errorf("%s: %s has no label %s", where, s.metric, m.label)
			}
			if m.label == "reason" && strings.Contains(s.metric, "held") {
				for reason := range strings.SplitSeq(m.value, "|") {
					if !slices.Contains(hold.Reasons(), hold.Reason(reason)) {
						t.Errorf("%s: no hold has the reason %s", where, reason)
					}
				}
			}
		}
	}
	for _, label := range q.lists {
		if !slices.Contains(labels, label) {
			t.Errorf("%s: no metric of it has the label %s", where, label)
		}
	}
	for _, metric := range q.rates {
		if !regexp.MustCompile(`_(total|bucket|sum|count)$`).MatchString(metric) {
			t.Errorf("%s: %s is no counter", where, metric)
		}
	}
	return labels
}

// anchors returns the anchors of a page, as most viewers of Markdown name them.
func anchors(text string) (all []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for row := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(row, "#"), " "); ok && row[0] == '#' {
			all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-"))
		}
	}
	return all
}

// TestMetricNames expects names, units and help texts of metrics to follow Prometheus' conventions.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	s, _ := everything(t)
	families, err := s.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestAlerts compares the alert rules with the code and docs/alerts.md. An expression may only use metrics and labels
// that exist. Each alert must have a description, and a section that says what to look at and what to type. Each hold
// reason must raise an alert.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	k := knownMetrics(t, rules)
	inTemplate := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	documented, q := runbooks(read(t, "../../docs/alerts.md")), newQueries(t)
	seen := map[string]bool{}
	raised := map[string]bool{}
	for _, r := range rules.recorded() {
		k.check(t, r.Record, r.Expr)
	}
	for _, a := range rules.alerts() {
		if seen[a.Alert] {
			t.Errorf("%s is there twice", a.Alert)
		}
		seen[a.Alert] = true
		labels := k.check(t, a.Alert, a.Expr)
		severity := a.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) || len(a.Labels) != 1 {
			t.Errorf("%s: labels %v, want a severity", a.Alert, a.Labels)
		}
		if !strings.HasPrefix(documented[a.Alert].text, "\n`"+severity+"`: ") {
			t.Errorf("%s is %s, its section in docs/alerts.md says %.20q", a.Alert, severity, documented[a.Alert].text)
		}
		checkRunbook(t, a.Alert, documented[a.Alert], q)
		delete(documented, a.Alert)
		if got := slices.Sorted(maps.Keys(a.Annotations)); !slices.Equal(got, []string{"description", "runbook", "summary"}) {
			t.Errorf("%s has the annotations %v", a.Alert, got)
		}
		for name, text := range a.Annotations {
			for _, m := range inTemplate.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: %s names the label %s, which it has not", a.Alert, name, m[1])
				}
			}
		}
		if got, want := a.Annotations["runbook"], "docs/alerts.md#"+strings.ToLower(a.Alert); got != want {
			t.Errorf("%s: runbook is %s, its section is %s", a.Alert, got, want)
		}
		for _, s := range parseQuery(t, a.Expr).selectors {
			for _, m := range s.matchers {
				if m.label == "reason" && strings.Contains(s.metric, "held") && m.op != "!=" && m.op != "!~" {
					for reason := range strings.SplitSeq(m.value, "|") {
						raised[reason] = true
					}
				}
			}
		}
	}
	for name := range documented {
		t.Errorf("docs/alerts.md has %s, which is no alert", name)
	}
	for _, reason := range hold.Reasons() {
		if !raised[string(reason)] {
			t.Errorf("no alert is raised by the hold %s", reason)
		}
	}
}

// ruleTests is a file of promtool test rules.
type ruleTests struct {
	RuleFiles          []string `yaml:"rule_files"`
	EvaluationInterval string   `yaml:"evaluation_interval"`
	Tests              []ruleTest
}

type ruleTest struct {
	Name        string
	Interval    string
	InputSeries []struct{ Series, Values string } `yaml:"input_series"`
	Alerts      []struct {
		Name string `yaml:"alertname"`
		At   string `yaml:"eval_time"`
		Want []struct {
			Labels      map[string]string `yaml:"exp_labels"`
			Annotations map[string]string `yaml:"exp_annotations"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// TestAlertTests expects for each alert a test in which it fires, and one in which its metrics exist but it does not
// fire.
func TestAlertTests(t *testing.T) {
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	var tests ruleTests
	strictYAML(t, alertTestsFile, &tests)
	made := map[string][]string{} // maps each recorded metric to the metrics from which it is computed
	for _, r := range rules.recorded() {
		for _, s := range parseQuery(t, r.Expr).selectors {
			made[r.Record] = append(append(made[r.Record], s.metric), made[s.metric]...)
		}
	}
	needs := map[string][]string{}
	for _, a := range rules.alerts() {
		for _, s := range parseQuery(t, a.Expr).selectors {
			needs[a.Alert] = append(append(needs[a.Alert], s.metric), made[s.metric]...)
		}
	}
	raised, silent, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		if test.Name == "" || names[test.Name] {
			t.Errorf("a test needs a name of its own, %q is none", test.Name)
		}
		names[test.Name] = true
		for _, a := range test.Alerts {
			if needs[a.Name] == nil {
				t.Errorf("%s: there is no alert %s", test.Name, a.Name)
			}
			if len(a.Want) > 0 {
				raised[a.Name] = true
				continue
			}
			for _, in := range test.InputSeries {
				if slices.Contains(needs[a.Name], promWord.FindString(in.Series)) {
					silent[a.Name] = true
				}
			}
		}
	}
	for _, a := range rules.alerts() {
		if !raised[a.Alert] {
			t.Errorf("no test raises %s", a.Alert)
		}
		if !silent[a.Alert] {
			t.Errorf("no test has the metrics of %s and no alert", a.Alert)
		}
	}
}
