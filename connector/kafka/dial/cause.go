package dial

import (
	"fmt"
	"strings"
)

// Step is a stage of opening a connection.
type Step string

// The steps, in order.
const (
	StepFiles    Step = "files"    // reading the configured files
	StepConnect  Step = "connect"  // opening the TCP connection
	StepTLS      Step = "tls"      // the TLS handshake, and the broker's decision about our certificate after it
	StepVersions Step = "versions" // the first request, ApiVersions
	StepSASL     Step = "sasl"     // authentication
	StepServe    Step = "serve"    // the first request for which a broker may demand authentication
	StepUse      Step = "use"      // any later request
)

// at says in words at which moment the step failed, for error texts.
func (s Step) at() string {
	switch s {
	case StepTLS:
		return "in the TLS handshake"
	case StepVersions:
		return "at the first request"
	case StepSASL:
		return "while authenticating"
	case StepServe:
		return "at the first request that needs to be allowed"
	case StepUse:
		return "at a request"
	case StepFiles, StepConnect:
	}
	return string(s)
}

// Cause is the reason why a connection could not be opened.
type Cause string

// The causes.
const (
	Unreachable        Cause = "unreachable"
	UnknownHost        Cause = "unknown_host"
	Silent             Cause = "no_answer"
	Closed             Cause = "closed"
	NotKafka           Cause = "not_kafka"
	TooOld             Cause = "broker_too_old"
	BadFile            Cause = "bad_file"
	NoTLS              Cause = "tls_not_spoken"
	WantsTLS           Cause = "tls_wanted"
	TLSVersion         Cause = "tls_version"
	UnknownCA          Cause = "unknown_ca"
	Expired            Cause = "certificate_expired"
	NotYetValid        Cause = "certificate_not_yet_valid"
	WrongHost          Cause = "wrong_host"
	BadCertificate     Cause = "bad_certificate"
	ClientCertMissing  Cause = "client_certificate_missing"
	ClientCertExpired  Cause = "client_certificate_expired"
	ClientCertRefused  Cause = "client_certificate_refused"
	NoSASL             Cause = "sasl_not_spoken"
	WantsSASL          Cause = "sasl_wanted"
	MechanismRefused   Cause = "mechanism_not_enabled"
	CredentialsRefused Cause = "credentials_refused"
	TokenExpired       Cause = "token_expired"
	ServerUnproven     Cause = "server_unproven"
	Protocol           Cause = "protocol"
	Malformed          Cause = "malformed_response"
	Plaintext          Cause = "secret_without_tls"
)

// explanation is the text of a cause and what to do about it.
type explanation struct {
	text, hint string
	refused    bool // true if the next attempt fails as well until an operator or a file changes something
}

