package pgconfig

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sluice/secure"
	"sluice/test/certs"
)

const password = "s3cret-of-the-test"

// TestParse covers which URLs are refused because they would expose the password, and which are accepted.
func TestParse(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	ca := certs.NewCA(t, "test").File(t)
	const at = "postgres://u:" + password + "@"
	for _, tt := range []struct {
		o    Options
		want string // a part of the error's text; "" if there is no error
	}{
		{Options{URL: at + "db.example/x?sslmode=verify-full"}, ""},
		{Options{URL: at + "db.example/x"}, "db.example without verifying the server's certificate"},
		{Options{URL: at + "db.example/x?sslmode=prefer"}, "sslmode=verify-full"},
		{Options{URL: at + "db.example/x?sslmode=disable"}, "db.example without TLS"},
		{Options{URL: at + "db.example/x?sslmode=allow"}, "without TLS"},
		{Options{URL: at + "db.example/x?sslmode=require"}, "without verifying"},
		{Options{URL: at + "db.example/x?sslmode=verify-ca&sslrootcert=" + ca}, "without verifying"},
		{Options{URL: at + "127.0.0.1,db.example/x?sslmode=disable"}, "db.example without TLS"},
		{Options{URL: at + "db.example,127.0.0.1/x?sslmode=verify-full"}, ""},
		{Options{URL: "host=db.example user=u password=" + password}, "db.example"},
		{Options{URL: at + "127.0.0.1/x"}, ""},
		{Options{URL: at + "[::1]/x?sslmode=disable"}, ""},
		{Options{URL: at + "localhost/x?sslmode=disable"}, ""},
		{Options{URL: "postgres:///x?host=/run/postgresql&password=" + password}, ""},
		{Options{URL: "postgres://u@db.example/x"}, ""}, // the URL has no secret
		{Options{URL: at + "db.example/x?sslmode=disable", InsecurePlaintext: true}, ""},
		{Options{URL: at + "db.example/x", CAFile: ca}, ""},
		{Options{URL: at + "a.example,b.example/x?sslmode=require", CAFile: ca}, ""},
		{Options{URL: at + "db.example/x?sslmode=disable", CAFile: ca}, "ca_file has no effect"},
		{Options{URL: at + "db.example/x", CAFile: ca + ".none"}, "ca_file"},
		{Options{URL: at + "db.example:port/x"}, "cannot be read"},
	} {
		config, err := Parse(tt.o)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), password)) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
		if err != nil || tt.o.CAFile == "" {
			continue
		}
		seen := map[string]bool{}
		for _, target := range targets(&config.ConnConfig.Config) {
			if c := target.TLSConfig; seen[target.Host] || !secure.Verifies(c) || c.RootCAs == nil || c.ServerName != target.Host {
				t.Errorf("%+v: %s by %+v", tt.o, target.Host, c)
			}
			seen[target.Host] = true
		}
	}
	t.Setenv("PGPASSWORD", password)
	if _, err := Parse(Options{URL: "postgres://u@db.example/x"}); !errors.Is(err, secure.ErrPlaintext) {
		t.Errorf("a password from the environment: %v", err)
	}
}

// server is a Postgres server that asks for the password in plain text. It supports TLS if it has a certificate.
type server struct {
	mu   sync.Mutex
	read bytes.Buffer // all bytes that the server received, decrypted
}

func (s *server) heard(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.read.String(), text)
}

func (s *server) serve(conn net.Conn, config *tls.Config) {
	defer func() { _ = conn.Close() }()
	message := func(head int) (body []byte, ok bool) {
		b := make([]byte, head+4)
		if _, err := io.ReadFull(conn, b); err != nil {
			return nil, false
		}
		body = make([]byte, binary.BigEndian.Uint32(b[head:])-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.read.Write(body)
		return body, true
	}
	for {
		body, ok := message(0)
		if !ok {
			return
		}
		if binary.BigEndian.Uint32(body) == 80877103 { // the request for TLS
			if config == nil {
				_, _ = conn.Write([]byte("N"))
				continue
			}
			_, _ = conn.Write([]byte("S"))
			conn = tls.Server(conn, config)
			continue
		}
		_, _ = conn.Write([]byte("R\x00\x00\x00\x08\x00\x00\x00\x03")) // asks for the password in plain text
		_, _ = message(1)
		// Tells the client that it is connected.
		_, _ = conn.Write([]byte("R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I"))
	}
}

// connect connects to a server under the name db.example.
func connect(t *testing.T, o Options, certificate *tls.Config) (*server, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn, certificate) })
		}
	})
	defer all.Wait()
	defer func() { _ = l.Close() }()
	config, err := Parse(o)
	if err != nil {
		return s, err
	}
	c := config.ConnConfig
	c.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
	c.DialFunc = pgconn.DialFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, c)
	if err == nil {
		_ = conn.Close(ctx)
	}
	return s, err
}

