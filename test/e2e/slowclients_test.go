//go:build lab && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	slowClients = 1000 // half of them connect to the ops API, half to the health listener
	// slowPause is the time between two bytes of a slow client, and before it connects again.
	slowPause = time.Second
	// Bounds of connections as in docs/api.md and docs/health.md.
	apiConnections, healthConnections = 64, 256
	// spare is a tolerance. After the slow clients are gone, a member may have that many more goroutines or descriptors
	// than before them.
	spare = 40
)

// slowClient is a client that connects to a member again and again until a context ends. After each connection it calls
// way, one of sendsNothing, sendsBytes and readsNothing.
type slowClient struct {
	address string
	request string
	// way is what the client does once it is connected. It returns when the server has closed the connection.
	way func(ctx context.Context, c net.Conn, request string)
}

// run connects until ctx ends. connected counts its connections.
func (s slowClient) run(ctx context.Context, connected *atomic.Int64) {
	// Small buffers let the server wait for a client that reads nothing.
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		if err != nil {
			return err
		}
		return failed
	}}
	for ctx.Err() == nil {
		if c, err := dialer.DialContext(ctx, "tcp", s.address); err == nil {
			connected.Add(1)
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			s.way(ctx, c, s.request)
			stop()
			_ = c.Close()
		}
		pause(ctx)
	}
}

// pause waits for slowPause or the end of ctx.
func pause(ctx context.Context) {
	select {
	case <-time.After(slowPause):
	case <-ctx.Done():
	}
}

// sendsNothing waits until the server closes the connection.
func sendsNothing(_ context.Context, c net.Conn, _ string) {
	_, _ = c.Read(make([]byte, 1))
}

// sendsBytes sends a request slowly: it pauses after each byte.
func sendsBytes(ctx context.Context, c net.Conn, request string) {
	for i := range request {
		if _, err := c.Write([]byte{request[i]}); err != nil {
			return
		}
		pause(ctx)
	}
}

// readsNothing sends requests and never reads a response. Once the buffers are full, the server waits for this client,
// and this client for the server, until one of them closes the connection.
func readsNothing(ctx context.Context, c net.Conn, request string) {
	for {
		if _, err := c.Write([]byte(request)); err != nil {
			return
		}
		pause(ctx)
	}
}

// slowly starts the slow clients, half of them for the ops API and half for the health listener. Clients of the API
// request large pages, so that the API must wait in the middle of a response. Some clients of the health listener request
// /metrics and read nothing; they are more than its places. connected counts connections, and end stops the clients.
func (s *scene) slowly(m *member, api *opsAPI) (connected *atomic.Int64, end func()) {
	const (
		responses = 100 // unread responses of the API: 6 MB
		scrapes   = 10  // unread scrapes of a client, more than the buffers of its connection
	)
	ctx, cancel := context.WithCancel(s.ctx)
	connected = &atomic.Int64{}
	var running sync.WaitGroup
	for i := range slowClients {
		way := i / 2 % 3
		c := slowClient{
			address: strings.TrimPrefix(m.url, "http://"), request: "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
			way: []func(context.Context, net.Conn, string){sendsNothing, sendsBytes, readsNothing}[way],
		}
		if i%2 == 1 && way == 2 && i < slowClients/8 { // readsNothing
			c.request = strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", scrapes)
		}
		if i%2 == 0 {
			c.address = api.address
			c.request = "GET /internal/v1/openapi.yaml HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + apiToken + "\r\n\r\n"
			if way == 2 { // readsNothing
				c.request = strings.Repeat(c.request, responses)
			}
		}
		running.Go(func() { c.run(ctx, connected) })
	}
	return connected, func() {
		cancel()
		running.Wait()
	}
}

// ordinary calls send until n responses have status 200. It logs the number of failures and the time that responses
// took. A failure does not fail the test, since the member may close any connection to make room for a new one.
func (s *scene) ordinary(what string, n int, send func() (status int, err error)) {
	s.t.Helper()
	var took []time.Duration
	failures := map[string]int{}
	s.await(what, func() (bool, error) {
		began := time.Now()
		switch status, err := send(); {
		case errors.Is(err, io.EOF):
			failures["closed before the answer"]++
		case errors.Is(err, syscall.ECONNRESET):
			failures["reset before the answer"]++
		case err != nil:
			failures[err.Error()]++
		case status != http.StatusOK:
			failures[http.StatusText(status)]++
		default:
			took = append(took, time.Since(began))
		}
		return len(took) >= n, nil
	})
	slices.Sort(took)
	s.t.Logf("%s: %d answers, failures %v; median %v, at most %v", what, n, failures, took[n/2].Round(time.Millisecond), took[n-1].Round(time.Millisecond))
}

