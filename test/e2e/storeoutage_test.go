//go:build lab && linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

// storeOutage is one way in which a store fails, with the expected behaviour of a member meanwhile.
type storeOutage struct {
	s     *scene
	m     *member
	begin func()
	end   func()
	// requests returns the number of requests that reached the store.
	requests func() int64
	// reason is the reason of the hold. No breaker opens for store_denied, because a store that denies access works.
	reason string
	// within is the maximum time from the closing of the breaker to the first commit. It is not checked for store_denied.
	within time.Duration
}

// TestStoreOutages stops, silences and overloads the store, or makes it deny access, while records arrive. The member
// must hold its claims, report the reason and its start, keep within its memory, send hardly any requests to the store,
// and continue by itself. No record may be lost, doubled or become a dead letter.
func TestStoreOutages(t *testing.T) {
	t.Parallel()
	t.Run("Stopped", func(t *testing.T) {
		t.Parallel()
		s := newSceneWithStore(t, 4)
		m := s.start(outageSettings)
		(&storeOutage{
			s: s, m: m, reason: "store_down", within: 10 * time.Second,
			requests: func() int64 { return int64(m.metric("sluice_store_operation_seconds_count")) },
			begin: func() {
				if err := s.minio.Kill(); err != nil {
					t.Fatal(err)
				}
			},
			end: func() {
				if err := s.minio.Start(s.ctx); err != nil {
					t.Fatal(err)
				}
			},
		}).run()
	})
	broken := func(t *testing.T, action lab.Action, reason string) {
		t.Helper()
		t.Parallel()
		s := newScene(t, 4)
		p := s.proxy()
		m := s.start(outageSettings, through(p))
		(&storeOutage{
			s: s, m: m, reason: reason, within: 10 * time.Second, requests: p.Requests,
			begin: func() { p.Break(lab.Any, 1<<16, action) }, end: p.Heal,
		}).run()
	}
	t.Run("Silent", func(t *testing.T) { broken(t, lab.Hold, "store_down") })
	t.Run("Overrun", func(t *testing.T) { broken(t, lab.Answer(503, false), "store_down") })
	t.Run("Denied", func(t *testing.T) { broken(t, lab.Answer(403, false), "store_denied") })
}

func outageSettings(c *settings) {
	c.patient, c.timeout, c.memory = outagePatient, outageTimeout, limited
}

// newSceneWithStore returns a scene with its own S3 server, which the test may stop.
func newSceneWithStore(t *testing.T, partitions int32) *scene {
	t.Helper()
	s := newScene(t, partitions)
	dir, err := folder(s.name + "/minio")
	if err != nil {
		t.Fatal(err)
	}
	if s.minio, err = lab.StartMinIO(s.ctx, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.minio.Stop() })
	if s.bucket, err = lab.CreateBucket(s.ctx, s.minio.Endpoint, "own"); err != nil {
		t.Fatal(err)
	}
	s.log.Store = s.bucket
	return s
}

func (o *storeOutage) run() {
	s, m := o.s, o.m
	s.t.Helper()
	s.produce(2000)
	s.awaitRows(2000)
	pid := m.Pid()
	endStream := s.stream(outageRate)
	s.awaitRows(2000 + 2*outageRate) // the member works

	o.begin()
	began := time.Now()
	o.awaitHeld(began)
	still, asked, from := o.positions(), o.requests(), time.Now()
	o.watch(from)
	if n, seconds := o.requests()-asked, time.Since(from).Seconds(); float64(n) >= seconds {
		s.t.Errorf("%d requests reached the store in %.0f s, while it was held", n, seconds)
	} else {
		s.t.Logf("%d requests in %.0f s", n, seconds)
	}
	if now := o.positions(); still != nil && !maps.Equal(still, now) {
		s.t.Errorf("positions moved from %v to %v", still, now)
	}
	o.end()
	ended := time.Now()
	versions := len(s.commits())
	s.await("the member commits", func() (bool, error) {
		commits, err := s.log.Read(s.ctx)
		return len(commits) > versions, err
	})
	first := time.Now()
	endStream()
	s.awaitRows(s.ledger.Len())
	m.await("it reports status ok without holds", func(r report) bool { return r.Status == "ok" && len(r.Holds) == 0 })
	o.checkTrace(ended, first)
	_, peak, err := m.Resident()
	if err != nil || m.Pid() != pid {
		s.t.Fatal(err)
	}
	s.t.Logf("first commit %v after the end, at most %d MiB resident", first.Sub(ended).Round(time.Millisecond), peak>>20)
	if peak > mostResident && bounded() {
		s.t.Errorf("%d MiB resident, the limit and 15 %% are %d", peak>>20, mostResident>>20)
	}
	if n := s.letters(); n != 0 {
		s.t.Errorf("%d dead letters", n)
	}
	m.drain()
	s.check("--readers", "deltalake")
}