// TestPasswordStays: a server without TLS, or with an untrusted certificate, never gets the password. A server with a
// certificate of the CA gets it, and so does a server without TLS if InsecurePlaintext is set.
func TestPasswordStays(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	own, other := certs.NewCA(t, "own"), certs.NewCA(t, "other")
	ca := own.File(t)
	const url = "postgres://u:" + password + "@db.example/x"
	for _, tt := range []struct {
		name        string
		o           Options
		certificate *tls.Config
		gets        bool
	}{
		{"no sslmode, no TLS", Options{URL: url}, nil, false},
		{"verify-full, no TLS", Options{URL: url + "?sslmode=verify-full"}, nil, false},
		{"require, another authority", Options{URL: url + "?sslmode=require"}, other.Server(t, "db.example"), false},
		{"ca_file, no TLS", Options{URL: url, CAFile: ca}, nil, false},
		{"ca_file and prefer, no TLS", Options{URL: url + "?sslmode=prefer", CAFile: ca}, nil, false},
		{"ca_file, another authority", Options{URL: url, CAFile: ca}, other.Server(t, "db.example"), false},
		{"ca_file, another host", Options{URL: url, CAFile: ca}, own.Server(t, "other.example"), false},
		{"ca_file", Options{URL: url, CAFile: ca}, own.Server(t, "db.example"), true},
		{"sslrootcert", Options{URL: url + "?sslmode=verify-full&sslrootcert=" + ca}, own.Server(t, "db.example"), true},
		{"insecure", Options{URL: url + "?sslmode=disable", InsecurePlaintext: true}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := connect(t, tt.o, tt.certificate)
			if (err == nil) != tt.gets || s.heard(password) != tt.gets {
				t.Errorf("connected: %v; the server got the password: %v, want %v", err, s.heard(password), tt.gets)
			}
		})
	}
}

// TestParse_Bounds: the bytes that a server sends are bounded, both during the connection setup and in a reply.
func TestParse_Bounds(t *testing.T) {
	message := func(kind byte, length int, body string) string {
		return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(length+4))) + body
	}
	whole := func(kind byte, body string) string { return message(kind, len(body), body) }
	const welcome = "R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I"
	text, huge := strings.Repeat("x", 4000), 600<<20
	row := whole('D', "\x00\x01\x00\x00\x0f\xa0"+text)
	for name, tt := range map[string]struct {
		start, reply string
		again        string // the server sends this again and again
		want         string // a part of the error's text
	}{
		"a message of 2 GiB":     {"R\x7f\xff\xff\xff", "", "", "invalid body length"},
		"a message of 600 MiB":   {message('S', huge, ""), "", text, "invalid body length"},
		"endless parameters":     {"R\x00\x00\x00\x08\x00\x00\x00\x00", "", whole('S', text+"\x00v\x00"), "reply too large: more than 16 MiB from 127.0.0.1:"},
		"endless notices":        {"R\x00\x00\x00\x08\x00\x00\x00\x00", "", whole('N', "M"+text+"\x00\x00"), "reply too large"},
		"a row of 600 MiB":       {welcome, message('D', huge, "\x00\x01\x23\xc3\x46\x00"), text, "invalid body length"},
		"endless rows":           {welcome, whole('T', "\x00\x00"), row, "reply too large"},
		"endless notices behind": {welcome, "", whole('N', "M"+text+"\x00\x00"), "reply too large"},
	} {
		t.Run(name, func(t *testing.T) {
			address := sends(t, tt.start, tt.reply, tt.again)
			config, err := Parse(Options{URL: "postgres://u@" + address + "/x?sslmode=disable"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
			if err == nil {
				err = conn.PgConn().Exec(ctx, "SELECT").Close()
				_ = conn.Close(ctx)
			}
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
				t.Errorf("%d MiB allocated", allocated>>20)
			}
		})
	}
}

// sends starts a server that sends start to each client, reply after the first request, and then again in a loop until
// it has sent 100 MiB. It returns the address of the server.
func sends(t *testing.T, start, reply, again string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				buffer := make([]byte, 4096)
				_, err := conn.Read(buffer)
				if err == nil {
					_, err = io.WriteString(conn, start)
				}
				if err == nil && strings.Contains(start, "Z") {
					_, err = conn.Read(buffer)
				}
				if err == nil {
					_, err = io.WriteString(conn, reply)
				}
				for sent := 0; err == nil && again != "" && sent < 100<<20; sent += len(again) {
					_, err = io.WriteString(conn, again)
				}
			})
		}
	})
	return l.Addr().String()
}

// TestBoundConn: the bound limits the bytes of one reply, and each request begins a new count.
func TestBoundConn(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	c := &boundConn{Conn: near}
	reads := func(n int64) error {
		go func() { _, _ = io.CopyN(far, zeros{}, n) }()
		_, err := io.CopyN(io.Discard, c, n)
		return err
	}
	for range 3 {
		if _, err := c.Write([]byte("a request")); err != nil {
			t.Fatal(err)
		}
		if err := reads(maxReply); err != nil {
			t.Fatal(err)
		}
	}
	if err := reads(1); err == nil {
		t.Error("a byte beyond the bound arrived")
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