//nolint:gocyclo,cyclop // a table
func (c Cause) explain() explanation {
	switch c {
	case Unreachable:
		return explanation{"cannot be reached", "look whether the broker runs, whether host and port are right, and at firewalls", false}
	case UnknownHost:
		return explanation{"no such host", "correct the name, or the DNS; brokers after the first are named by advertised.listeners", false}
	case Silent:
		return explanation{"does not answer in time", "look at the broker's load, and whether this is a broker at all", false}
	case Closed:
		return explanation{"closes the connection", "look into the broker's log", false}
	case NotKafka:
		return explanation{"does not speak Kafka's protocol", "correct the port", true}
	case TooOld:
		return explanation{"is too old", "Kafka 2.8 or newer is needed", true}
	case BadFile:
		return explanation{"a file of ours cannot be used", "correct the file; it is read again for each connection", true}
	case NoTLS:
		return explanation{"speaks no TLS", "remove kafka.tls, or use the port of the broker's TLS listener", true}
	case WantsTLS:
		return explanation{"speaks TLS and we do not", "set kafka.tls.enabled: true, or use the port of a plaintext listener", true}
	case TLSVersion:
		return explanation{"speaks no version of TLS, or no cipher, that we do", "let the broker speak TLS 1.2 or 1.3", true}
	case UnknownCA:
		return explanation{
			"its certificate is signed by an authority that we do not trust",
			"set kafka.tls.ca_file to the certificate of the authority that signed it", true,
		}
	case Expired:
		return explanation{"its certificate has expired", "renew the broker's certificate", true}
	case NotYetValid:
		return explanation{"its certificate is not valid yet", "look at the clocks of this host and of the broker", true}
	case WrongHost:
		return explanation{
			"its certificate is for another host",
			"use a name that the certificate has, or set kafka.tls.server_name to it", true,
		}
	case BadCertificate:
		return explanation{"its certificate is not acceptable", "correct the broker's certificate", true}
	case ClientCertMissing:
		return explanation{"demands a client certificate and we have none", "set kafka.tls.cert_file and kafka.tls.key_file", true}
	case ClientCertExpired:
		return explanation{"refuses our client certificate, which has expired", "renew kafka.tls.cert_file; it is read again for each connection", true}
	case ClientCertRefused:
		return explanation{
			"refuses our client certificate",
			"let an authority sign kafka.tls.cert_file that the broker's truststore has", true,
		}
	case NoSASL:
		return explanation{"does not authenticate with SASL", "remove kafka.sasl, or use the port of the broker's SASL listener", true}
	case WantsSASL:
		return explanation{"demands SASL and we have no credentials", "set kafka.sasl", true}
	case MechanismRefused:
		return explanation{"does not offer this SASL mechanism", "set kafka.sasl.mechanism to one that the broker offers", true}
	case CredentialsRefused:
		return explanation{"refuses the credentials", "correct user and password, or the token; files are read again", true}
	case TokenExpired:
		return explanation{"refuses the token, which has expired", "write a fresh token into kafka.sasl.token_file; it is read again", true}
	case ServerUnproven:
		return explanation{"does not know the password it asks for", "another program may intercept the connection: check what listens at this address", true}
	case Plaintext:
		return explanation{
			"would get our credentials without TLS",
			"set kafka.tls, or kafka.sasl.insecure_plaintext: true if everyone on the network path may read them", true,
		}
	case Malformed:
		return explanation{
			"sends a response that cannot be read",
			"check what listens at this address: a proxy, a broken broker, or another program", false,
		}
	case Protocol:
		return explanation{"answers in an unexpected way", "look into the broker's log", false}
	}
	return explanation{string(c), "", false}
}

// Error means that a connection could not be opened, or that a malformed response ended it.
type Error struct {
	Address string
	Step    Step
	Cause   Cause
	Detail  string // what was observed; "" if the cause says it all
	Err     error  // the error of the operation that failed; may be nil
}

// Error returns the address, the text of the cause, in parentheses the detail or the wrapped error, and what to do.
func (e *Error) Error() string {
	x := e.Cause.explain()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Address, x.text)
	switch {
	case e.Detail != "":
		fmt.Fprintf(&b, " (%s)", e.Detail)
	case e.Err != nil:
		fmt.Fprintf(&b, " (%v)", e.Err)
	}
	if x.hint != "" {
		fmt.Fprintf(&b, ": %s", x.hint)
	}
	return b.String()
}

// What returns the text of the cause and in parentheses the detail or the wrapped error: the text of Error without the
// address and the hint.
func (e *Error) What() string {
	s := e.Cause.explain().text
	switch {
	case e.Detail != "":
		s += " (" + e.Detail + ")"
	case e.Err != nil:
		s += " (" + e.Err.Error() + ")"
	}
	return s
}

// Hint returns what the operator can do about the error, "" if there is no advice.
func (e *Error) Hint() string { return e.Cause.explain().hint }

// Unwrap returns the wrapped error, nil if there is none.
func (e *Error) Unwrap() error { return e.Err }

// Refused reports whether every further attempt will fail until a person or a file changes something. That may be our
// credentials or certificate, the broker's certificate, or the address of a listener of another kind.
func (e *Error) Refused() bool { return e.Cause.explain().refused }
