//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// growingTable is a table that gets a column with each member that is killed.
type growingTable struct {
	*scene
	client *kgo.Client
	// own returns the keys of the topic's entry for a member whose records have these columns beside id.
	own     func(columns []string) string
	columns []string
	rows    []map[string]any
	killed  map[string]int // how often a member was killed at a request, by its kind
}

// TestKilledWhileAddingColumn kills members at each request to the store of a commit that adds a column. A request that
// writes takes effect after the kill, or never. The next member must add the column once, with every row once.
func TestKilledWhileAddingColumn(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(columns []string) string{
		"Declared": func(columns []string) string {
			ddl := "id bigint"
			for _, c := range columns {
				ddl += ", " + c + " string"
			}
			return fmt.Sprintf("schema: %q", ddl)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &growingTable{scene: newScene(t, 1), own: own, killed: map[string]int{}}
			var err error
			if g.client, err = kgo.NewClient(kgo.SeedBrokers(g.addrs...)); err != nil {
				t.Fatal(err)
			}
			defer g.client.Close()
			g.add(1)
			g.restart()
			const most = 50
			n := 1
			for ; n <= most; n++ {
				method := g.killedAt(n, false)
				if method == "" {
					break
				}
				if method != http.MethodGet && method != http.MethodHead {
					g.killedAt(n, true)
				}
			}
			t.Logf("killed at %v", g.killed)
			if n > most || g.killed["PUT data file"] < 2 || g.killed["PUT version"] < 2 {
				t.Errorf("killed at %v; want each request of a commit", g.killed)
			}
			g.checkReaders()
		})
	}
}

// add produces n records that have a value in each column.
func (g *growingTable) add(n int) {
	g.t.Helper()
	var records []*kgo.Record
	for range n {
		row := map[string]any{"id": float64(len(g.rows))}
		for _, c := range g.columns {
			row[c] = fmt.Sprintf("%s of %d", c, len(g.rows))
		}
		value, err := json.Marshal(row)
		if err != nil {
			g.t.Fatal(err)
		}
		records = append(records, &kgo.Record{Topic: g.name, Value: value})
		g.rows = append(g.rows, row)
	}
	if err := g.client.ProduceSync(g.ctx, records...).FirstErr(); err != nil {
		g.t.Fatal(err)
	}
}

// settings configures a member for the columns. It has a group of its own, so that it need not wait until the session of
// the killed member ends; the positions are those of the table.
func (g *growingTable) settings(c *settings) {
	c.own, c.group = g.own(g.columns), fmt.Sprintf("%s-%d", g.name, g.members)
}

// killedAt starts a member whose records have a new column, and kills it at its n-th request to the table after it became
// idle. The request takes effect after the kill if takeEffect is true, and otherwise never. It returns the method of the
// request, "" if the commit has fewer requests. Then the next member continues.
func (g *growingTable) killedAt(n int, takeEffect bool) (method string) {
	g.t.Helper()
	proxy := g.proxy()
	m := g.start(through(proxy), func(c *settings) {
		g.columns = append(g.columns, fmt.Sprint("c", len(g.columns)))
		g.settings(c)
	})
	m.awaitReady()
	seen, kind, key := 0, "", ""
	fault := proxy.Break(func(r *http.Request) bool {
		at, of := strings.CutPrefix(r.URL.Path, "/"+g.bucket.Name+"/"+g.log.Table+"/")
		if !of && !strings.HasPrefix(r.URL.Query().Get("prefix"), g.log.Table+"/") {
			return false
		}
		if seen++; seen != n {
			return false
		}
		method, key, kind = r.Method, g.log.Table+"/"+at, r.Method+" "+kindOf(at)
		return true
	}, 1, lab.Hold)
	g.add(3)
	hit := false
	g.await("a member is at the request, or has committed", func() (bool, error) {
		if hit = proxy.Left(fault) == 0; hit {
			return true, nil
		}
		commits, err := g.log.Read(g.ctx)
		return tablelog.Positions(commits)[0] == int64(len(g.rows)), err
	})
	m.kill()
	fault.Release(takeEffect)
	if !hit {
		g.restart()
		return ""
	}
	g.killed[kind]++
	g.t.Logf("%s was killed at request %d, %s (%s); it takes effect: %v", m.Name, n, kind, key, takeEffect)
	if takeEffect && method == http.MethodPut {
		g.await("the request has taken effect", func() (bool, error) {
			keys, err := g.bucket.List(g.ctx, key)
			return len(keys) > 0, err
		})
	}
	g.restart()
	return method
}

// kindOf returns what an object of a table is.
func kindOf(key string) string {
	switch {
	case key == "":
		return "list"
	case !strings.HasPrefix(key, "_delta_log/"):
		return "data file"
	case strings.HasSuffix(key, ".json"):
		return "version"
	}
	return strings.TrimPrefix(key, "_delta_log/")
}

// restart runs a member until it is current. Then the table must have every column and every record once, and each
// version that has a new column must have the rows for it.
func (g *growingTable) restart() {
	g.t.Helper()
	g.untilCurrent(g.settings)
	commits, names := g.commits(), []string{}
	for _, c := range commits {
		if c.Schema == "" {
			continue
		}
		var s struct{ Fields []struct{ Name string } }
		if err := json.Unmarshal([]byte(c.Schema), &s); err != nil {
			g.t.Fatal(err)
		}
		names = names[:0]
		for _, f := range s.Fields {
			if !strings.HasPrefix(f.Name, "_kafka_") {
				names = append(names, f.Name)
			}
		}
		if len(names) > 1 && c.Rows() == 0 {
			g.t.Errorf("version %d has the columns %q and no rows", c.Version, names)
		}
	}
	if d := cmp.Diff(append([]string{"id"}, g.columns...), names); d != "" {
		g.t.Errorf("columns (-want +got):\n%s", d)
	}
	if n, next := tablelog.Rows(commits), tablelog.Positions(commits)[0]; n != int64(len(g.rows)) || next != n {
		g.t.Errorf("%d rows up to position %d, want %d", n, next, len(g.rows))
	}
}

// checkReaders fails the test unless independent readers see the rows with the values that were produced.
func (g *growingTable) checkReaders() {
	g.t.Helper()
	python, err := lab.StartPython(g.ctx, "oracle/evolve.py", g.tableURL(g.name), "--endpoint", g.minio.Endpoint)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = python.Close() }() // after a failure it is an error that the failure explains
	for _, reader := range []string{"deltalake", "duckdb", "polars"} {
		out, err := python.Ask(map[string]string{"read": reader})
		if err != nil {
			g.t.Fatal(err)
		}
		var got []map[string]any
		for line := range strings.Lines(string(out)) {
			var row map[string]any
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				g.t.Fatalf("%s: %v: %s", reader, err, line)
			}
			got = append(got, row)
		}
		slices.SortFunc(got, func(a, b map[string]any) int { return int(a["id"].(float64) - b["id"].(float64)) })
		if d := cmp.Diff(g.rows, got); d != "" {
			g.t.Errorf("%s (-want +got):\n%s", reader, d)
		}
	}
}
