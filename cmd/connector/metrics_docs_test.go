package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric is a metric as docs/metrics.md describes it.
type metric struct {
	kind, help string
	labels     []string
}

// metricsOf returns the metrics of a connector, without those of Go and the process.
func metricsOf(t *testing.T, registry *prometheus.Registry) map[string]metric {
	t.Helper()
	described := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(described)
		close(described)
	}()
	form := regexp.MustCompile(`fqName: "([^"]+)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constant := regexp.MustCompile(`([a-z_]+)="`)
	all := map[string]metric{}
	for d := range described {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("unknown form: %s", d)
		}
		var labels []string
		for _, c := range constant.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, c[1])
		}
		if m[4] != "" {
			labels = append(labels, strings.Split(m[4], ",")...)
		}
		slices.Sort(labels)
		kind := "gauge"
		if strings.HasSuffix(m[1], "_total") {
			kind = "counter"
		}
		if before, again := all[m[1]]; again && !slices.Equal(before.labels, labels) {
			t.Errorf("%s has the labels %v and %v", m[1], before.labels, labels)
		}
		all[m[1]] = metric{kind, strings.ReplaceAll(m[2], `\"`, `"`), labels}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		m := all[f.GetName()]
		switch f.GetType() { //nolint:exhaustive // the name shows the rest
		case dto.MetricType_HISTOGRAM:
			m.kind = "histogram"
		case dto.MetricType_GAUGE:
			m.kind = "gauge"
		case dto.MetricType_COUNTER:
			m.kind = "counter"
		}
		all[f.GetName()] = m
	}
	maps.DeleteFunc(all, func(name string, _ metric) bool {
		return regexp.MustCompile(`^(go|process|promhttp)_`).MatchString(name)
	})
	return all
}

var metricName = regexp.MustCompile(`^"((?:sluice|worker|kafka_consumer|consumer)_[a-z0-9_]+)"$`)

// namedMetrics returns the names of metrics in the sources of the product, each with a file in which it occurs. A name
// is the field Name of an options literal, or the first argument of a function that makes metrics.
func namedMetrics(t *testing.T) map[string]string {
	t.Helper()
	makers := []string{"NewDesc", "counter", "gauge", "histogram", "desc"}
	named := map[string]string{}
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == filepath.Join(root, "test") || strings.HasPrefix(d.Name(), ".") && path != root):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		note := func(e ast.Expr) {
			if l, ok := e.(*ast.BasicLit); ok && metricName.MatchString(l.Value) {
				named[metricName.FindStringSubmatch(l.Value)[1]] = path
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Name" {
					note(n.Value)
				}
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				if slices.Contains(makers, name) && len(n.Args) > 0 {
					note(n.Args[0])
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return named
}

// TestMetricsDocs compares docs/metrics.md with the code: each metric with its type, its labels and its meaning.
func TestMetricsDocs(t *testing.T) {
	t.Parallel()
	const (
		page  = "../../docs/metrics.md"
		begin = "<!-- Generated from the code: go test ./cmd/connector -run TestMetricsDocs -update -->\n"
	)
	s, _ := everything(t)
	all := metricsOf(t, s.Registry())
	named := namedMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, ok := all[name]; !ok {
			t.Errorf("%s: no scrape has %s: the connector in metrics_test.go must export it", named[name], name)
		}
	}
	var b strings.Builder
	b.WriteString(begin + "\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, ok := named[name]; !ok {
			t.Errorf("%s is not in the sources as one text, so a search would not find it", name)
		}
		m := all[name]
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, m.kind, strings.Join(labels, ", "), strings.ReplaceAll(m.help, "|", `\|`))
	}
	text := read(t, page)
	before, got, ok := strings.Cut(text, begin)
	if !ok {
		t.Fatalf("%s: the line %s is missing", page, begin)
	}
	got = begin + got
	if *update {
		if err := os.WriteFile(page, []byte(before+b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(b.String(), got); d != "" {
		t.Errorf("docs/metrics.md is not up to date, run with -update (-want +got):\n%s", d)
	}
	for _, m := range regexp.MustCompile("`((?:sluice|worker|kafka_consumer|consumer)_[a-z0-9_]+)").FindAllStringSubmatch(before, -1) {
		if _, ok := all[m[1]]; !ok {
			t.Errorf("the text above the table names %s, which is no metric", m[1])
		}
	}
}
