package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/secure"
)

// opening is one attempt to open a connection, and what it has found so far.
type opening struct {
	d                *Dialer
	m                *material
	network, address string

	// requested is true if the broker requested a client certificate.
	requested bool
	state     *tls.ConnectionState // the state of the TLS connection after the handshake
	versions  map[protocol.ApiKey][2]int16
}

func (o *opening) failed(step Step, cause Cause, detail string, err error) *Error {
	return &Error{Address: o.address, Step: step, Cause: cause, Detail: detail, Err: err}
}

// open makes the TCP connection and the TLS handshake, reads the API versions, and authenticates. Without SASL, it
// sends a request that a broker answers only if it demands no authentication. If a step fails, it closes the
// connection.
func (o *opening) open(ctx context.Context) (_ *conn, err error) {
	// This also covers addresses that brokers name, because they get the same credentials.
	if s := o.d.cfg.SASL; s != nil && o.d.cfg.TLS == nil && !s.InsecurePlaintext && !secure.LoopbackAddress(o.address) {
		return nil, o.failed(StepConnect, Plaintext, string(s.Mechanism), secure.ErrPlaintext)
	}
	raw, err := o.d.cfg.Dial(ctx, o.network, o.address)
	if err != nil {
		return nil, o.unreached(err)
	}
	defer func() {
		if err != nil {
			_ = raw.Close()
		}
	}()
	// When ctx ends, this interrupts a socket operation in progress.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if deadline, ok := ctx.Deadline(); ok {
		_ = raw.SetDeadline(deadline) // if the deadline cannot be set, using the connection fails
	}
	secure := raw
	if o.d.cfg.TLS != nil {
		if secure, err = o.secure(ctx, raw); err != nil {
			return nil, err
		}
	}
	s := &session{conn: secure, clientID: o.d.cfg.ClientID}
	if o.versions, err = s.versions(); err != nil {
		return nil, o.unanswered(ctx, err)
	}
	c := &conn{Conn: secure, d: o.d, opened: o}
	switch {
	case o.d.cfg.SASL != nil:
		if c.lifetime, err = o.authenticate(s); err != nil {
			return nil, err
		}
		c.renewed()
	case !o.d.serves(o.address):
		if err := s.metadata(); err != nil {
			return nil, o.unserved(ctx, err)
		}
		o.d.served(o.address)
	}
	if !stop() {
		return nil, o.failed(StepServe, Silent, "", context.Cause(ctx))
	}
	if err := secure.SetDeadline(time.Time{}); err != nil {
		return nil, o.failed(StepServe, Closed, "", err)
	}
	return c, nil
}

// unreached returns the error for a TCP connection that could not be opened, with a cause that fits err.
func (o *opening) unreached(err error) *Error {
	cause := Unreachable
	dns, ok := errors.AsType[*net.DNSError](err)
	switch {
	case ok && dns.IsNotFound:
		cause = UnknownHost
	case timedOut(err):
		cause = Silent
	}
	return o.failed(StepConnect, cause, "", err)
}

// secure makes the TLS handshake and returns the encrypted connection. It keeps the state of that connection in
// o.state.
func (o *opening) secure(ctx context.Context, raw net.Conn) (net.Conn, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, o.insecure(ctx, err)
	}
	state := c.ConnectionState()
	o.state = &state
	return c, nil
}

// config returns the TLS configuration for one handshake, with the current content of the files.
func (o *opening) config() (*tls.Config, error) {
	t := o.d.cfg.TLS
	name := t.ServerName
	if name == "" {
		host, _, err := net.SplitHostPort(o.address)
		if err != nil {
			return nil, o.failed(StepConnect, UnknownHost, "", err)
		}
		name = host
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: name,
		RootCAs:    o.m.roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			o.requested = true
			if o.m.cert == nil {
				return &tls.Certificate{}, nil
			}
			// We send the certificate even if the broker's list of authorities does not allow it, because the broker
			// then says why it refuses.
			return o.m.cert, nil
		},
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // only by a key named insecure_…
	}, nil
}

