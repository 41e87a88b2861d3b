package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
	"sluice/health/ops"
)

// connector is a fake of the connector behind the server, controlled by the test.
type connector struct {
	mu     sync.Mutex
	report health.Report
	dead   error
	log    bytes.Buffer
}

func (c *connector) set(change func(*connector)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *connector) Report() health.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

func (c *connector) Live() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *connector) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

func (c *connector) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// start serves the health of c until the end of the test, and returns the URL of the server.
func start(t *testing.T, c *connector) (base string, stop func() error) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(ops.NewCollector(c.Report))
	return startOn(t, c, reg)
}

// startOn is start with a server whose /metrics has the metrics of reg.
func startOn(t *testing.T, c *connector, reg prometheus.Gatherer) (base string, stop func() error) {
	t.Helper()
	s := ops.NewServer("127.0.0.1:0", c.Report, c.Live, reg, slog.New(slog.NewTextHandler(c, nil)))
	addr, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + addr.String(), stop
}

func request(t *testing.T, method, url string) (code int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// compact returns a JSON text without white space.
func compact(t *testing.T, body string) string {
	t.Helper()
	var plain bytes.Buffer
	if err := json.Compact(&plain, []byte(body)); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return plain.String()
}

func TestReady(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	for _, step := range []struct {
		name   string
		report health.Report
		code   int
		body   string
		logs   string // the expected log lines of this step
	}{
		{"starting", health.Report{}, 503, `"status":"starting","healthy":false,"reason":"not joined`, ""},
		{"joined", health.Report{Joined: true}, 503, `"reason":"not resumed`, ""},
		{"at work", health.Report{Joined: true, Resumed: true, Tested: true}, 200, `{"status":"ok","healthy":true,"partition_lags":{},"last_check_time":null}`, ""},
		{"held", health.Report{Joined: true, Resumed: true, Holds: make([]health.Hold, 1)}, 200, `{"status":"degraded","healthy":true,`, ""},
		{"lost", health.Report{Resumed: true}, 503, `"reason":"not joined`, `"Readiness check FAILED" reason="not joined`},
		{"still lost", health.Report{Resumed: true}, 503, `"reason":"not joined`, ""},
		{"back", health.Report{Joined: true, Resumed: true, Tested: true}, 200, `{"status":"ok","healthy":true,`, `"Readiness check passed again"`},
		{"draining", health.Report{Joined: true, Resumed: true, Draining: true}, 503, `"status":"draining"`, ""},
	} {
		c.set(func(c *connector) {
			c.report = step.report
			c.log.Reset()
		})
		code, body, header := request(t, http.MethodGet, base+"/health/ready")
		var plain bytes.Buffer
		if err := json.Compact(&plain, []byte(body)); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if code != step.code || !strings.Contains(plain.String(), step.body) {
			t.Errorf("%s: %d %s, want %d %s", step.name, code, &plain, step.code, step.body)
		}
		if header.Get("Cache-Control") != "no-store" || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", step.name, header)
		}
		if logs := c.logged(); !strings.Contains(logs, step.logs) || step.logs == "" && logs != "" {
			t.Errorf("%s: log %q, want %q", step.name, logs, step.logs)
		}
	}
}

func TestLive(t *testing.T) {
	c := &connector{}
	base, _ := start(t, c)
	// The member is alive although it is not ready.
	if code, _, _ := request(t, http.MethodGet, base+"/health/live"); code != 200 {
		t.Error(code)
	}
	c.set(func(c *connector) { c.dead = errors.New("loop writer has work and has not turned for 1m0s") })
	code, body, _ := request(t, http.MethodGet, base+"/health/live")
	if code != 503 || !strings.Contains(body, "loop writer") {
		t.Error(code, body)
	}
}

