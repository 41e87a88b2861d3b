package dial

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// Limits for the number of iterations that a server may request. With fewer, an attacker on the network path could
// guess the password easily (RFC 7677, 4); more cost only our time. Kafka allows 4096 to 16384.
const (
	minIterations = 4096
	maxIterations = 1 << 20
)

// scram is the client of RFC 5802 without channel binding. Like Kafka, it uses the password without SASLprep.
type scram struct {
	hash     func() hash.Hash
	user     string
	password string
	nonce    string

	bare      string // the first message without its header
	signature []byte // the signature that the server must send; nil before our second message
}

func newScram(m Mechanism, user, password string) *scram {
	s := &scram{hash: sha256.New, user: user, password: password, nonce: rand.Text()}
	if m == ScramSHA512 {
		s.hash = sha512.New
	}
	return s
}

// gs2 is the header: no channel binding, no other identity.
const gs2 = "n,,"

func (s *scram) first() ([]byte, error) {
	s.bare = "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(s.user) + ",r=" + s.nonce
	return []byte(gs2 + s.bare), nil
}

func (s *scram) next(server []byte) ([]byte, error) {
	if s.signature == nil {
		return s.proof(string(server))
	}
	fields := attributes(string(server))
	if e := fields["e"]; e != "" {
		return nil, fmt.Errorf("%w: %s", errRefused, e)
	}
	shown, err := base64.StdEncoding.DecodeString(fields["v"])
	if err != nil || subtle.ConstantTimeCompare(shown, s.signature) != 1 {
		return nil, errUnproven
	}
	return nil, nil
}

// proof returns the reply to the server's first message. The reply proves that this client knows the password.
func (s *scram) proof(server string) ([]byte, error) {
	fields := attributes(server)
	if e := fields["e"]; e != "" {
		return nil, fmt.Errorf("%w: %s", errRefused, e)
	}
	salt, err := base64.StdEncoding.DecodeString(fields["s"])
	n, numberErr := strconv.Atoi(fields["i"])
	switch {
	case err != nil || numberErr != nil || len(salt) == 0:
		return nil, errors.New("SCRAM: the server's first message is malformed")
	case !strings.HasPrefix(fields["r"], s.nonce) || len(fields["r"]) == len(s.nonce):
		return nil, errors.New("SCRAM: the server did not extend our nonce")
	case n < minIterations || n > maxIterations:
		return nil, fmt.Errorf("SCRAM: %d iterations, allowed are %d to %d", n, minIterations, maxIterations)
	}
	salted, err := pbkdf2.Key(s.hash, s.password, salt, n, s.hash().Size())
	if err != nil {
		return nil, fmt.Errorf("SCRAM: %w", err)
	}
	last := "c=" + base64.StdEncoding.EncodeToString([]byte(gs2)) + ",r=" + fields["r"]
	all := []byte(s.bare + "," + server + "," + last)
	key := s.mac(salted, []byte("Client Key"))
	stored := s.hash()
	stored.Write(key)
	proof := bytes.Clone(key)
	subtle.XORBytes(proof, key, s.mac(stored.Sum(nil), all))
	s.signature = s.mac(s.mac(salted, []byte("Server Key")), all)
	return []byte(last + ",p=" + base64.StdEncoding.EncodeToString(proof)), nil
}

func (s *scram) mac(key, text []byte) []byte {
	m := hmac.New(s.hash, key)
	m.Write(text)
	return m.Sum(nil)
}

// attributes returns the values of a message by their one-letter names.
func attributes(text string) map[string]string {
	m := map[string]string{}
	for f := range strings.SplitSeq(text, ",") {
		if k, v, ok := strings.Cut(f, "="); ok && len(k) == 1 {
			m[k] = v
		}
	}
	return m
}
