package ops

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice/health"
)

// room is a fake of the clients of some places.
type room struct {
	t       *testing.T
	places  *places
	clients map[string]*reader
	ended   []string // addresses of the clients whose responses were ended, in order
	running sync.WaitGroup
}

// reader is a fake of a client's connection: it takes a piece of the response for each element of reads.
type reader struct {
	http.ResponseWriter

	reads  chan struct{}
	closed chan struct{} // closed when the connection is
	began  bool          // true once the request has a place
	busy   bool          // true if the request got none
	cancel context.CancelFunc
}

func (r *reader) Write(b []byte) (int, error) {
	select {
	case <-r.reads:
		return len(b), nil
	case <-r.closed:
		return 0, net.ErrClosed
	}
}

// inRoom runs a test with places for three responses, in virtual time.
func inRoom(t *testing.T, test func(*room)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &room{t: t, clients: map[string]*reader{}}
		r.places = newPlaces(3, func(address string) { r.ended = append(r.ended, address) }, func() {})
		test(r)
		for _, c := range r.clients {
			c.close()
		}
		r.running.Wait()
		if len(r.places.taken) != 0 || len(r.places.responses) != 0 {
			t.Errorf("%d places are taken and %d responses exist after all have ended", len(r.places.taken), len(r.places.responses))
		}
	})
}

// request sends a request for a response of three pieces, and waits until the server waits for the client. compute is
// called before the response is written.
func (r *room) request(address string, compute func()) *reader {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	c := &reader{ResponseWriter: httptest.NewRecorder(), reads: make(chan struct{}), closed: make(chan struct{}), cancel: cancel}
	r.clients[address] = c
	serve := r.places.limit(func(w http.ResponseWriter, _ *http.Request) {
		c.began = true
		compute()
		if n, err := w.Write(make([]byte, 3*progressBytes)); err != nil && !errors.Is(err, net.ErrClosed) || err == nil && n != 3*progressBytes {
			r.t.Errorf("%s: wrote %d bytes: %v", address, n, err)
		}
	}, func(http.ResponseWriter, *http.Request) { c.busy = true })
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	request.RemoteAddr = address
	r.running.Go(func() { serve(c, request) })
	synctest.Wait()
	return c
}

func (r *reader) close() {
	select {
	case <-r.closed:
	default:
		close(r.closed)
	}
}

// hasEnded checks whose responses were ended so far, and closes their connections.
func (r *room) hasEnded(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.ended, want) {
		r.t.Fatalf("ended the responses of %v, want %v", r.ended, want)
	}
	for _, address := range r.ended {
		r.clients[address].close()
	}
	synctest.Wait()
}

func nothing() {}

// TestPlaces_Order: a request for which no place is free ends the response without progress for the longest time. No
// response is ended before.
func TestPlaces_Order(t *testing.T) {
	inRoom(t, func(r *room) {
		a := r.request("a:1", nothing)
		r.request("b:1", nothing)
		r.request("c:1", nothing)
		r.hasEnded()
		a.reads <- struct{}{}
		synctest.Wait()
		want := []string{"b:1", "c:1", "a:1", "d:1"}
		for i, address := range []string{"d:1", "e:1", "f:1", "g:1"} {
			r.request(address, nothing)
			r.hasEnded(want[:i+1]...)
			if !r.clients[address].began {
				t.Errorf("%s has no place", address)
			}
		}
	})
}

// TestPlaces_FewerResponses: a client that sends many requests ends its own responses, not those of a slow client with
// one request, which gets the whole response.
func TestPlaces_FewerResponses(t *testing.T) {
	inRoom(t, func(r *room) {
		slow := r.request("slow:1", nothing)
		r.request("stranger:1", nothing)
		r.request("stranger:2", nothing)
		r.request("stranger:3", nothing)
		r.hasEnded("stranger:1")
		r.request("other:1", nothing)
		r.hasEnded("stranger:1", "stranger:2")
		for range 3 {
			slow.reads <- struct{}{}
		}
		synctest.Wait()
		if len(r.places.taken) != 2 {
			t.Errorf("%d places are taken after the slow client has read its response, want 2", len(r.places.taken))
		}
	})
}

// TestPlaces_Busy: a request gets no place if no response waits for its client, or only those of clients with fewer
// responses.
func TestPlaces_Busy(t *testing.T) {
	inRoom(t, func(r *room) {
		computed := make(chan struct{})
		compute := func() { <-computed }
		r.request("stranger:1", compute)
		r.request("stranger:2", compute)
		slow := r.request("slow:1", compute)
		if c := r.request("other:1", nothing); !c.busy || c.began {
			t.Error("a request got a place although all responses are being computed")
		}
		computed <- struct{}{}
		computed <- struct{}{}
		computed <- struct{}{}
		synctest.Wait()
		for _, address := range []string{"stranger:1", "stranger:2"} { // both respond to their next requests now
			r.clients[address].close()
			synctest.Wait()
			r.request(address, compute)
		}
		if c := r.request("stranger:3", nothing); !c.busy || c.began {
			t.Error("a client with two responses took the place of a client with one")
		}
		r.hasEnded()
		close(computed)
		for range 3 {
			slow.reads <- struct{}{}
		}
	})
}

