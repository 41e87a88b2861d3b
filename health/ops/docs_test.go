package ops_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// documented returns the rows of the table in docs/health.md whose header begins with the cell head. The key of a row
// is its first cell without backquotes.
func documented(t *testing.T, head string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, in := map[string][]string{}, false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == head:
			in = true
		case len(cells) < 2:
			in = false
		case in && !strings.HasPrefix(cells[0], "---"):
			rows[strings.Trim(cells[0], "`")] = cells[1:]
		}
	}
	if len(rows) == 0 {
		t.Fatalf("no table with %s", head)
	}
	return rows
}

var ticked = regexp.MustCompile("`([a-z_]+)`")

// TestComponentsInDocs: the table of components in docs/health.md has exactly the components and details that responses
// have.
func TestComponentsInDocs(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	got := map[string]map[string]bool{}
	for _, at := range reports {
		c.set(func(c *connector) { c.report = at.report })
		var answer struct {
			Components map[string]struct{ Details map[string]any }
		}
		_, body, _ := request(t, http.MethodGet, base+"/health")
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		for name, component := range answer.Components {
			if got[name] == nil {
				got[name] = map[string]bool{}
			}
			for detail := range component.Details {
				got[name][detail] = true
			}
		}
	}
	rows := documented(t, "component")
	if d := cmp.Diff(slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(got))); d != "" {
		t.Errorf("components (-docs +answers):\n%s", d)
	}
	for name, cells := range rows {
		var details []string
		for _, m := range ticked.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			details = append(details, m[1])
		}
		slices.Sort(details)
		if d := cmp.Diff(details, slices.Sorted(maps.Keys(got[name]))); d != "" {
			t.Errorf("details of %s (-docs +answers):\n%s", name, d)
		}
	}
}

// TestMeterNamesInDocs: for each metric that the docs name with dots, a request for that name finds the metric, and the
// response has the same name.
func TestMeterNamesInDocs(t *testing.T) {
	reg := prometheus.NewRegistry()
	rows := documented(t, "name")
	for _, cells := range rows {
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: strings.Trim(cells[0], "`"), Help: "A metric."}))
	}
	base, _ := startOn(t, &connector{}, reg)
	for name := range rows {
		if code, body, _ := request(t, http.MethodGet, base+"/actuator/metrics/"+name); code != 200 || !strings.Contains(body, `"name": "`+name+`"`) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

// TestPathsInDocs: the server responds to each path that the docs name, and to each that /actuator links.
func TestPathsInDocs(t *testing.T) {
	c := &connector{report: reports[0].report}
	base, _ := startOn(t, c, metered())
	paths := []string{}
	for cell, cells := range documented(t, "path") {
		for _, path := range regexp.MustCompile(`/[a-z/{}]+`).FindAllString(cell, -1) {
			paths = append(paths, strings.NewReplacer("{component}", "kafka", "{name}", "kafka.consumer.lag").Replace(path))
		}
		if len(cells) != 2 {
			t.Errorf("%s: %v", cell, cells)
		}
	}
	var links struct {
		Links map[string]struct{ Href string } `json:"_links"`
	}
	_, body, _ := request(t, http.MethodGet, base+"/actuator")
	if err := json.Unmarshal([]byte(body), &links); err != nil || len(links.Links) < 6 {
		t.Fatal(err, body)
	}
	for _, link := range links.Links {
		paths = append(paths, strings.NewReplacer("{*path}", "kafka", "{requiredMetricName}", "kafka.consumer.lag").Replace(link.Href))
	}
	if len(paths) < 18 {
		t.Errorf("only %d paths: %v", len(paths), paths)
	}
	for _, path := range paths {
		if code, body, _ := request(t, http.MethodGet, base+path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