// costs are the goroutines and descriptors of a member, and how many connections its health listener and its API have
// closed to make room for others.
type costs struct{ goroutines, descriptors, ofHealth, ofAPI float64 }

// costs reads the costs of a member from one scrape. It tries again until the member answers, since slow clients may
// take the places of all connections.
func (m *member) costs() (c costs) {
	m.s.t.Helper()
	m.s.await(m.Name+" exports its metrics", func() (bool, error) {
		resp, err := m.get("/metrics")
		if err != nil {
			return false, nil
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return false, nil
		}
		for name, value := range map[string]*float64{
			"go_goroutines": &c.goroutines, "process_open_fds": &c.descriptors,
			"sluice_health_connections_closed_total": &c.ofHealth, "sluice_api_connections_closed_total": &c.ofAPI,
		} {
			_, after, found := strings.Cut(string(text), "\n"+name+" ")
			if !found {
				return false, fmt.Errorf("no metric %s in %s", name, text)
			}
			number, _, _ := strings.Cut(after, "\n")
			if *value, err = strconv.ParseFloat(number, 64); err != nil {
				return false, fmt.Errorf("metric %s: %w", name, err)
			}
		}
		return true, nil
	})
	return c
}

// TestSlowClients lets 1000 clients connect to the ops API and the health listener of a member while it moves records:
// clients that send nothing, a byte now and then, or requests whose responses they never read. The member must commit as
// before, keep its limits of connections and memory, and answer others. Afterwards it must have its goroutines and
// descriptors back.
func TestSlowClients(t *testing.T) {
	s := newScene(t, 4)
	api, with := s.opsAPI()
	m := s.start(with, func(c *settings) { c.memory = limited })
	live := s.producer(1<<40, "zstd")
	live.PerSecond, live.Live = liveRate, true
	end := s.runs(live)
	m.awaitReady()
	s.awaitRows(1000)
	watch := s.watchFreshness(m)
	watch.read(calmScrapes)
	before, rows := m.costs(), s.rows()

	watch.phase("slow clients connect")
	connected, endSlow := s.slowly(m, api)
	s.await("all have connected, and some again", func() (bool, error) { return connected.Load() > 2*slowClients, nil })
	watch.read(calmScrapes)
	s.ordinary("/health", 50, func() (int, error) {
		resp, err := m.get("/health")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	})
	s.ordinary("whoami", 50, func() (int, error) {
		status, _, err := api.send(http.MethodGet, "whoami", "")
		return status, err
	})
	during := m.costs()
	s.awaitRows(rows + 2000)
	_, peak, err := m.Resident()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections; closed to make room: %v of the health listener, %v of the API", connected.Load(), during.ofHealth, during.ofAPI)
	if during.ofHealth == 0 || during.ofAPI == 0 {
		t.Error("the slow clients have not reached both limits of connections")
	}
	endSlow()

	watch.phase("")
	watch.read(calmScrapes)
	watch.end()
	after := before
	s.await("goroutines and descriptors are back", func() (bool, error) {
		after = m.costs()
		return after.goroutines <= before.goroutines+spare && after.descriptors <= before.descriptors+spare, nil
	})
	t.Logf("goroutines: %v before, %v during, %v after; descriptors: %v, %v, %v; at most %d MiB resident", before.goroutines, during.goroutines,
		after.goroutines, before.descriptors, during.descriptors, after.descriptors, peak>>20)
	if most := before.descriptors + apiConnections + healthConnections + spare; during.descriptors > most {
		t.Errorf("%v descriptors while slow clients were connected, want at most %v", during.descriptors, most)
	}
	if peak > mostResident && bounded() {
		t.Errorf("%d MiB resident, the limit and 15 %% are %d", peak>>20, mostResident>>20)
	}
	end()
	s.awaitOthers()
	m.drain()
	s.check("--no-order")
	watch.compare("slow clients connect")
}