// awaitHeld waits until every partition is held for o.reason and the breakers before the store are open. For
// store_denied the breakers need not be open.
func (o *storeOutage) awaitHeld(began time.Time) {
	o.s.t.Helper()
	// Each request to a silent store must time out, and the breaker opens only after the last of them.
	ctx, cancel := context.WithTimeout(o.s.ctx, 10*time.Minute)
	defer cancel()
	err := lab.Until(ctx, func() (bool, error) {
		r, err := o.m.standing()
		held := 0
		for _, h := range r.Holds {
			if h.Reason == o.reason && h.Partition >= 0 {
				held++
				if h.Since.Before(began.Add(-5*time.Second)) || h.Detail == "" {
					o.s.t.Errorf("hold %+v, the outage began %v", h, began)
				}
			}
		}
		quiet := true
		for _, d := range r.Dependencies {
			if d.Name == "store" || d.Name == "operations_log" {
				quiet = quiet && (d.Open || o.reason == "store_denied")
			}
		}
		return held == 4 && quiet, err
	})
	if err != nil {
		o.s.t.Fatalf("wait until every partition is held, %s: %v: %s", o.reason, err, o.m.Tail())
	}
}

// watch checks the member until the outage ends. The member must stay in the group, be alive, and report the hold while
// the breaker is open.
func (o *storeOutage) watch(from time.Time) {
	o.s.t.Helper()
	for time.Since(from) < outageLasts {
		r, err := o.m.standing()
		switch {
		case err != nil:
			o.s.t.Fatal(err)
		case !r.Joined:
			o.s.t.Error("the member left the group")
		case !slices.ContainsFunc(r.Holds, func(h heldPartition) bool { return h.Reason == o.reason }) && r.open("store"):
			o.s.t.Errorf("the member reports no hold though the breaker is open: %+v", r)
		}
		resp, err := o.m.get("/health/live")
		if err != nil {
			o.s.t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			o.s.t.Errorf("/health/live answers %d", resp.StatusCode)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-o.s.ctx.Done():
			o.s.t.Fatal(o.s.ctx.Err())
		}
	}
}

// checkTrace reads the log lines about the breaker before the store. The breaker must have opened at least once, and
// its last change must be to closed. The first commit, at the time first, must come within o.within after that change.
// With store_denied the breaker must not have changed at all. ended is the time when the outage ended; only an error
// message shows it.
func (o *storeOutage) checkTrace(ended, first time.Time) {
	o.s.t.Helper()
	var trace []string
	var closed time.Time
	for _, l := range o.m.lines("circuit breaker") {
		if l.Dependency != "store" {
			continue
		}
		trace = append(trace, l.To)
		closed = l.Time
	}
	o.s.t.Logf("breaker: closed %s", strings.Join(trace, " "))
	if o.reason == "store_denied" {
		if len(trace) > 0 {
			o.s.t.Errorf("a store that denies access works, but its breaker changed: %v", trace)
		}
		return
	}
	opened := slices.Index(trace, "closed")
	if opened < 1 || opened != len(trace)-1 || slices.ContainsFunc(trace[:opened], func(to string) bool { return to != "open" }) {
		o.s.t.Errorf("the breaker's states were closed %v, want open at least once and closed at the end", trace)
	}
	if d := first.Sub(closed); d > o.within {
		o.s.t.Errorf("the first commit came %v after the breaker closed (the outage ended %v)", d, ended)
	}
}

// positions returns the table's positions, nil while the store is down.
func (o *storeOutage) positions() map[int32]int64 {
	o.s.t.Helper()
	commits, err := o.s.log.Read(o.s.ctx)
	if err != nil {
		return nil
	}
	return tablelog.Positions(commits)
}

// letters returns the number of records in the dead-letter topic.
func (s *scene) letters() (n int64) {
	s.t.Helper()
	ends, err := s.admin().ListEndOffsets(s.ctx, s.name+"-dlq")
	if err != nil {
		s.t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			n += o.Offset
		}
	})
	return n
}

// admin returns a client for admin requests to Kafka.
func (s *scene) admin() *kadm.Client {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// heldPartition is a hold in a [standingReport], the part of /health that explains why a member holds its claims.
type heldPartition struct {
	Partition int32
	Reason    string
	Detail    string
	Since     time.Time
}

type standingReport struct {
	Status       string
	Joined       bool
	Holds        []heldPartition
	Dependencies []struct {
		Name string
		Open bool
	}
}

func (r standingReport) open(name string) bool {
	for _, d := range r.Dependencies {
		if d.Name == name && d.Open {
			return true
		}
	}
	return false
}

// standing requests the member's /health and returns the fields that standingReport has.
func (m *member) standing() (r standingReport, err error) {
	resp, err := m.get("/health")
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

// line is a line of a member's log.
type line struct {
	Time       time.Time
	Level      string
	Msg        string
	Dependency string
	From       string
	To         string
	Failures   int
	Pause      string
}

// lines returns the parsed lines of the member's log whose message is msg.
func (m *member) lines(msg string) (all []line) {
	m.s.t.Helper()
	text, err := os.ReadFile(m.Log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.s.t.Fatal(err)
	}
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		var l line
		if json.Unmarshal(scan.Bytes(), &l) == nil && l.Msg == msg {
			all = append(all, l)
		}
	}
	return all
}
