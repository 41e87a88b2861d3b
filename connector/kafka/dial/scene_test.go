package dial

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/test/certs"
)

// broker starts an in-process broker on 127.0.0.1.
func broker(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, string) {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake, fake.ListenAddrs()[0]
}

// pki is an authority and the files that clients of its brokers use.
type pki struct {
	t   *testing.T
	dir string
	ca  *certs.CA
	// CAFile holds the certificate of this authority. Strange holds that of another authority, which the brokers do not
	// trust.
	CAFile, Strange string
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	dir := t.TempDir()
	ca := certs.NewCA(t, "test authority")
	return &pki{
		t: t, dir: dir, ca: ca,
		CAFile:  certs.Write(t, dir, "ca.pem", ca.PEM),
		Strange: certs.Write(t, dir, "strange.pem", certs.NewCA(t, "another authority").PEM),
	}
}

// pair writes a certificate signed by the authority, and its key, and returns the names of both files.
func (p *pki) pair(name string, l certs.Leaf) (cert, key string) {
	p.t.Helper()
	pair := p.ca.Issue(p.t, l)
	return certs.Write(p.t, p.dir, name+".pem", pair.Cert), certs.Write(p.t, p.dir, name+"-key.pem", pair.Key)
}

// server returns the TLS configuration of a broker with a certificate for 127.0.0.1.
func (p *pki) server(l certs.Leaf) *tls.Config {
	p.t.Helper()
	if l.Hosts == nil {
		l.Hosts = []string{"127.0.0.1"}
	}
	l.Name = "broker"
	return &tls.Config{Certificates: []tls.Certificate{p.ca.Issue(p.t, l).TLS(p.t)}}
}

// mutual returns the TLS configuration of a broker that requires a client certificate of this authority.
func (p *pki) mutual() *tls.Config {
	p.t.Helper()
	c := p.server(certs.Leaf{})
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, p.ca.Pool()
	return c
}

// dialer returns a Dialer with its log and its metrics, for the test to read.
func dialer(t *testing.T, cfg Config) (*Dialer, *lines, *prometheus.Registry) {
	t.Helper()
	log, reg := &lines{}, prometheus.NewRegistry()
	cfg.Logger, cfg.Registerer = slog.New(slog.NewTextHandler(log, nil)), reg
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d, log, reg
}

// opens opens a connection and sends one request on it. It returns the error of either step.
func opens(t *testing.T, d *Dialer, address string) (net.Conn, error) {
	t.Helper()
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, works(conn)
}

// works sends one request on a connection and reads its response. It returns nil if both succeed.
func works(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	return (&session{conn: conn, clientID: "test"}).metadata()
}

// causeOf returns the cause in an error, "" if err is nil.
func causeOf(err error) Cause {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Cause
	}
	return ""
}

func metric(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// lines is a log that keeps its lines in memory.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// answer makes a broker respond to each request of one kind with a response that fill completes.
func answer[R kmsg.Response](fake *kfake.Cluster, key kmsg.Key, fill func(kmsg.Request, R)) {
	fake.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := req.ResponseKind().(R)
		fill(req, resp)
		return resp, nil, true
	})
}

// serve listens on 127.0.0.1 until the test ends, and calls accept with each connection. It returns the address.
func serve(t *testing.T, accept func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
				defer stop()
				accept(conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}
