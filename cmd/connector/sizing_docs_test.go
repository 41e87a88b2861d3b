package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/laketest"
)

// TestSizing_Requests counts the requests to the store that forty commits of one row each need, and compares them with
// docs/sizing.md.
func TestSizing_Requests(t *testing.T) {
	const commits = 40
	l := newLake(t, `defaults: {schema: "n int", commit: {every: 100ms}}
topics: {orders: {}}`)
	l.listens()
	logger, out := newLogged(t)
	l.Logger = logger
	l.Create("orders", 1)
	l.Produce("orders", 1, 0)
	l.start()
	l.Awaits("orders", laketest.UpTo(1, "orders:0"))
	began := requests(t, scrape(t, out))
	for range commits {
		n := len(out.Lines(t, "committed"))
		l.Produce("orders", 1, 0)
		l.Await("the next commit", func() bool { return len(out.Lines(t, "committed")) > n })
	}
	ended := requests(t, scrape(t, out))
	page := read(t, "../../docs/sizing.md")
	for op, title := range map[string]string{"put": "PUT of data files", "put-if-absent": "PUT of log entries, only if absent"} {
		said, n := number(t, page, title), (ended[op]-began[op])/commits
		if math.Abs(n-said) > 0.051 { // the last checkpoint may be under way
			t.Errorf("%s: %.2f per commit, the page says %v", op, n, said)
		}
	}
	t.Logf("GET and HEAD: %.2f per commit, polls by the clock included", (ended["get"]+ended["head"]-began["get"]-began["head"])/commits)
}

// number returns the number in the second cell of a row of a page.
func number(t *testing.T, page, first string) float64 {
	t.Helper()
	_, rest, found := strings.Cut(page, "| "+first+" | ")
	cell, _, _ := strings.Cut(rest, " |")
	n, err := strconv.ParseFloat(cell, 64)
	if !found || err != nil {
		t.Fatalf("no number after %s: %v", first, err)
	}
	return n
}

// TestSizing_Table computes the table of commit intervals in docs/sizing.md from the requests of a commit.
func TestSizing_Table(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/sizing.md")
	puts := number(t, page, "PUT of data files") + number(t, page, "PUT of log entries, only if absent")
	gets := number(t, page, "GET and HEAD, to see what other writers did")
	_, table, _ := strings.Cut(page, "| `commit.every` | commits a day |")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		every, err := time.ParseDuration(strings.TrimSpace(cells[min(1, len(cells)-1)]))
		if err != nil {
			if rows > 0 {
				break
			}
			continue
		}
		rows++
		commits := (24 * time.Hour).Seconds() / every.Seconds()
		cost := 30 * (commits*puts*0.005 + commits*gets*0.0004) / 1000
		want := []string{
			thousands(commits), fmt.Sprintf("%.1f MB", 1000*55*every.Seconds()/1e6), thousands(commits * puts), thousands(commits * gets),
			fmt.Sprintf("%.2f $", cost),
		}
		for i, w := range want {
			if got := strings.TrimSpace(cells[i+2]); got != w {
				t.Errorf("%s: the page says %q, it is %q", every, got, w)
			}
		}
	}
	if rows != 4 {
		t.Errorf("%d rows found", rows)
	}
}

// thousands writes a number as the pages do, such as 19 008.
func thousands(n float64) string {
	text := strconv.Itoa(int(math.Round(n)))
	if len(text) > 3 {
		text = text[:len(text)-3] + " " + text[len(text)-3:]
	}
	return text
}

var storeRequests = regexp.MustCompile(`(?m)^sluice_store_operation_seconds_count{(.*)operation="([^"]+)".*} (\S+)$`)

// requests returns the number of requests to the store by operation.
func requests(t *testing.T, metrics string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, m := range storeRequests.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.ParseFloat(strings.TrimSpace(m[3]), 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[2]] += n
	}
	return all
}
