// Package dial opens connections to brokers: TCP, TLS, SASL, in this order. Whatever fails is an [Error] that names the
// step, the cause and what to do about it, because Kafka's own answer to most mistakes is to close the connection.
//
// Everything that speaks to Kafka gets its connections here. A connection that [Dialer.DialContext] returns has been
// answered by a broker, over TLS and with credentials if they are configured, and keeps itself authenticated.
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

// Config says how to open connections.
type Config struct {
	// ClientID is what brokers show in their logs.
	ClientID string
	// Timeout bounds the opening of one connection, 5 s if zero.
	Timeout time.Duration
	// TLS is nil for plaintext, SASL nil for no authentication.
	TLS  *TLS
	SASL *SASL
	// Own tells whether the caller decodes and bounds the responses to an API's requests of a version itself. All others
	// are checked before they are handed out; nil means all are.
	Own func(key protocol.ApiKey, version int16) bool
	// Dial opens the connection below; nil means TCP. It must end when its context does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// TLS says how to trust brokers, and how to be trusted by them. At least TLS 1.2 is spoken. The files are PEM.
type TLS struct {
	// CAFile holds the authorities that may have signed the brokers' certificates; "" means those of the system.
	CAFile string
	// CertFile and KeyFile are our certificate and its key, for brokers that ask for one (mTLS). Both or neither.
	CertFile, KeyFile string
	// ServerName is expected in the brokers' certificates instead of the host that was dialed.
	ServerName string
	// InsecureSkipVerify trusts whoever answers.
	InsecureSkipVerify bool
}

// SASL says how to authenticate.
type SASL struct {
	Mechanism Mechanism
	// Username is for all mechanisms but OAUTHBEARER. The password is Password or what PasswordFile holds.
	Username, Password, PasswordFile string
	// TokenFile holds the token of OAUTHBEARER.
	TokenFile string
	// InsecurePlaintext allows SASL without TLS to other machines than this one. Everyone on the way can then read the
	// secret of PLAIN and OAUTHBEARER, guess the password of SCRAM, and take the broker's place.
	InsecurePlaintext bool
}

// String hides the secret.
func (s SASL) String() string { return string(s.Mechanism) + " " + s.Username }

// GoString hides the secret from %#v.
func (s SASL) GoString() string { return s.String() }

// Mechanism is the name of a SASL mechanism, as brokers know it.
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
	// remember is how long a refusal is not asked for again, unless the files have changed: accounts are locked for less
	// than a wrong password every second. It is shorter than the minute after which holds are looked at.
	remember = 30 * time.Second
	// diagnoseEvery is how often the reason of an unexplained end is looked for at one address.
	diagnoseEvery = time.Minute
	// reportEvery is how often responses that are refused are logged for one address.
	reportEvery = time.Minute
)

// Dialer opens connections. It is safe for concurrent use.
type Dialer struct {
	cfg     Config
	files   *files
	metrics *metrics

	mu    sync.Mutex
	known map[string]*place // by address
}

// place is what is known of an address.
type place struct {
	refusal *Error // how the last attempt was refused, nil if it was not; at and files are its time and credentials
	at      time.Time
	files   fingerprint

	diagnosed time.Time
	refused   *reliability.Sparse // lines about its responses
	open      bool                // it serves requests without authentication
}

// New checks cfg and reads the files that it names.
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

// DialContext opens a connection to the broker at address. Its errors that concern the connection are an [*Error]. A
// refusal is remembered for half a minute and returned again, unless the files have changed.
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

// Opened is what is known of a connection that was opened.
type Opened struct {
	// TLS is its state, nil for plaintext.
	TLS *tls.ConnectionState
	// Certificate is ours, nil if the broker did not ask for one or there is none.
	Certificate *x509.Certificate
	// Session is how long the authentication counts, 0 for ever.
	Session time.Duration
	// Versions are those of the APIs that the broker speaks, the lowest and the highest.
	Versions map[protocol.ApiKey][2]int16
}

// Probe opens a connection whatever is remembered of the address, and tells about it.
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

// renewEvery is how often [Dialer.Renewed] looks at the files.
const renewEvery = time.Second

// Renewed waits until files that connections need hold something else than now, at most for a time. It tells whether
// they do. For whoever was refused: a new password or certificate should not wait for the next regular attempt.
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

// refused returns the refusal that stands for an address and these files.
func (d *Dialer) refused(address string, sum fingerprint) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.known[address]
	if p == nil || p.refusal == nil || p.files != sum || time.Since(p.at) >= remember {
		return nil
	}
	return p.refusal
}

// place returns what is known of an address. The lock is held.
func (d *Dialer) place(address string) *place {
	p := d.known[address]
	if p == nil {
		p = &place{refused: reliability.NewSparse(1, reportEvery)}
		d.known[address] = p
	}
	return p
}

// note remembers how an attempt ended.
func (d *Dialer) note(address string, sum fingerprint, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.place(address)
	p.refusal = nil
	if e, ok := errors.AsType[*Error](err); ok && e.Refused() {
		p.refusal, p.at, p.files = e, time.Now(), sum
	}
}

// mayDiagnose tells whether an unexplained end at an address may be looked into now.
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

// lines are those about refused responses of an address.
func (d *Dialer) lines(address string) *reliability.Sparse {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.place(address).refused
}

// serves tells whether an address is known to serve requests without authentication; served says that it does.
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
