package dial

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// conversation is the client's side of one SASL exchange.
type conversation interface {
	// first returns the client's first message.
	first() ([]byte, error)
	// next takes the server's message from a SaslAuthenticate response without an error code. It returns the client's
	// reply, or nil if the exchange is over.
	next(server []byte) ([]byte, error)
}

// errUnproven means that the server did not prove that it knows the password.
var errUnproven = errors.New("its signature is wrong")

// errUnusable means that our credentials cannot be sent, for example because they contain a forbidden character.
var errUnusable = errors.New("unusable")

// errRefused means that the server refused the credentials by a message of the mechanism instead of an error code.
var errRefused = errors.New("refused")

func (o *opening) conversation() conversation {
	s := o.d.cfg.SASL
	switch s.Mechanism {
	case ScramSHA256, ScramSHA512:
		return newScram(s.Mechanism, s.Username, o.m.password)
	case OAuthBearer:
		return bearer{o.m.token}
	case Plain:
	}
	return plain{s.Username, o.m.password}
}

// authenticate authenticates this client. It returns the lifetime of the session, 0 if the session does not end.
func (o *opening) authenticate(s *session) (lifetime time.Duration, err error) {
	cfg := o.d.cfg.SASL
	version := min(o.versions[protocol.SaslAuthenticate][1], 1)
	if _, ok := o.versions[protocol.SaslAuthenticate]; !ok {
		return 0, o.failed(StepSASL, TooOld, "it does not know SaslAuthenticate", nil)
	}
	code, offered, err := s.handshake(cfg.Mechanism)
	switch kafka.Error(code) {
	case 0:
		if err != nil {
			return 0, o.passing(StepSASL, err)
		}
	case kafka.UnsupportedSASLMechanism:
		return 0, o.failed(StepSASL, MechanismRefused, fmt.Sprintf("%s; it offers %s", cfg.Mechanism,
			cmp.Or(strings.Join(offered, ", "), "none")), kafka.Error(code))
	case kafka.IllegalSASLState:
		return 0, o.failed(StepSASL, NoSASL, "", kafka.Error(code))
	default:
		return 0, o.failed(StepSASL, Protocol, "SaslHandshake", kafka.Error(code))
	}
	talk := o.conversation()
	words, err := talk.first()
	for err == nil {
		a, failure := s.authenticate(version, words)
		switch {
		case failure != nil && closed(failure):
			return 0, o.failed(StepSASL, Closed, "while it checked the credentials: some brokers refuse them this way", failure)
		case failure != nil:
			return 0, o.passing(StepSASL, failure)
		case a.code != 0:
			return 0, o.refused(kafka.Error(a.code), a.text)
		}
		if words, err = talk.next(a.bytes); words == nil && err == nil {
			return time.Duration(a.lifetime) * time.Millisecond, nil
		}
	}
	switch {
	case errors.Is(err, errUnproven):
		return 0, o.failed(StepSASL, ServerUnproven, "", err)
	case errors.Is(err, errUnusable):
		return 0, o.failed(StepSASL, BadFile, fmt.Sprintf("%s: %v", cfg.TokenFile, err), err)
	case errors.Is(err, errRefused):
		return 0, o.refused(kafka.SASLAuthenticationFailed, err.Error())
	}
	return 0, o.failed(StepSASL, Protocol, fmt.Sprintf("%s: %v", cfg.Mechanism, err), err)
}

// refused returns the error for refused credentials. text is the broker's explanation.
func (o *opening) refused(code kafka.Error, text string) *Error {
	s := o.d.cfg.SASL
	if code != kafka.SASLAuthenticationFailed {
		return o.failed(StepSASL, Protocol, "SaslAuthenticate", code)
	}
	if s.Mechanism != OAuthBearer {
		return o.failed(StepSASL, CredentialsRefused, fmt.Sprintf("%s as %s: %s", s.Mechanism, s.Username, cmp.Or(text, code.Title())), code)
	}
	if at, ok := expiry(o.m.token); ok && time.Now().After(at) {
		return o.failed(StepSASL, TokenExpired, fmt.Sprintf("on %s, from %s", at.UTC().Format(time.RFC3339), s.TokenFile), code)
	}
	return o.failed(StepSASL, CredentialsRefused, fmt.Sprintf("the token of %s: %s", s.TokenFile, cmp.Or(text, code.Title())), code)
}

// plain is the mechanism PLAIN (RFC 4616).
type plain struct{ user, password string }

func (p plain) first() ([]byte, error)      { return []byte("\x00" + p.user + "\x00" + p.password), nil }
func (p plain) next([]byte) ([]byte, error) { return nil, nil }

// bearer is the mechanism OAUTHBEARER (RFC 7628) in Kafka's variant (KIP-255).
type bearer struct{ token string }

func (b bearer) first() ([]byte, error) {
	if strings.ContainsAny(b.token, "\x01\r\n ") {
		return nil, fmt.Errorf("%w: the token holds characters that no token has", errUnusable)
	}
	return []byte("n,,\x01auth=Bearer " + b.token + "\x01\x01"), nil
}

// next answers a refusal, which is a JSON object, with a single byte 0x01. Then the broker sends its error code.
func (b bearer) next(server []byte) ([]byte, error) {
	if len(server) == 0 {
		return nil, nil
	}
	return []byte{1}, nil
}

// expiry returns the time at which a token ends. ok is false if the token is not a JWT (RFC 7519), or has no such time.
// expiry does not verify the signature; the broker does.
func expiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Expires float64 `json:"exp"` // seconds since 1970, with or without a fraction
	}
	if json.Unmarshal(body, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(claims.Expires * 1000)), true
}
