package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/test/certs"
)

const secretWord = "s3cret-of-the-test"

// TestCauses provokes each way in which opening a connection succeeds or fails, and compares the cause in the error
// with the expected one.
func TestCauses(t *testing.T) {
	pki := newPKI(t)
	past, next := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	good, goodKey := pki.pair("client", certs.Leaf{Name: "client"})
	old, oldKey := pki.pair("old", certs.Leaf{Name: "client", To: past})
	strangeCA := certs.NewCA(t, "a third authority")
	strange := strangeCA.Issue(t, certs.Leaf{Name: "client"})
	strangeCert := certs.Write(t, pki.dir, "stranger.pem", strange.Cert)
	strangeKey := certs.Write(t, pki.dir, "stranger-key.pem", strange.Key)
	trusting := func(change func(*TLS)) *TLS {
		c := &TLS{CAFile: pki.CAFile}
		if change != nil {
			change(c)
		}
		return c
	}
	twelve := func(c *tls.Config) *tls.Config { c.MaxVersion = tls.VersionTLS12; return c }
	sasl := func(m Mechanism) *SASL {
		return &SASL{Mechanism: m, Username: "sluice", Password: secretWord, InsecurePlaintext: true}
	}
	users := func(opts ...kfake.Opt) []kfake.Opt {
		opts = append(opts, kfake.EnableSASL())
		for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512} {
			opts = append(opts, kfake.Superuser(string(m), "sluice", secretWord))
		}
		return opts
	}
	refuses := func(fake *kfake.Cluster) {
		answer(fake, kmsg.SASLAuthenticate, func(_ kmsg.Request, r *kmsg.SASLAuthenticateResponse) {
			r.ErrorCode, r.ErrorMessage = 58, new("Authentication failed: Invalid username or password")
		})
	}
	for _, tt := range []struct {
		name   string
		broker []kfake.Opt
		twist  func(*kfake.Cluster)
		tls    *TLS
		sasl   *SASL
		want   Cause
		text   string // a part of the error's text
	}{
		{name: "plaintext"},
		{name: "TLS", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{}))}, tls: trusting(nil)},
		{name: "TLS 1.2", broker: []kfake.Opt{kfake.TLS(twelve(pki.server(certs.Leaf{})))}, tls: trusting(nil)},
		{
			name: "other name, expected", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{Hosts: []string{"kafka.example"}}))},
			tls: trusting(func(c *TLS) { c.ServerName = "kafka.example" }),
		},
		{name: "nothing verified", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{To: past}))}, tls: &TLS{InsecureSkipVerify: true}},
		{
			name: "mTLS", broker: []kfake.Opt{kfake.TLS(pki.mutual())},
			tls: trusting(func(c *TLS) { c.CertFile, c.KeyFile = good, goodKey }),
		},
		{name: "PLAIN", broker: users(), sasl: sasl(Plain)},
		{name: "SCRAM-SHA-256", broker: users(), sasl: sasl(ScramSHA256)},
		{name: "SCRAM-SHA-512 over TLS", broker: users(kfake.TLS(pki.server(certs.Leaf{}))), tls: trusting(nil), sasl: sasl(ScramSHA512)},

		{
			name: "unknown authority", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{}))}, tls: &TLS{CAFile: pki.Strange},
			want: UnknownCA, text: "issuer CN=test authority",
		},
		{name: "authority of the system", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{}))}, tls: &TLS{}, want: UnknownCA},
		{
			name: "expired", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{To: past}))}, tls: trusting(nil),
			want: Expired, text: past.UTC().Format("2006-01-02T15:04"),
		},
		{name: "not yet", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{From: next, To: next.Add(time.Hour)}))}, tls: trusting(nil), want: NotYetValid},
		{
			name: "other host", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{Hosts: []string{"kafka.example"}}))}, tls: trusting(nil),
			want: WrongHost, text: "127.0.0.1 is not among its names [kafka.example]",
		},
		{name: "no client certificate", broker: []kfake.Opt{kfake.TLS(pki.mutual())}, tls: trusting(nil), want: ClientCertMissing},
		{name: "no client certificate, 1.2", broker: []kfake.Opt{kfake.TLS(twelve(pki.mutual()))}, tls: trusting(nil), want: ClientCertMissing},
		{
			name: "expired client certificate", broker: []kfake.Opt{kfake.TLS(pki.mutual())},
			tls: trusting(func(c *TLS) { c.CertFile, c.KeyFile = old, oldKey }), want: ClientCertExpired,
		},
		{
			name: "strange client certificate", broker: []kfake.Opt{kfake.TLS(pki.mutual())},
			tls: trusting(func(c *TLS) { c.CertFile, c.KeyFile = strangeCert, strangeKey }), want: ClientCertRefused,
		},
		{
			name: "strange client certificate, 1.2", broker: []kfake.Opt{kfake.TLS(twelve(pki.mutual()))},
			tls: trusting(func(c *TLS) { c.CertFile, c.KeyFile = strangeCert, strangeKey }), want: ClientCertRefused,
		},
		{
			name: "old TLS", broker: []kfake.Opt{kfake.TLS(func() *tls.Config {
				c := pki.server(certs.Leaf{})
				c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
				return c
			}())}, tls: trusting(nil), want: TLSVersion,
		},
		{name: "plaintext to TLS", broker: []kfake.Opt{kfake.TLS(pki.server(certs.Leaf{}))}, want: WantsTLS},
		{name: "plaintext to mTLS", broker: []kfake.Opt{kfake.TLS(pki.mutual())}, want: WantsTLS},
		{name: "no SASL to SASL", broker: users(), want: WantsSASL, text: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"},
		{
			name: "no SASL to SASL over TLS", broker: users(kfake.TLS(pki.server(certs.Leaf{}))), tls: trusting(nil), want: WantsSASL,
		},
		{
			name: "SASL to no SASL", sasl: sasl(ScramSHA512), want: NoSASL,
			twist: func(fake *kfake.Cluster) {
				answer(fake, kmsg.SASLHandshake, func(_ kmsg.Request, r *kmsg.SASLHandshakeResponse) { r.ErrorCode = 34 })
			},
		},
		{
			name: "mechanism", sasl: sasl(ScramSHA512), want: MechanismRefused, text: "SCRAM-SHA-512; it offers GSSAPI, PLAIN",
			twist: func(fake *kfake.Cluster) {
				answer(fake, kmsg.SASLHandshake, func(_ kmsg.Request, r *kmsg.SASLHandshakeResponse) {
					r.ErrorCode, r.SupportedMechanisms = 33, []string{"GSSAPI", "PLAIN"}
				})
			},
		},
		{
			name: "wrong password", broker: users(), sasl: sasl(Plain), twist: refuses, want: CredentialsRefused,
			text: "PLAIN as sluice: Authentication failed: Invalid username or password",
		},
		{name: "wrong SCRAM password", broker: users(), sasl: sasl(ScramSHA256), twist: refuses, want: CredentialsRefused},
		{
			name: "closed while authenticating", broker: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "sluice", "another")},
			sasl: sasl(Plain), want: Closed,
		},
		{
			name: "server without the password", sasl: sasl(ScramSHA256), want: Protocol,
			twist: func(fake *kfake.Cluster) {
				answer(fake, kmsg.SASLHandshake, func(kmsg.Request, *kmsg.SASLHandshakeResponse) {})
				answer(fake, kmsg.SASLAuthenticate, func(_ kmsg.Request, r *kmsg.SASLAuthenticateResponse) { r.SASLAuthBytes = []byte("v=") })
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake, address := broker(t, tt.broker...)
			if tt.twist != nil {
				tt.twist(fake)
			}
			d, _, reg := dialer(t, Config{TLS: tt.tls, SASL: tt.sasl, Timeout: 10 * time.Second})
			_, err := opens(t, d, address)
			names(t, err, tt.want, tt.text, address)
			result := string(tt.want)
			if tt.want == "" {
				result = "ok"
			}
			if got := metric(t, reg, "sluice_kafka_connects_total", result); got != 1 {
				t.Errorf("counted %v times as %s", got, result)
			}
		})
	}
}

