package lab

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The tests of the proxies need no real servers, so they have no build tag and run with go test ./...

func TestS3ProxyBreaksWhatItIsTold(t *testing.T) {
	var applied atomic.Int32
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPut {
			applied.Add(1)
		}
		_, _ = io.WriteString(w, r.Host+" "+r.RequestURI+" "+string(body))
	}))
	defer store.Close()
	proxy, err := StartS3Proxy(store.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	const commit = "/b/t%20x/_delta_log/00000000000000000007.json?x=1%2F2"
	put := func(ctx context.Context) (int, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, proxy.Endpoint+commit, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), err
	}
	wantApplied := func(n int32) {
		t.Helper()
		if got := applied.Swap(0); got != n {
			t.Errorf("%d requests took effect, want %d", got, n)
		}
	}

	status, text, err := put(t.Context())
	if want := strings.TrimPrefix(proxy.Endpoint, "http://") + " " + commit + " body"; err != nil || status != 200 || text != want {
		t.Errorf("without a fault: %d %q %v, want %q", status, text, err, want)
	}
	wantApplied(1)
	for _, c := range []struct {
		action  Action
		status  int
		applied int32
	}{
		{Answer(409, false), 409, 0}, {Answer(500, true), 500, 1}, {DropAnswer, 0, 1}, {DropRequest, 0, 0},
	} {
		fault := proxy.Break(CommitPut, 1, c.action)
		if status, _, err := put(t.Context()); status != c.status || (err == nil) != (c.status != 0) {
			t.Errorf("%+v: %d %v", c.action, status, err)
		}
		wantApplied(c.applied)
		if path, err := fault.Wait(t.Context()); err != nil || !strings.HasSuffix(path, "7.json") {
			t.Errorf("%+v met %q, %v", c.action, path, err)
		}
	}
	if status, _, _ := put(t.Context()); status != 200 {
		t.Errorf("after the faults: %d", status)
	}
	wantApplied(1)

	// A request that is held takes effect after its client has gone.
	fault := proxy.Break(CommitPut, 1, Hold)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := put(ctx)
		gone <- err
	}()
	if _, err := fault.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("a held request was answered")
	}
	wantApplied(0)
	fault.Release(true)
	if err := Until(t.Context(), func() (bool, error) { return applied.Load() == 1, nil }); err != nil {
		t.Error(err)
	}
}

func TestTCPProxyCuts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	proxy, err := StartTCPProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	client := &http.Client{Transport: &http.Transport{}}
	get := func() bool {
		resp, err := client.Get("http://" + proxy.Addr)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && string(text) == "hello"
	}
	if get() {
		t.Error("an answer without an upstream")
	}
	proxy.Connect(server.Listener.Addr().String())
	if !get() {
		t.Error("no answer through the proxy")
	}
	proxy.Cut()
	if get() {
		t.Error("an answer after the cut")
	}
	proxy.Connect(server.Listener.Addr().String())
	if !get() {
		t.Error("no answer after the cut was mended")
	}
}

func TestTCPProxy(t *testing.T) {
	upstream, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	go func() {
		for {
			conn, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	proxy, err := StartTCPProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	dial := func() net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", proxy.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	echo := func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "x"); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	if echo(dial()) == nil {
		t.Error("passed on without an upstream")
	}
	proxy.Connect(upstream.Addr().String())
	conn := dial()
	if err := echo(conn); err != nil {
		t.Error(err)
	}
	const late = 50 * time.Millisecond
	proxy.Delay(late)
	if began := time.Now(); echo(conn) != nil || time.Since(began) < late {
		t.Errorf("answered after %s", time.Since(began))
	}
	proxy.Delay(0)
	if err := echo(conn); err != nil {
		t.Error(err)
	}
	proxy.Cut()
	if echo(conn) == nil || echo(dial()) == nil {
		t.Error("passed on although it is cut")
	}
	proxy.Connect(upstream.Addr().String())
	if err := echo(dial()); err != nil {
		t.Error(err)
	}
}
