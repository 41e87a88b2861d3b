package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is a dashboard of Grafana as far as the tests ask.
type dashboard struct {
	SchemaVersion int
	Title, UID    string
	Panels        []dashboardPanel
	Templating    struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage // a text, or an object with one
		}
	}
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

// TestDashboard holds the dashboard to the code: each metric and label is one that a connector has, and Grafana can show it.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/grafana/sluice.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.SchemaVersion < 39 || d.Title == "" || d.UID == "" {
		t.Errorf("schema %d, title %q, uid %q", d.SchemaVersion, d.Title, d.UID)
	}
	var rules ruleFile
	strictYAML(t, alertsFile, &rules)
	k := knownMetrics(t, rules)
	sources := map[string]string{} // by name of the variable
	variables := []string{"__rate_interval", "__all"}
	values := regexp.MustCompile(`label_values\((.*), ([a-z_]+)\)`)
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
			m := values.FindStringSubmatch(strings.ReplaceAll(string(v.Query), `\"`, `"`))
			if m == nil {
				t.Fatalf("variable %s asks for %s", v.Name, v.Query)
			}
			if !slices.Contains(k.check(t, "variable "+v.Name, m[1]), m[2]) {
				t.Errorf("variable %s: no label %s", v.Name, m[2])
			}
		}
	}
	used := regexp.MustCompile(`\$\{?([a-z_]+)`)
	for _, m := range used.FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(variables, m[1]) {
			t.Errorf("there is no variable %s", m[1])
		}
	}
	for _, m := range []string{"group", "topic", "datasource"} {
		if !slices.Contains(variables, m) {
			t.Errorf("there is no variable %s", m)
		}
	}

	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	lines := spokenLines(t)
	said := regexp.MustCompile(`\|=? ?"([^"]+)"|\|~ "([^"]+)"`)
	inLegend := regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
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
			for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: its legend names the label %s, which it has not", where, m[1])
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
