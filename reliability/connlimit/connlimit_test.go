package connlimit

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// flooded is a server that allows only a few connections.
type flooded struct {
	conns   *Listener
	address string
}

// serveFlooded starts a server with this limit of connections, whose handler calls live for a request of /live.
func serveFlooded(t *testing.T, limit int, live func()) flooded {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New("test", limit, prometheus.NewCounter(prometheus.CounterOpts{Name: "closed_total", Help: "closed"}), slog.New(slog.DiscardHandler))
	l.Listener = inner
	s := &http.Server{
		Handler: l.Marks(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/live" {
				live()
			}
		})),
		ConnState: l.Follow,
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return flooded{l, inner.Addr().String()}
}

// client is a connection with its reader.
type client struct {
	net.Conn
	r *bufio.Reader
}

// dial opens a connection and sends text. The connection stays open until the end of the test.
func (f flooded) dial(t *testing.T, text string) client {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return client{c, bufio.NewReader(c)}
}

// code reads a response and returns its status code.
func (c client) code(t *testing.T) int {
	t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// closed waits until the server closes the connection.
func (c client) closed(t *testing.T) {
	t.Helper()
	if b, err := c.r.ReadByte(); err == nil {
		t.Errorf("the server sent %q", b)
	}
}

// is waits until exactly n connections of the server are in a state.
func (f flooded) is(t *testing.T, n int, s state) {
	t.Helper()
	for count := -1; count != n; {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
		count = 0
		f.conns.mu.Lock()
		for c := range f.conns.open {
			if c.state == s {
				count++
			}
		}
		f.conns.mu.Unlock()
		runtime.Gosched()
	}
}

const live = "GET /live HTTP/1.1\r\nHost: x\r\n"

// TestListener_Flood opens many more connections than the limit, none of which the client closes. A probe is answered
// at any time, and the server never has more connections than the limit.
func TestListener_Flood(t *testing.T) {
	const limit, flood = 16, 150
	for name, text := range map[string]string{"Silent": "", "SlowHeader": live, "KeepAlive": live + "\r\n"} {
		t.Run(name, func(t *testing.T) {
			f := serveFlooded(t, limit, func() {})
			for i := range flood {
				c := f.dial(t, text)
				if name == "KeepAlive" {
					if code := c.code(t); code != http.StatusOK {
						t.Fatalf("connection %d: %d", i, code)
					}
				}
				if i%10 != 0 {
					continue
				}
				if code := f.dial(t, live+"Connection: close\r\n\r\n").code(t); code != http.StatusOK {
					t.Fatalf("probe beside %d connections: %d", i, code)
				}
			}
			f.conns.mu.Lock()
			open := len(f.conns.open)
			f.conns.mu.Unlock()
			var closed dto.Metric
			if err := f.conns.closed.Write(&closed); err != nil {
				t.Fatal(err)
			}
			if open > limit || closed.GetCounter().GetValue() == 0 {
				t.Errorf("%d connections are open, %v were closed: want at most %d, and some", open, closed.GetCounter().GetValue(), limit)
			}
		})
	}
}

// TestListener_Order: to make room for a connection, the listener closes the oldest idle one. If none is idle, it
// closes one whose request has not arrived completely; it does not close one whose request is being answered.
func TestListener_Order(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(asked)
		<-goOn
	})
	f := serveFlooded(t, 4, first)
	working := f.dial(t, live+"\r\n")
	<-asked
	slow := f.dial(t, live)
	f.is(t, 1, reading)
	var rested [2]client
	for i := range rested {
		rested[i] = f.dial(t, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
		if code := rested[i].code(t); code != http.StatusOK {
			t.Fatal(code)
		}
		f.is(t, i+1, idle)
	}
	for _, next := range []client{rested[0], rested[1], slow} {
		_ = f.dial(t, live)
		next.closed(t)
	}
	close(goOn)
	if code := working.code(t); code != http.StatusOK {
		t.Errorf("the request under way: %d", code)
	}
}

// TestListener_HandlerHangs: requests that never end occupy all places; a probe still gets its answer.
func TestListener_HandlerHangs(t *testing.T) {
	places := make(chan struct{}, 2)
	hung, goOn := make(chan struct{}), make(chan struct{})
	f := serveFlooded(t, cap(places), func() {
		select {
		case places <- struct{}{}:
			hung <- struct{}{}
			<-goOn
		default:
		}
	})
	defer close(goOn)
	for range cap(places) {
		_ = f.dial(t, live+"\r\n")
		<-hung
	}
	if code := f.dial(t, live+"\r\n").code(t); code != http.StatusOK {
		t.Error(code)
	}
}

// TestListener_Abort: the connection of an aborted client is reset, so that the kernel keeps nothing for it, and the
// handler that waits for the client continues.
func TestListener_Abort(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New("test", 2, prometheus.NewCounter(prometheus.CounterOpts{Name: "closed_total", Help: "closed"}), slog.New(slog.DiscardHandler))
	l.Listener = inner
	defer func() { _ = l.Close() }()
	dialed, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialed.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		var failed error
		for failed == nil { // until the client's buffers are full, and then until the end of the connection
			_, failed = accepted.Write(make([]byte, 1<<16))
		}
		ended <- failed
	}()
	l.Abort("127.0.0.1:0") // no such client
	if _, err := dialed.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	l.Abort(dialed.LocalAddr().String())
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the write: %v, want a closed connection", err)
	}
	if _, err := io.Copy(io.Discard, dialed); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client read until %v, want a reset", err)
	}
}