func TestMetrics(t *testing.T) {
	c := &connector{report: health.Report{
		Group: "g", Joined: true, Resumed: true,
		Holds: []health.Hold{
			{Topic: "orders", Partition: 1, Reason: "poison"},
			{Topic: "orders", Partition: 2, Reason: "poison"},
			{Topic: "users", Partition: -1, Reason: "topic_missing"},
			{Partition: -1, Reason: "store_down"},
			{Partition: -1, Reason: "store_down", Detail: "again"},
		},
		Partitions: []health.Partition{{Topic: "orders", ID: 0, Position: 10, End: 15}, {Topic: "orders", ID: 1, Position: -1, End: 3}},
	}}
	base, _ := start(t, c)
	_, body, _ := request(t, http.MethodGet, base+"/metrics")
	for _, want := range []string{
		`kafka_consumer_lag{group="g",partition="0",topic="orders"} 5`, `kafka_consumer_total_lag{group="g"} 5`,
		`kafka_consumer_healthy{group="g"} 1`, `sluice_partition_held{partition="1",reason="poison",topic="orders"} 1`,
		`sluice_held_partitions{reason="poison"} 2`, `sluice_held_partitions{reason="topic_missing"} 1`, `sluice_held_partitions{reason="store_down"} 1`,
		`sluice_held_partitions{reason="oversize"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	if strings.Contains(body, `kafka_consumer_lag{group="g",partition="1"`) {
		t.Errorf("an unknown lag is shown:\n%s", body)
	}
	c.set(func(c *connector) { c.report = health.Report{Group: "g"} })
	if _, body, _ = request(t, http.MethodGet, base+"/metrics"); !strings.Contains(body, `kafka_consumer_healthy{group="g"} 0`) {
		t.Error(body)
	}
}

func TestMethodsAndPaths(t *testing.T) {
	base, _ := start(t, &connector{report: health.Report{Joined: true, Resumed: true, Tested: true}})
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{http.MethodHead, "/health/live", 200},
		{http.MethodPost, "/health/live", 405},
		{http.MethodDelete, "/metrics", 405},
		{http.MethodPut, "/health", 405},
		{http.MethodPatch, "/actuator/health/kafka", 405},
		{http.MethodOptions, "/readyz", 405},
		{http.MethodGet, "/livez", 200},
		{http.MethodGet, "/readyz", 200},
		{http.MethodHead, "/readyz?verbose", 200},
		{http.MethodGet, "/actuator", 200},
		{http.MethodGet, "/actuator/prometheus", 200},
		{http.MethodGet, "/actuator/health/kafka", 200},
		{http.MethodGet, "/actuator/health/nothing", 404},
		{http.MethodGet, "/actuator/metrics/nothing", 404},
		{http.MethodGet, "/actuator/env", 404},
		{http.MethodPost, "/actuator/shutdown", 404},
		{http.MethodPost, "/nothing", 404},
		{http.MethodGet, "/", 404},
		{http.MethodGet, "/health/", 404},
		{http.MethodGet, "/health/nothing", 404},
	} {
		code, body, header := request(t, c.method, base+c.path)
		if code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, code, c.code)
		}
		if code >= 400 && (header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"error": "`)) {
			t.Errorf("%s %s: %s %s", c.method, c.path, header, body)
		}
		if code == 405 && header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow: %q", header.Get("Allow"))
		}
	}
}

func TestAddressInUse(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := &connector{}
	s := ops.NewServer(l.Addr().String(), c.Report, c.Live, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "listen on 127.0.0.1:") {
		t.Error(err)
	}
}

// TestStopWhileAsked: when the server stops, a request that it is handling gets its response, a new request is refused,
// and Run returns.
func TestStopWhileAsked(t *testing.T) {
	c := &connector{report: health.Report{Joined: true, Resumed: true}}
	asked, goOn := make(chan struct{}), make(chan struct{})
	s := ops.NewServer("127.0.0.1:0", c.Report, func() error {
		close(asked)
		<-goOn
		return nil
	}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	addr, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	answered := make(chan int, 1)
	go func() {
		code, _, _ := request(t, http.MethodGet, "http://"+addr.String()+"/health/live")
		answered <- code
	}()
	<-asked
	cancel()
	close(goOn)
	if code := <-answered; code != 200 {
		t.Error(code)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var d net.Dialer
	if conn, err := d.DialContext(t.Context(), "tcp", addr.String()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}