// names fails the test unless err has this cause and this address, and its text contains text. If want is empty, err
// must be nil.
func names(t *testing.T, err error, want Cause, text, address string) {
	t.Helper()
	if got := causeOf(err); got != want || want == "" && err != nil {
		t.Fatalf("cause %q (%v), want %q", got, err, want)
	}
	if err == nil {
		return
	}
	e, _ := errors.AsType[*Error](err)
	x := want.explain()
	for _, part := range []string{address, x.text, x.hint, text} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if e.Refused() != x.refused || e.What() == "" || e.Hint() == "" {
		t.Errorf("refused %v, what %q, hint %q", e.Refused(), e.What(), e.Hint())
	}
	if strings.Contains(err.Error(), secretWord) {
		t.Errorf("the error shows the secret: %v", err)
	}
}

// TestNoBroker: if an address has something other than a broker, or nothing, the error names the cause that fits.
func TestNoBroker(t *testing.T) {
	swallow := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	pki := newPKI(t)
	trust := &TLS{CAFile: pki.CAFile}
	for _, tt := range []struct {
		name    string
		accept  func(net.Conn) // handles a connection; if nil, no process listens
		address string
		tls     *TLS
		want    Cause
	}{
		{name: "nobody listens", want: Unreachable},
		{name: "no such host", address: "no-such-host.invalid:9092", want: UnknownHost},
		{name: "silent", accept: swallow, want: Silent},
		{name: "silent TLS", accept: swallow, tls: trust, want: Silent},
		{name: "closes", accept: func(net.Conn) {}, want: Closed},
		{name: "closes TLS", accept: func(net.Conn) {}, tls: trust, want: Closed},
		{name: "another protocol", accept: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, want: NotKafka},
		{
			name: "plaintext behind TLS", tls: trust, want: NoTLS,
			accept: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			address := tt.address
			if address == "" {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				address = l.Addr().String()
				_ = l.Close()
			}
			if tt.accept != nil {
				address = serve(t, tt.accept)
			}
			d, _, _ := dialer(t, Config{TLS: tt.tls, Timeout: 300 * time.Millisecond})
			_, err := opens(t, d, address)
			names(t, err, tt.want, "", address)
		})
	}
}

