//go:build lab && long && linux

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"sluice/test/lab"
)

// seen is an operator's view of a member at one moment.
type seen struct {
	code    int           // exit code of `connector holds`
	holds   string        // output of that command
	took    time.Duration // duration of that command
	status  int           // status code of /health
	live    int           // status code of /health/live
	report  fullReport
	lines   int            // number of log lines at WARN and above since the outage began
	loud    map[string]int // number of these lines, by message
	limited map[string]int // number of limitedLines, by message, dependency and table
	prom    []string
	held    map[string]int // number of held partitions by reason, as Prometheus has it
	// breakers counts the dependencies whose breaker is open or half-open.
	breakers map[string]int
	alerts   []lab.PromAlert
}

// fullReport is the part of /health that an operator reads.
type fullReport struct {
	Status     string
	Reason     string
	Ready      bool
	Holds      []heldPartition
	Components map[string]struct{ Status, Reason string }
}

// full returns the member's /health and the status code of the response.
func (m *member) full() (r fullReport, code int, err error) {
	resp, err := m.get("/health")
	if err != nil {
		return r, 0, err
	}
	defer resp.Body.Close()
	return r, resp.StatusCode, json.NewDecoder(resp.Body).Decode(&r)
}

// look returns what an operator sees now. at is how long the outage should have lasted by now. If look ends more than
// 20 s later than that, it logs the delay.
func (o *shadow) look(at time.Duration) seen {
	o.s.t.Helper()
	x := o.glance()
	if since := time.Since(o.began); since > at+20*time.Second {
		o.s.t.Logf("%s: the look at %v ended %v later", o.name, at, since-at)
	}
	return x
}

// glance collects the output of `connector holds`, the member's /health, its log lines, and the series and alerts of
// Prometheus.
func (o *shadow) glance() (x seen) {
	t := o.s.t
	t.Helper()
	var err error
	// The report comes first and the command last, because the command takes seconds.
	if x.report, x.status, err = o.m.full(); err != nil {
		t.Fatal(err)
	}
	resp, err := o.m.get("/health/live")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	x.live = resp.StatusCode
	o.readLog(&x)
	o.readProm(&x)
	began := time.Now()
	x.code, x.holds = o.s.command("holds", "--config", o.m.config)
	x.took, x.holds = time.Since(began), o.plain(x.holds)
	return x
}

// limitedLines are messages that a member logs at once, again after a minute, and then only every five minutes.
var limitedLines = []string{
	"retry", "circuit breaker", "failed to join the group; retrying",
	"Exception during checkpointing loop: failed to commit offsets; retrying at the next interval",
}

// readLog counts the lines at WARN and above since the outage began.
func (o *shadow) readLog(x *seen) {
	o.s.t.Helper()
	text, err := os.ReadFile(o.m.Log)
	if err != nil {
		o.s.t.Fatal(err)
	}
	x.loud, x.limited = map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			line
			Table string
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Time.Before(o.began) || l.Level != "WARN" && l.Level != "ERROR" {
			continue
		}
		x.lines++
		what := l.Msg
		if l.Dependency != "" {
			what += " (" + l.Dependency + ")"
		}
		x.loud[what]++
		if slices.Contains(limitedLines, l.Msg) {
			x.limited[what+" "+l.Table]++
		}
	}
	if err := lines.Err(); err != nil {
		o.s.t.Fatal(err)
	}
}

// readProm queries Prometheus for the series that an operator would check.
func (o *shadow) readProm(x *seen) {
	t := o.s.t
	t.Helper()
	x.held, x.breakers = map[string]int{}, map[string]int{}
	for _, q := range []struct {
		query string
		take  func(labels map[string]string, value string)
	}{
		{"sluice_breaker_state > 0", func(l map[string]string, v string) {
			x.breakers[l["dependency"]]++
			x.prom = append(x.prom, fmt.Sprintf("breaker %s %s = %s", l["dependency"], l["table"], v))
		}},
		{"sum by (reason) (sluice_partition_held)", func(l map[string]string, v string) {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			x.held[l["reason"]] = n
			x.prom = append(x.prom, fmt.Sprintf("held %s = %s", l["reason"], v))
		}},
		{"sum by (reason) (sluice_holds_total) > 0", func(l map[string]string, v string) {
			x.prom = append(x.prom, fmt.Sprintf("holds_total %s = %s", l["reason"], v))
		}},
		{"sum (sluice_backpressure_long_total) > 0", func(_ map[string]string, v string) { x.prom = append(x.prom, "long_pauses_total = "+v) }},
		{"sum (kafka_consumer_lag)", func(_ map[string]string, v string) { x.prom = append(x.prom, "lag = "+v) }},
		{"kafka_consumer_healthy == 0", func(map[string]string, string) { x.prom = append(x.prom, "healthy = 0") }},
		{"sluice_members_store_up == 0", func(map[string]string, string) { x.prom = append(x.prom, "members_store_up = 0") }},
	} {
		all, err := o.prom.Query(o.s.ctx, q.query)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			q.take(r.Labels, r.Value)
		}
	}
	var err error
	if x.alerts, err = o.prom.Alerts(o.s.ctx); err != nil {
		t.Fatal(err)
	}
	for _, a := range x.alerts {
		what := a.Labels["alertname"]
		for _, label := range []string{"reason", "dependency", "table", "topic"} {
			if v := a.Labels[label]; v != "" {
				what += " " + v
			}
		}
		x.prom = append(x.prom, fmt.Sprintf("alert %s, %s: %s", a.State, a.Labels["severity"], what))
	}
	x.prom = counted(x.prom)
}

// counted sorts texts and returns each distinct text once. Texts that occur several times get the number of
// occurrences, for example "(3×)".
func counted(texts []string) (all []string) {
	slices.Sort(texts)
	for i := 0; i < len(texts); {
		n := 1
		for i+n < len(texts) && texts[i+n] == texts[i] {
			n++
		}
		if text := texts[i]; n > 1 {
			all = append(all, fmt.Sprintf("%s (%d×)", text, n))
		} else {
			all = append(all, text)
		}
		i += n
	}
	return all
}
