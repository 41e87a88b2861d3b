package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/secure"
	"sluice/test/certs"
)

const password = "s3cret-of-the-test"

// TestCheck: which URLs are refused because of the password, and which are not.
func TestCheck(t *testing.T) {
	ca := certs.Write(t, t.TempDir(), "ca.pem", certs.NewCA(t, "test").PEM)
	for _, tt := range []struct {
		o    Options
		want string // of the error; "" for none
	}{
		{Options{URL: "rediss://u:" + password + "@h"}, ""},
		{Options{URL: "redis://u:" + password + "@h"}, "without TLS: write rediss://"},
		{Options{URL: "redis://:" + password + "@h"}, "h:6379 without TLS"},
		{Options{URL: "redis://h?password=" + password}, ""}, // an option that go-redis does not take for one
		{Options{URL: "rediss://u:" + password + "@h?skip_verify=true"}, "remove skip_verify"},
		{Options{URL: "rediss://u:" + password + "@h?skip_verify=true", CAFile: ca}, "remove skip_verify"},
		{Options{URL: "redis://h"}, ""},
		{Options{URL: "redis://u:" + password + "@127.0.0.1:7"}, ""},
		{Options{URL: "redis://u:" + password + "@[::1]"}, ""},
		{Options{URL: "redis://u:" + password + "@localhost"}, ""},
		{Options{URL: "redis://u:" + password + "@h", InsecurePlaintext: true}, ""},
		{Options{URL: "rediss://u:" + password + "@h", CAFile: ca}, ""},
		{Options{URL: "redis://u:" + password + "@h", CAFile: ca}, "ca_file does not count"},
		{Options{URL: "rediss://u:" + password + "@h", CAFile: ca + ".none"}, "ca_file"},
	} {
		err := tt.o.Check()
		if strings.Contains(tt.o.URL, "?password=") {
			if err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("%+v: %v", tt.o, err)
			}
			continue
		}
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), password)) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	if err := (Options{URL: "redis://u:p@h"}).Check(); !errors.Is(err, secure.ErrPlaintext) {
		t.Error(err)
	}
}

// TestPasswordStays: a server without TLS, or with a certificate that cannot be trusted, never gets the password.
func TestPasswordStays(t *testing.T) {
	dir, own, other := t.TempDir(), certs.NewCA(t, "own"), certs.NewCA(t, "other")
	ca := certs.Write(t, dir, "ca.pem", own.PEM)
	certificate := func(ca *certs.CA, host string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certs.Leaf{Name: "redis", Hosts: []string{host}}).TLS(t)}}
	}
	const url = "rediss://u:" + password + "@redis.example:6379"
	for _, tt := range []struct {
		name        string
		o           Options
		certificate *tls.Config
		gets        bool
	}{
		{"no TLS", Options{URL: url, CAFile: ca}, nil, false},
		{"another authority", Options{URL: url, CAFile: ca}, certificate(other, "redis.example"), false},
		{"another host", Options{URL: url, CAFile: ca}, certificate(own, "other.example"), false},
		{"authority of the system", Options{URL: url}, certificate(own, "redis.example"), false},
		{"trusted", Options{URL: url, CAFile: ca}, certificate(own, "redis.example"), true},
		{"insecure", Options{URL: "redis://u:" + password + "@redis.example", InsecurePlaintext: true}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := authenticate(t, tt.o, tt.certificate)
			if strings.Contains(got, password) != tt.gets || err == nil { // the server answers nonsense
				t.Errorf("the server got %q (%v); the password: %v, want %v", got, err, !tt.gets, tt.gets)
			}
		})
	}
}

// authenticate connects to a server under the name of the URL and returns what the server got, decrypted.
func authenticate(t *testing.T, o Options, certificate *tls.Config) (got string, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		if certificate != nil {
			conn = tls.Server(conn, certificate)
		}
		r := bufio.NewReader(conn)
		for {
			line, err := r.ReadString('\n')
			mu.Lock()
			got += line
			mu.Unlock()
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "*") { // a command begins: answer it in advance
				_, _ = io.WriteString(conn, "+OK\r\n")
			}
		}
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			all.Go(func() { serve(conn) })
		}
	})
	c, err := o.client()
	if err != nil {
		t.Fatal(err)
	}
	c.MaxRetries, c.DialerRetries, c.Protocol, c.DisableIdentity = -1, 1, 2, true
	config := c.TLSConfig
	c.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil || config == nil {
			return conn, err
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secured, nil
	}
	client := goredis.NewClient(c)
	if certificate == nil && config != nil {
		c.DialTimeout = time.Second // it waits for a handshake that does not come
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = client.Ping(ctx).Err()
	_ = client.Close()
	_ = l.Close()
	mu.Lock()
	for _, conn := range conns {
		_ = conn.Close()
	}
	mu.Unlock()
	all.Wait()
	return got, err
}
