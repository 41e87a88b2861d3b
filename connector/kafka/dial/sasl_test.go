package dial

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"sluice/test/certs"
)

// jwt returns an unsigned token that expires at a time.
func jwt(at time.Time) string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"none"}`)) + "." + e(fmt.Appendf(nil, `{"sub":"sluice","exp":%d.5}`, at.Unix())) + "."
}

// TestBearer: the client sends the messages of RFC 7628, ends the exchange after a refusal, and names an expired token
// as the cause.
func TestBearer(t *testing.T) {
	fake, address := broker(t)
	answer(fake, kmsg.SASLHandshake, func(req kmsg.Request, r *kmsg.SASLHandshakeResponse) {
		if req.(*kmsg.SASLHandshakeRequest).Mechanism != "OAUTHBEARER" {
			r.ErrorCode = 33
		}
	})
	dir := t.TempDir()
	var said []string
	valid := jwt(time.Now().Add(time.Hour))
	answer(fake, kmsg.SASLAuthenticate, func(req kmsg.Request, r *kmsg.SASLAuthenticateResponse) {
		words := string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		switch said = append(said, words); words {
		case "n,,\x01auth=Bearer " + valid + "\x01\x01":
		case "\x01":
			r.ErrorCode, r.ErrorMessage = 58, new(`{"status":"invalid_token"}`)
		default:
			r.SASLAuthBytes = []byte(`{"status":"invalid_token"}`)
		}
	})
	file := certs.Write(t, dir, "token", []byte(valid+"\n"))
	d, _, _ := dialer(t, Config{SASL: &SASL{Mechanism: OAuthBearer, TokenFile: file, InsecurePlaintext: true}})
	if _, err := opens(t, d, address); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 {
		t.Errorf("said %q", said)
	}
	for _, tt := range []struct {
		token string
		want  Cause
		text  string
	}{
		{jwt(time.Now().Add(-time.Minute)), TokenExpired, "from " + file},
		{jwt(time.Now().Add(time.Minute)), CredentialsRefused, "invalid_token"},
		{"opaque", CredentialsRefused, file},
		{"a.b.c", CredentialsRefused, file},
		{"two words", BadFile, file + ": unusable: the token holds characters that no token has"},
	} {
		certs.Write(t, dir, "token", []byte(tt.token))
		_, err := opens(t, d, address)
		names(t, err, tt.want, tt.text, address)
		if strings.Contains(err.Error(), tt.token) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

// TestScram: with the messages that a server sends in the example of RFC 7677, section 3, the client sends those of the
// example and accepts the server. A false proof, or any other bad message of the server, is an error.
func TestScram(t *testing.T) {
	const (
		nonce = "rOprNGfwEbeRWgbNEkqO"
		first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
		last  = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
	)
	begin := func() *scram {
		return &scram{hash: sha256.New, user: "user", password: "pencil", nonce: nonce}
	}
	s := begin()
	var said []string
	words, err := s.first()
	for _, server := range []string{first, last} {
		said = append(said, string(words))
		if err == nil {
			words, err = s.next([]byte(server))
		}
	}
	if err != nil || words != nil {
		t.Fatalf("%q, %v", words, err)
	}
	want := []string{
		"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
		"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		server []string
		want   error // nil: an error that is none of the named ones
	}{
		{[]string{first, "v=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}, errUnproven},
		{[]string{first, ""}, errUnproven},
		{[]string{first, "e=invalid-proof"}, errRefused},
		{[]string{"e=unknown-user"}, errRefused},
		{[]string{last}, nil},
		{[]string{""}, nil},
		{[]string{strings.Replace(first, nonce, "another", 1)}, nil},
		{[]string{"r=" + nonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"}, nil},
		{[]string{strings.Replace(first, "i=4096", "i=4095", 1)}, nil},
		{[]string{strings.Replace(first, "i=4096", "i=99999999", 1)}, nil},
		{[]string{strings.Replace(first, "i=4096", "i=-1", 1)}, nil},
		{[]string{strings.Replace(first, "s=W", "s=?", 1)}, nil},
	} {
		s := begin()
		_, err := s.first()
		for _, server := range tt.server {
			if err == nil {
				_, err = s.next([]byte(server))
			}
		}
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.server, err, tt.want)
		}
	}
	odd := scram{user: "a=b,c", nonce: "n"}
	if words, _ := odd.first(); string(words) != "n,,n=a=3Db=2Cc,r=n" {
		t.Errorf("%q", words)
	}
	if a, b := newScram(ScramSHA512, "", ""), newScram(ScramSHA512, "", ""); a.nonce == b.nonce || a.hash().Size() != 64 {
		t.Error("two exchanges with one nonce, or the wrong hash")
	}
}

// FuzzServer: no message of a broker makes the client panic or read beyond the end of the message, and no such message
// is accepted as proof that the broker knows the password.
func FuzzServer(f *testing.F) {
	f.Add([]byte("r=nonceX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"), []byte("v=AAAA"), []byte("\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, first, last, response []byte) {
		s := &scram{hash: sha256.New, user: "u", password: "p", nonce: "nonce"}
		_, _ = s.first()
		// A high iteration count makes SCRAM slow by design, so the test skips it.
		if i := attributes(string(first))["i"]; len(i) > 4 {
			return
		}
		if _, err := s.next(first); err == nil {
			if _, err := s.next(last); err == nil {
				t.Fatal("a proof without the password")
			}
		}
		r := reader{b: response}
		_, _, _ = r.i16(), r.str(), r.bytes()
		if _ = r.i64(); r.err == nil && len(response) < 16 {
			t.Fatal("read beyond the end")
		}
		_, _ = expiry(string(first))
	})
}

// TestReauthentication: a connection authenticates again, with the current credentials, before the first request that
// would otherwise come after the end of its session. No request fails.
func TestReauthentication(t *testing.T) {
	for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
		t.Run(string(m), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &kfake.VirtualNetwork{}
				fake, address := broker(t, kfake.ListenFn(network.Listen), kfake.Ports(9092), kfake.EnableSASL(),
					kfake.Superuser(string(m), "sluice", "right"),
					kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "2000"}))
				defer fake.Close()
				file := certs.Write(t, t.TempDir(), "password", []byte("right"))
				d, _, reg := dialer(t, Config{
					Dial: network.DialContext, SASL: &SASL{Mechanism: m, Username: "sluice", PasswordFile: file, InsecurePlaintext: true},
				})
				opened, err := opens(t, d, address)
				if err != nil {
					t.Fatal(err)
				}
				conn := opened.(*conn)
				defer func() { _ = conn.Close() }()
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					// The deadline of an earlier read must neither end the authentication nor be changed by it.
					if err := conn.SetWriteDeadline(time.Time{}); err != nil {
						t.Fatal(err)
					}
					if err := conn.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
						t.Fatal(err)
					}
					s := &session{conn: lateReader{conn}, clientID: "test"}
					if err := s.metadata(); err != nil {
						t.Fatal(err)
					}
				}
				if n := metric(t, reg, "sluice_kafka_reauthentications_total", "ok"); n < 4 || n > 6 {
					t.Errorf("authenticated again %v times in 10 s with sessions of 2 s", n)
				}
				time.Sleep(time.Hour) // the connection is unused
				if err := works(conn); err != nil {
					t.Errorf("after an hour: %v", err)
				}
				certs.Write(t, strings.TrimSuffix(file, "/password"), "password", []byte("wrong"))
				time.Sleep(2 * time.Second)
				if err := works(conn); causeOf(err) != Closed {
					t.Errorf("with another password: %v", err)
				}
				if err := works(conn); err == nil {
					t.Error("works after a refusal")
				}
			})
		})
	}
}

// lateReader is a connection that sets the read deadline at each Read, so after the request was written. kafka-go does
// the same.
type lateReader struct{ *conn }

func (l lateReader) Read(b []byte) (int, error) {
	if err := l.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	return l.conn.Read(b)
}

// TestReauthentication_Deadlines: if another goroutine sets a deadline while a connection authenticates again, the
// deadline applies only afterwards. It does not give the authentication more time.
func TestReauthentication_Deadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		fake, address := broker(t, kfake.ListenFn(network.Listen), kfake.Ports(9092), kfake.EnableSASL(),
			kfake.Superuser(string(Plain), "sluice", "right"),
			kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "2000"}))
		defer fake.Close()
		below := &deadlines{}
		d, _, _ := dialer(t, Config{
			Dial: func(ctx context.Context, net, address string) (net.Conn, error) {
				c, err := network.DialContext(ctx, net, address)
				below.Conn = c
				return below, err
			},
			SASL: &SASL{Mechanism: Plain, Username: "sluice", Password: "right", InsecurePlaintext: true},
		})
		conn, err := opens(t, d, address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		time.Sleep(2 * time.Second) // the session is about to end
		authenticating := time.Now()
		read, write := authenticating.Add(time.Hour), authenticating.Add(2*time.Hour)
		below.onWrite = func() {
			for _, err := range []error{
				conn.SetDeadline(time.Time{}), conn.SetReadDeadline(read), conn.SetWriteDeadline(write),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			if want := authenticating.Add(defaultTimeout); !below.read.Equal(want) || !below.write.Equal(want) {
				t.Errorf("authenticating until %v and %v, want %v", below.read, below.write, want)
			}
		}
		if err := (&session{conn: conn, clientID: "test"}).metadata(); err != nil {
			t.Fatal(err)
		}
		if !below.read.Equal(read) || !below.write.Equal(write) {
			t.Errorf("deadlines %v and %v, want %v and %v", below.read, below.write, read, write)
		}
	})
}

// deadlines is a connection that records the deadlines set on it. Before the next Write, it calls onWrite, once.
type deadlines struct {
	net.Conn
	read, write time.Time
	onWrite     func()
}

func (d *deadlines) Write(b []byte) (int, error) {
	if f := d.onWrite; f != nil {
		d.onWrite = nil
		f()
	}
	return d.Conn.Write(b)
}

func (d *deadlines) SetDeadline(t time.Time) error {
	d.read, d.write = t, t
	return d.Conn.SetDeadline(t)
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = t
	return d.Conn.SetReadDeadline(t)
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = t
	return d.Conn.SetWriteDeadline(t)
}

// TestRequests: a stream of requests may arrive in pieces of any size. Each request is found exactly once, with the
// data that are needed to read its response.
func TestRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 6).Draw(t, "sizes")
		var stream []byte
		var want []request
		for i, n := range sizes {
			r := request{protocol.ApiKey(i), int16(i + 1), uint32(i + 2)}
			stream = be.AppendUint32(stream, uint32(n+8))
			stream = be.AppendUint16(stream, uint16(r.key))
			stream = be.AppendUint16(stream, uint16(r.version))
			stream = be.AppendUint32(stream, r.corr)
			stream = append(stream, make([]byte, n)...)
			want = append(want, r)
		}
		var r requests
		var got []request
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got = append(got, r.advance(rest[:n])...)
			rest = rest[n:]
		}
		if !slices.Equal(got, want) || !r.between() {
			t.Fatalf("saw %v, want %v; between: %v", got, want, r.between())
		}
		if r.advance([]byte{0}); r.between() {
			t.Fatal("between requests after a byte of one")
		}
	})
}