// TestPlaces_Waits: a request that ends a response does not begin before that response is gone, so that there are never
// more than the limit. A request whose client leaves meanwhile does not begin at all.
func TestPlaces_Waits(t *testing.T) {
	inRoom(t, func(r *room) {
		for _, address := range []string{"a:1", "b:1", "c:1"} {
			r.request(address, nothing)
		}
		d, e := r.request("d:1", nothing), r.request("e:1", nothing)
		if d.began || e.began {
			t.Error("a fourth response exists")
		}
		e.cancel()
		synctest.Wait()
		r.hasEnded("a:1", "b:1")
		if !d.began || e.began || e.busy || len(r.places.taken) != 2 {
			t.Errorf("began: %v, %v, want only the first; %d places are taken", d.began, e.began, len(r.places.taken))
		}
	})
}

// largeBytes is the least size of a large response in the tests: more than the buffers of a connection.
const largeBytes = 1 << 20

// smallBuffers is a listener whose connections keep little of a response for a client that does not read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		err = errors.Join(err, t.SetWriteBuffer(largeBytes/16))
	}
	return c, err
}

// strangers are clients of a real server with large responses.
type strangers struct {
	t       *testing.T
	server  *Server
	address string
}

// serveStrangers starts a server whose only limits are those of large responses: no time limits, so that the speed of
// the test does not matter.
func serveStrangers(t *testing.T) strangers {
	t.Helper()
	report := health.Report{Joined: true, Resumed: true, Partitions: make([]health.Partition, largeBytes/100)}
	help, name, value := strings.Repeat("x", largeBytes), "large", 1.0
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return []*dto.MetricFamily{{Name: &name, Help: &help, Metric: []*dto.Metric{{Untyped: &dto.Untyped{Value: &value}}}, Type: dto.MetricType_UNTYPED.Enum()}}, nil
	})
	s := NewServer("", func() health.Report { return report }, func() error { return nil }, gather, slog.New(slog.DiscardHandler))
	s.server.ReadTimeout, s.server.ReadHeaderTimeout, s.server.WriteTimeout = 0, 0, 0
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.conns.Listener = smallBuffers{inner}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return strangers{t, s, inner.Addr().String()}
}

// one sends a request, reads nothing, and waits until the server writes its response.
func (s strangers) one(path string, p *places) net.Conn {
	s.t.Helper()
	c, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		s.t.Fatal(err)
	}
	s.await(func() bool { return p.has(c.LocalAddr().String(), true) })
	return c
}

// has reports whether the response to a client has a place, and is being written if the caller asks for that.
func (p *places) has(address string, written bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.responses {
		if l.address == address && (l.since != 0 || !written) {
			return true
		}
	}
	return false
}

// await returns once done does, or fails at the end of the test.
func (s strangers) await(done func() bool) {
	s.t.Helper()
	for !done() {
		if err := s.t.Context().Err(); err != nil {
			s.t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// scrape sends an ordinary request, again if it gets a 429, and returns the status code and the size of the response. A
// 429 is right if the server is writing to all strangers at that moment, and waits for none yet.
func (s strangers) scrape(path string) (code, size int) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	s.await(func() bool {
		resp, err := client.Do(request)
		if err != nil {
			s.t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Error(err)
		}
		code, size = resp.StatusCode, len(body)
		return code != http.StatusTooManyRequests
	})
	return code, size
}

// TestServer_UnreadResponses: clients that do not read their responses take all places, again and again. Another client
// gets its response each time, for which the server resets the connection of one of them. A slow client that then reads
// gets its whole response.
func TestServer_UnreadResponses(t *testing.T) {
	for _, path := range []string{"/metrics", "/health"} {
		t.Run(path[1:], func(t *testing.T) {
			s := serveStrangers(t)
			p := map[string]*places{"/metrics": s.server.scraped, "/health": s.server.reports}[path]
			clients := map[string]net.Conn{}
			for range 3 {
				for len(clients) < cap(p.taken) {
					c := s.one(path, p)
					clients[c.LocalAddr().String()] = c
				}
				if code, size := s.scrape(path); code != http.StatusOK || size < largeBytes {
					t.Errorf("%d with %d bytes", code, size)
				}
				s.await(func() bool { return len(p.taken) == cap(p.taken)-1 })
				for address, c := range clients {
					if p.has(address, false) {
						continue
					}
					delete(clients, address)
					if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("a client whose response was ended read until %v, want a reset", err)
					}
				}
				if len(clients) != cap(p.taken)-1 {
					t.Errorf("%d clients are left, want %d", len(clients), cap(p.taken)-1)
				}
			}
			var closed dto.Metric
			if err := s.server.closed.Write(&closed); err != nil {
				t.Fatal(err)
			}
			if n := closed.GetCounter().GetValue(); n != 3 {
				t.Errorf("counted %v closed connections, want 3", n)
			}
			for _, c := range clients {
				body, err := io.ReadAll(c)
				if err != nil || len(body) < largeBytes || !bytes.HasSuffix(body, []byte("\r\n0\r\n\r\n")) {
					t.Errorf("a slow client got %d bytes: %v", len(body), err)
				}
			}
		})
	}
}