// insecure returns the error for a failed TLS handshake. If the broker gave no reason, it may open a second connection
// to find out whether the port is without TLS.
func (o *opening) insecure(ctx context.Context, err error) *Error {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		cause, detail := untrusted(bad)
		return o.failed(StepTLS, cause, detail, err)
	}
	if alert, ok := alertOf(err); ok {
		return o.alerted(alert, err)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return o.failed(StepTLS, NoTLS, "", err)
	}
	if (closed(err) || timedOut(err)) && o.finds(ctx, false, func(_ context.Context, s *session) bool {
		_, err := s.versions()
		return err == nil
	}) {
		// A broker without TLS takes the handshake for a request that is too large, and closes the connection.
		return o.failed(StepTLS, NoTLS, "", err)
	}
	return o.passing(StepTLS, err)
}

// untrusted returns the cause and the detail for a broker's certificate that could not be verified.
func untrusted(bad *tls.CertificateVerificationError) (Cause, string) {
	detail := func(c *x509.Certificate, format string, args ...any) string {
		if c == nil {
			return ""
		}
		return "subject " + c.Subject.String() + ", " + fmt.Sprintf(format, args...)
	}
	if wrong, ok := errors.AsType[x509.HostnameError](bad.Err); ok {
		var names []string
		if c := wrong.Certificate; c != nil {
			names = append(names, c.DNSNames...)
			for _, ip := range c.IPAddresses {
				names = append(names, ip.String())
			}
		}
		return WrongHost, fmt.Sprintf("%s is not among its names [%s]", wrong.Host, strings.Join(names, " "))
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](bad.Err); ok {
		var issuer string
		if unknown.Cert != nil {
			issuer = unknown.Cert.Issuer.String()
		}
		return UnknownCA, detail(unknown.Cert, "issuer %s", issuer)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](bad.Err); ok && invalid.Reason == x509.Expired {
		if c := invalid.Cert; c != nil && time.Now().Before(c.NotBefore) {
			return NotYetValid, detail(c, "from %s on", c.NotBefore.UTC().Format(time.RFC3339))
		} else if c != nil {
			return Expired, detail(c, "on %s", c.NotAfter.UTC().Format(time.RFC3339))
		}
		return Expired, ""
	}
	return BadCertificate, ""
}

// alertOf returns the number of the TLS alert (RFC 8446, 6) by which the other side ended a connection. ok is false if
// err is no alert. Package tls has an unexported type for alerts, in a net.OpError whose Op is "remote error"; if that
// type is no longer a number, alert is 0 and ok is true.
func alertOf(err error) (alert uint8, ok bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return 0, false
	}
	if v := reflect.ValueOf(op.Err); v.Kind() == reflect.Uint8 {
		return uint8(v.Uint()), true //nolint:gosec // checked to be an unsigned number
	}
	return 0, true
}

// Some alerts of TLS that have nothing to do with our certificate.
const (
	alertHandshakeFailure = 40
	alertProtocolVersion  = 70
	alertUnrecognizedName = 112
)

// alerted returns the error for a TLS alert that the broker sent. The number of the alert does not always show the
// cause: brokers (Java) have several alerts for a client certificate that they do not accept.
func (o *opening) alerted(alert uint8, err error) *Error {
	at, ended := o.m.expired()
	switch {
	case alert == alertProtocolVersion, alert == alertHandshakeFailure && !o.requested:
		return o.failed(StepTLS, TLSVersion, "", err)
	case alert == alertUnrecognizedName:
		return o.failed(StepTLS, WrongHost, "the broker has no certificate for the name", err)
	case o.requested && o.m.cert == nil:
		return o.failed(StepTLS, ClientCertMissing, "", err)
	case o.requested && ended:
		return o.failed(StepTLS, ClientCertExpired, "on "+at.UTC().Format(time.RFC3339), err)
	case o.requested:
		return o.failed(StepTLS, ClientCertRefused, "", err)
	}
	return o.failed(StepTLS, TLSVersion, "", err)
}

