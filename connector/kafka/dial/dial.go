// Package dial opens connections to brokers: TCP, then TLS, then SASL. Every failure is an [Error] with the step, the
// cause and what to do about it, because Kafka's own answer to most mistakes is to close the connection.
//
// All connections to Kafka come from this package. When [Dialer.DialContext] returns one, a broker has answered on
// it, over TLS and authenticated if configured. The connection keeps itself authenticated.
//
// Files (CA, certificate, key, password, token) are read again for each connection and each authentication.
package dial

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/reliability"
)

// Config configures a [Dialer].
type Config struct {
	// ClientID names this client in the brokers' logs.
	ClientID string
	// Timeout bounds the opening of one connection, 5 s if zero.
	Timeout time.Duration
	// TLS is nil for plaintext, SASL nil for no authentication.
	TLS  *TLS
	SASL *SASL
	// Own reports whether the caller itself decodes the responses of an API in a version, and limits their size. The
	// connection checks all other responses before the caller can read them. If Own is nil, it checks all.
	Own func(key protocol.ApiKey, version int16) bool
	// Dial opens the TCP connection; nil means net.Dialer. It must return when its context ends.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// TLS configures encryption and both sides' certificates. Versions below TLS 1.2 are not used. The files are PEM.
type TLS struct {
	// CAFile holds the authorities that brokers' certificates are verified with; "" means those of the system.
	CAFile string
	// CertFile and KeyFile are our certificate and its key, for brokers that request one (mTLS). Both or neither.
	CertFile, KeyFile string
	// ServerName is the name expected in the brokers' certificates instead of the dialed host.
	ServerName string
	// InsecureSkipVerify disables the verification of brokers' certificates.
	InsecureSkipVerify bool
}

// SASL configures the authentication.
type SASL struct {
	Mechanism Mechanism
	// Username is needed by all mechanisms but OAUTHBEARER. The password is Password or the content of PasswordFile.
	Username, Password, PasswordFile string
	// TokenFile holds the token of OAUTHBEARER.
	TokenFile string
	// InsecurePlaintext allows SASL without TLS to other hosts. Everyone on the network path can then read the secret
	// of PLAIN and OAUTHBEARER, guess the password of SCRAM, and impersonate the broker.
	InsecurePlaintext bool
}

// String returns mechanism and user, without the secret.
func (s SASL) String() string { return string(s.Mechanism) + " " + s.Username }

// GoString hides the secret from %#v.
func (s SASL) GoString() string { return s.String() }

// Mechanism is the name of a SASL mechanism in Kafka's protocol.
type Mechanism string

// The mechanisms.
const (
	Plain       Mechanism = "PLAIN"         // RFC 4616
	ScramSHA256 Mechanism = "SCRAM-SHA-256" // RFC 5802, RFC 7677
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	OAuthBearer Mechanism = "OAUTHBEARER" // RFC 7628, KIP-255
)

const (
	defaultTimeout = 5 * time.Second
	// refusalTTL is how long the dialer returns a refusal without a new attempt, unless the files change, because a
	// wrong password every second could lock the account. It is shorter than the minute between two checks of a hold.
	refusalTTL = 30 * time.Second
	// diagnoseEvery is the shortest time between two diagnoses of one address: the dialer opens a second connection to
	// find out why the broker closed the first one without a reason.
	diagnoseEvery = time.Minute
	// reportEvery is the shortest time between two log lines about malformed responses of one address.
	reportEvery = time.Minute
)

// Dialer opens connections. It is safe for concurrent use.
type Dialer struct {
	cfg     Config
	files   *files
	metrics *metrics

	mu    sync.Mutex
	known map[string]*place // what is known of each address
}

// place is what the Dialer keeps about one address between attempts.
type place struct {
	refusal *Error // refusal is the error of the last attempt if the broker refused it. at is the time of the attempt, files the fingerprint of the files that it used.
	at      time.Time
	files   fingerprint

	diagnosed time.Time
	refused   *reliability.Sparse // limits the log lines about malformed responses from this address
	open      bool                // true if the address serves requests without authentication
}

// New validates cfg and reads the files that it names.
func New(cfg Config) (*Dialer, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Dialer{cfg: cfg, metrics: newMetrics(cfg.Registerer), known: map[string]*place{}}
	d.files = newFiles(cfg, d.metrics)
	if _, err := d.files.load(); err != nil {
		return nil, err
	}
	return d, nil
}

func (c *Config) check() error {
	if t := c.TLS; t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("TLS: a certificate needs its key: name both files, or none")
	}
	s := c.SASL
	if s == nil {
		return nil
	}
	switch s.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
		if s.Username == "" || (s.Password == "") == (s.PasswordFile == "") {
			return fmt.Errorf("SASL: %s needs a user name, and a password or a file that holds it", s.Mechanism)
		}
	case OAuthBearer:
		if s.TokenFile == "" {
			return fmt.Errorf("SASL: %s needs a file that holds the token", s.Mechanism)
		}
	default:
		return fmt.Errorf("SASL: unknown mechanism %q", string(s.Mechanism))
	}
	return nil
}

