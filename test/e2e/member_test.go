//go:build lab

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/test/lab"
)

// member is a running connector.
type member struct {
	*lab.Process
	s      *scene
	url    string
	config string // path of its configuration
}

// report is the part of /health that the tests read.
type report struct {
	Member string // the name of the process
	Status string
	Ready  bool
	Joined bool
	Holds  []struct {
		Partition int32
		Reason    string
		Offset    int64
		Detail    string
	}
	Partitions []partitionReport
	Components map[string]struct {
		Status, Reason string
		Details        json.RawMessage
	}
}

// canaryReport is what /health says about canaries: records that a member produces to Kafka and then searches in the
// table.
type canaryReport struct {
	Seen    *time.Time
	Seconds float64
	Failing *time.Time `json:"failing_since"`
	Error   string
}

// canary returns what the report says about canaries. It returns false if the report has no such component.
func (r report) canary() (c canaryReport, there bool) {
	details := r.Components["canary"].Details
	return c, details != nil && json.Unmarshal(details, &c) == nil
}

// partitionReport is a partition in a [report]. Lag is nil while the lag is unknown.
type partitionReport struct {
	Partition int32
	Lag       *int64
}

// get requests an endpoint and accepts any status of the response.
func (m *member) get(path string) (*http.Response, error) {
	if !m.Running() {
		return nil, fmt.Errorf("%s has ended with exit code %d: %s", m.Name, m.ExitCode(), m.Tail())
	}
	req, err := http.NewRequestWithContext(m.s.ctx, http.MethodGet, m.url+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 5 * time.Second}
	return client.Do(req)
}

// health returns the member's report, or a zero report while it does not answer.
func (m *member) health() (report, error) {
	var r report
	resp, err := m.get("/health")
	if err != nil {
		if m.Running() {
			return r, nil // the health server does not listen yet
		}
		return r, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return r, fmt.Errorf("read /health of %s: %w", m.Name, err)
	}
	return r, nil
}

// awaitReady waits until the member has joined and resumed.
func (m *member) awaitReady() {
	m.s.t.Helper()
	m.await("it is ready", func(r report) bool { return r.Ready })
}

// await waits until check accepts a report. what completes the sentence "wait until".
func (m *member) await(what string, check func(report) bool) {
	m.s.t.Helper()
	var last report
	defer func() {
		if m.s.t.Failed() {
			m.s.t.Logf("the last report of %s: %+v\n%s", m.Name, last, m.Tail())
		}
	}()
	m.s.await(m.Name+": "+what, func() (bool, error) {
		r, err := m.health()
		last = r
		return err == nil && check(r), err
	})
}

// awaitHold waits until the member reports a hold of the partition with this reason, and returns the offset of the
// hold.
func (m *member) awaitHold(partition int32, reason string) (offset int64) {
	m.s.t.Helper()
	m.await(fmt.Sprintf("partition %d is held: %s", partition, reason), func(r report) bool {
		for _, h := range r.Holds {
			if h.Partition == partition && h.Reason == reason {
				offset = h.Offset
				return true
			}
		}
		return false
	})
	return offset
}

// metric returns the value of a metric, summed over its labels. A missing metric fails the test.
func (m *member) metric(name string) float64 {
	m.s.t.Helper()
	sum, found := m.sum(name)
	if !found {
		m.s.t.Fatalf("%s has no metric %s", m.Name, name)
	}
	return sum
}

// sum returns the sum of a metric over its labels, and reports whether the member exports it.
func (m *member) sum(name string) (sum float64, found bool) {
	m.s.t.Helper()
	resp, err := m.get("/metrics")
	if err != nil {
		m.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if bare, _, _ := strings.Cut(series, "{"); !ok || bare != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			m.s.t.Fatalf("metric %s of %s: %v", name, m.Name, err)
		}
		sum, found = sum+n, true
	}
	return sum, found
}

// kill ends the member with SIGKILL. The test fails if the member has already ended by itself.
func (m *member) kill() {
	m.s.t.Helper()
	if !m.Running() {
		m.s.t.Errorf("%s has ended with exit code %d: %s", m.Name, m.ExitCode(), m.Tail())
	}
	if err := m.Kill(); err != nil {
		m.s.t.Fatal(err)
	}
}

// drain ends the member with SIGTERM and expects exit code 0.
func (m *member) drain() {
	m.s.t.Helper()
	if err := m.Stop(30 * time.Second); err != nil {
		m.s.t.Errorf("%v: %s", err, m.Tail())
	} else if code := m.ExitCode(); code != 0 {
		m.s.t.Errorf("%s drained with exit code %d: %s", m.Name, code, m.Tail())
	}
}

// freeze suspends the member's process until thaw.
func (m *member) freeze() { m.signal(syscall.SIGSTOP) }

// thaw lets a frozen member continue.
func (m *member) thaw() { m.signal(syscall.SIGCONT) }

func (m *member) signal(sig syscall.Signal) {
	m.s.t.Helper()
	if err := m.Signal(sig); err != nil {
		m.s.t.Fatal(err)
	}
}