// TestTLSToPlaintext: if a client begins TLS at a Kafka listener without TLS, the error has the cause NoTLS. Such a
// listener reads the TLS handshake as a request that is too large, and closes the connection.
func TestTLSToPlaintext(t *testing.T) {
	_, behind := broker(t)
	pki := newPKI(t)
	address := serve(t, func(c net.Conn) {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil || be.Uint32(head[:]) > 100<<20 {
			return
		}
		to, err := net.Dial("tcp", behind)
		if err != nil {
			return
		}
		defer func() { _ = to.Close() }()
		_, _ = to.Write(head[:])
		go func() { _, _ = io.Copy(c, to) }()
		_, _ = io.Copy(to, c)
	})
	d, _, _ := dialer(t, Config{TLS: &TLS{CAFile: pki.CAFile}})
	_, err := opens(t, d, address)
	names(t, err, NoTLS, "", address)
}

// TestCheck: New refuses invalid configurations.
func TestCheck(t *testing.T) {
	token := certs.Write(t, t.TempDir(), "token", []byte("x"))
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{TLS: &TLS{CertFile: "a"}}, "a certificate needs its key"},
		{Config{SASL: &SASL{Mechanism: "GSSAPI"}}, "unknown mechanism"},
		{Config{SASL: &SASL{Mechanism: OAuthBearer}}, "token"},
		{Config{SASL: &SASL{Mechanism: ScramSHA256, Username: "u"}}, "password"},
		{Config{SASL: &SASL{Mechanism: ScramSHA256, Username: "u", Password: "p", PasswordFile: token}}, "password"},
		{Config{SASL: &SASL{Mechanism: ScramSHA256, Password: "p"}}, "user name"},
		{Config{TLS: &TLS{CAFile: "/nonexistent"}}, "no such file"},
		{Config{TLS: &TLS{CAFile: token}}, "holds no certificate"},
	} {
		if _, err := New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: want %q", err, tt.want)
		}
	}
	if _, err := New(Config{SASL: &SASL{Mechanism: ScramSHA256, Username: "u", Password: "p"}}); err != nil {
		t.Error(err) // SCRAM does not send the password, so it is allowed without TLS
	}
	s := SASL{Mechanism: Plain, Username: "u", Password: secretWord}
	if strings.Contains(s.String()+s.GoString(), secretWord) {
		t.Error("shows the password")
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
}

// TestPlaintext: without TLS, credentials are sent only to this machine, unless the configuration has
// InsecurePlaintext. The dialer refuses all other addresses before it connects.
func TestPlaintext(t *testing.T) {
	pki := newPKI(t)
	token := certs.Write(t, t.TempDir(), "token", []byte("token"))
	for _, m := range []Mechanism{Plain, ScramSHA256, ScramSHA512, OAuthBearer} {
		for _, tt := range []struct {
			address  string
			tls      *TLS
			insecure bool
			refused  bool
		}{
			{"kafka.example:9092", nil, false, true},
			{"10.0.0.1:9092", nil, false, true},
			{"kafka.example:9092", nil, true, false},
			{"kafka.example:9092", &TLS{CAFile: pki.CAFile}, false, false},
			{"127.0.0.1:9092", nil, false, false},
			{"[::1]:9092", nil, false, false},
			{"localhost:9092", nil, false, false},
		} {
			sasl := &SASL{Mechanism: m, Username: "sluice", Password: secretWord, InsecurePlaintext: tt.insecure}
			if m == OAuthBearer {
				sasl = &SASL{Mechanism: m, TokenFile: token, InsecurePlaintext: tt.insecure}
			}
			dialed := false
			d, _, _ := dialer(t, Config{TLS: tt.tls, SASL: sasl, Dial: func(context.Context, string, string) (net.Conn, error) {
				dialed = true
				return nil, io.EOF
			}})
			_, err := d.DialContext(t.Context(), "tcp", tt.address)
			if refused := causeOf(err) == Plaintext; refused != tt.refused || dialed == tt.refused {
				t.Errorf("%s to %s, insecure %v: dialed %v, %v", m, tt.address, tt.insecure, dialed, err)
			}
		}
	}
}