// DialContext opens a connection to the broker at address. If it cannot, the error is an [*Error]. After a refusal it
// returns the same error for half a minute without a new attempt, unless the files change.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	m, err := d.files.load()
	if err != nil {
		return nil, err
	}
	if known := d.refused(address, m.sum); known != nil {
		return nil, known
	}
	conn, err := d.open(ctx, m, network, address)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (d *Dialer) open(ctx context.Context, m *material, network, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	o := &opening{d: d, m: m, network: network, address: address}
	conn, err := o.open(ctx)
	d.metrics.dialed(err)
	d.note(address, m.sum, err)
	return conn, err
}

// Opened describes an open connection.
type Opened struct {
	// TLS is the state of the TLS connection, nil for plaintext.
	TLS *tls.ConnectionState
	// Certificate is ours, nil if the broker requested none or none is configured.
	Certificate *x509.Certificate
	// Session is the lifetime of the authentication, 0 for ever.
	Session time.Duration
	// Versions maps each API of the broker to its lowest and highest version.
	Versions map[protocol.ApiKey][2]int16
}

// Probe opens a connection and describes it. Unlike DialContext, it tries even if the address has refused this client
// within the last half minute.
func (d *Dialer) Probe(ctx context.Context, network, address string) (net.Conn, Opened, error) {
	m, err := d.files.load()
	if err != nil {
		return nil, Opened{}, err
	}
	c, err := d.open(ctx, m, network, address)
	if err != nil {
		return nil, Opened{}, err
	}
	o := Opened{TLS: c.opened.state, Session: c.lifetime, Versions: c.opened.versions}
	if c.opened.requested && m.cert != nil {
		o.Certificate = m.cert.Leaf
	}
	return c, o, nil
}

// renewEvery is the interval at which [Dialer.Renewed] checks the files.
const renewEvery = time.Second

// Renewed waits until the content of the configured files changes, and then returns true. It returns false after the
// time within, when ctx ends, or at once if no files are configured or they are unusable. A caller whose credentials
// were refused uses it, so that a new password or certificate takes effect at once.
func (d *Dialer) Renewed(ctx context.Context, within time.Duration) bool {
	before, err := d.files.load()
	if err != nil || len(d.files.parts) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		if now, err := d.files.load(); err == nil && now.sum != before.sum {
			return true
		}
	}
}

// refused returns the error of the last attempt if the broker at the address refused this client. It returns nil if it
// did not, if that is longer ago than refusalTTL, or if the files have changed since; sum is their current fingerprint.
func (d *Dialer) refused(address string, sum fingerprint) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.known[address]
	if p == nil || p.refusal == nil || p.files != sum || time.Since(p.at) >= refusalTTL {
		return nil
	}
	return p.refusal
}

// place returns what the Dialer keeps about an address, and begins to keep it if the address is new. The caller holds
// the lock.
func (d *Dialer) place(address string) *place {
	p := d.known[address]
	if p == nil {
		p = &place{refused: reliability.NewSparse(1, reportEvery)}
		d.known[address] = p
	}
	return p
}

// note keeps err as the refusal of an address if err means that the broker refused this client. For any other err, also
// nil, it deletes the kept refusal.
func (d *Dialer) note(address string, sum fingerprint, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.place(address)
	p.refusal = nil
	if e, ok := errors.AsType[*Error](err); ok && e.Refused() {
		p.refusal, p.at, p.files = e, time.Now(), sum
	}
}

// mayDiagnose reports whether the last diagnosis of an address is at least diagnoseEvery ago. If so, the caller must
// diagnose now: the next diagnosis is allowed only after diagnoseEvery again.
func (d *Dialer) mayDiagnose(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.place(address)
	if time.Since(p.diagnosed) < diagnoseEvery {
		return false
	}
	p.diagnosed = time.Now()
	return true
}

// lines returns the limiter of the log lines about malformed responses of an address.
func (d *Dialer) lines(address string) *reliability.Sparse {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.place(address).refused
}

// serves reports whether the address has served a request without authentication before; the method served notes it.
func (d *Dialer) serves(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.place(address).open
}

func (d *Dialer) served(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.place(address).open = true
}
