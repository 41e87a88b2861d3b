package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// TCPProxy forwards connections until a test cuts them.
type TCPProxy struct {
	Addr string

	listener net.Listener
	closed   chan struct{}
	close    sync.Once
	mu       sync.Mutex
	upstream string
	cut      bool
	delay    time.Duration
	conns    map[net.Conn]struct{}
}

// StartTCPProxy starts a proxy. It closes new connections at once until Connect names the upstream. The caller must
// call Close.
func StartTCPProxy() (*TCPProxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start TCP proxy: %w", err)
	}
	p := &TCPProxy{Addr: l.Addr().String(), listener: l, closed: make(chan struct{}), cut: true, conns: make(map[net.Conn]struct{})}
	go p.accept()
	return p, nil
}

// Connect makes the proxy forward new connections to upstream.
func (p *TCPProxy) Connect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream, p.cut = upstream, false
}

// Cut closes all connections, and closes new ones at once until Connect.
func (p *TCPProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Delay makes the proxy hold back data from the upstream for the time d before it forwards the data. With 0, the
// default, it forwards at once.
func (p *TCPProxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Close ends the proxy and its connections.
func (p *TCPProxy) Close() error {
	p.close.Do(func() { close(p.closed) })
	p.Cut()
	return p.listener.Close()
}

func (p *TCPProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.pass(client)
	}
}

func (p *TCPProxy) pass(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	upstream, cut := p.upstream, p.cut
	p.mu.Unlock()
	if cut {
		return
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	ended := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(server, client)
		ended <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(client, delayed{server, p})
		ended <- struct{}{}
	}()
	<-ended
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// keep registers connections, so that Cut closes them. It returns false if Cut was called before; then the caller must
// close them.
func (p *TCPProxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return !p.cut
}

// delayed is a reader of from that returns what it has read only after the delay of the proxy.
type delayed struct {
	from  net.Conn
	proxy *TCPProxy
}

func (d delayed) Read(b []byte) (int, error) {
	n, err := d.from.Read(b)
	d.proxy.mu.Lock()
	wait := d.proxy.delay
	d.proxy.mu.Unlock()
	if wait > 0 && n > 0 {
		select {
		case <-time.After(wait):
		case <-d.proxy.closed:
		}
	}
	return n, err
}
