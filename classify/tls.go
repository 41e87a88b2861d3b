package classify

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
)

// passingAlerts are the TLS alerts that concern one connection only, so that the next one may work. All other alerts
// (RFC 8446, section 6.2) are about certificates, versions and names, which a person has to fix.
var passingAlerts = [...]tls.AlertError{
	20, // bad_record_mac: bytes were damaged in transit
	80, // internal_error
	90, // user_canceled
}

// Untrusted reports whether one side of a connection refused the other: because of a certificate, by a TLS alert, or
// because only one of them speaks TLS.
func Untrusted(err error) bool {
	class, known := ofTLS(err)
	return known && class == Fatal
}

// ofTLS returns the class of a TLS or certificate error. For any other error, known is false.
func ofTLS(err error) (class Class, known bool) {
	if alert, ok := alertOf(err); ok {
		for _, a := range passingAlerts {
			if alert == a.Error() {
				return Transient, true
			}
		}
		return Fatal, true
	}
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, plaintext := errors.AsType[tls.RecordHeaderError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	_, roots := errors.AsType[x509.SystemRootsError](err)
	if verification || plaintext || authority || host || invalid || roots {
		return Fatal, true
	}
	return Transient, false
}

// alertOf returns the text of the TLS alert that a peer has sent; ok is false if err has no alert. Package tls wraps an
// alert in a [net.OpError], and the type of the alert is private; so only its text can be compared.
func alertOf(err error) (name string, ok bool) {
	if a, ok := errors.AsType[tls.AlertError](err); ok {
		return a.Error(), true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" && op.Err != nil {
		return op.Err.Error(), true
	}
	return "", false
}