// unanswered returns the error for a connection on which the first request got no valid response. With TLS 1.3 this may
// mean that the broker refuses our certificate, because its decision arrives only after the handshake.
func (o *opening) unanswered(ctx context.Context, err error) *Error {
	plaintext := o.d.cfg.TLS == nil
	if alert, ok := alertOf(err); ok {
		return o.alerted(alert, err)
	}
	switch {
	case plaintext && errors.Is(err, errAlert):
		return o.failed(StepVersions, WantsTLS, "", err)
	case errors.Is(err, errNotKafka), errors.Is(err, errMalformed), errors.Is(err, errAlert):
		return o.failed(StepVersions, NotKafka, "", err)
	case plaintext && (closed(err) || timedOut(err)) && o.findsTLS(ctx):
		return o.failed(StepVersions, WantsTLS, "", err)
	case closed(err) && o.requested && o.m.cert == nil:
		return o.failed(StepVersions, Closed, "it asked for a client certificate and we have none", err)
	}
	return o.passing(StepVersions, err)
}

// unserved returns the error for a connection without SASL whose metadata request got no response. If the broker
// demands SASL, which unserved asks on a second connection, the cause is WantsSASL.
func (o *opening) unserved(ctx context.Context, err error) *Error {
	var offered []string
	demands := func(_ context.Context, s *session) bool {
		code, mechanisms, err := s.handshake("none") // no mechanism has this name, so no authentication begins
		offered = mechanisms
		return err == nil && kafka.Error(code) == kafka.UnsupportedSASLMechanism
	}
	if closed(err) && o.finds(ctx, o.d.cfg.TLS != nil, demands) {
		return o.failed(StepServe, WantsSASL, "it offers "+strings.Join(offered, ", "), err)
	}
	return o.passing(StepServe, err)
}

// passing returns the error for a failure with no more precise cause, which may pass by itself: the broker is silent,
// has closed the connection, or has sent something unexpected.
func (o *opening) passing(step Step, err error) *Error {
	switch {
	case timedOut(err):
		return o.failed(step, Silent, "", err)
	case closed(err):
		return o.failed(step, Closed, step.at(), err)
	}
	return o.failed(step, Protocol, step.at()+": "+err.Error(), err)
}

// finds diagnoses a failed attempt. It opens a second connection to the address, with TLS if secure is true, and
// returns what look reports about it. It returns false if it cannot connect, or if the last diagnosis was less than a
// minute ago. The deadline of ctx does not count, because the failed attempt may have used up its time.
func (o *opening) finds(ctx context.Context, secure bool, look func(context.Context, *session) bool) bool {
	if errors.Is(ctx.Err(), context.Canceled) || !o.d.mayDiagnose(o.address) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.d.cfg.Timeout)
	defer cancel()
	raw, err := o.d.cfg.Dial(ctx, o.network, o.address)
	if err != nil {
		return false
	}
	defer func() { _ = raw.Close() }() // no request is in flight
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	if secure {
		if raw, err = o.secure(ctx, raw); err != nil {
			return false
		}
	}
	return look(ctx, &session{conn: raw, clientID: o.d.cfg.ClientID})
}

// findsTLS reports whether the address answers a TLS handshake.
func (o *opening) findsTLS(ctx context.Context) bool {
	return o.finds(ctx, false, func(ctx context.Context, s *session) bool {
		host, _, err := net.SplitHostPort(o.address)
		if err != nil {
			return false
		}
		spoken := false
		c := tls.Client(s.conn, &tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: host,
			InsecureSkipVerify: true, //nolint:gosec // no data are sent: this only detects TLS
			VerifyConnection:   func(tls.ConnectionState) error { spoken = true; return nil },
		})
		err = c.HandshakeContext(ctx)
		_, alert := alertOf(err)
		return spoken || alert
	})
}

// closed reports whether the other side closed a connection without an answer.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled)
}
