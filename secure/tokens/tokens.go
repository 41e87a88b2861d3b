// Package tokens reads the bearer tokens of the ops API and their roles from a file, and finds the token of a request.
package tokens

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Role says what the holder of a token may do. Each role includes those before it. The zero Role may do nothing.
type Role int

// The roles.
const (
	Viewer   Role = iota + 1 // may read everything except the contents of records
	Operator                 // may also pause and resume, allow floods, and recheck holds
	Replayer                 // may also read the contents of records, and replay, discard and acknowledge dead letters
	Admin                    // may also move positions, set the log level, and read profiles
)

// roles are the names of the roles, from [Viewer] on.
var roles = [...]string{"viewer", "operator", "replayer", "admin"}

// String returns the name of the role.
func (r Role) String() string {
	if r < Viewer || r > Admin {
		return "none"
	}
	return roles[r-Viewer]
}

// Includes reports whether the role may do what other may do. No role includes the zero Role: a route without a role is
// closed.
func (r Role) Includes(other Role) bool { return other >= Viewer && r >= other }

// ParseRole parses the name of a role.
func ParseRole(name string) (Role, error) {
	for i, n := range roles {
		if n == name {
			return Role(i) + Viewer, nil
		}
	}
	return 0, errors.New("the role is unknown: write viewer, operator, replayer or admin")
}

// Token is a line of the file. It has a hash of the token, never the token.
type Token struct {
	Name    string
	Role    Role
	Expires time.Time // zero if it does not expire

	hash [sha256.Size]byte
}

// Expired reports whether the token has ended at a time.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Set is the content of a file. It is immutable.
type Set struct {
	Open bool // true if the mode of the file gives permissions to its group or to everyone

	all []Token
}

// maxName bounds the length of a name, in bytes. The operations log keeps it as the operator.
const maxName = 64

// Parse parses the content of a file: one token a line, as NAME ROLE SHA256-IN-HEX [expires=RFC3339], with comments
// after "#". A file of comments is a set without tokens; an empty file is an error, since a writer may have truncated
// it. Errors name the line and quote nothing: operators sometimes write the token itself.
func Parse(content []byte) (*Set, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("is empty: write lines of NAME ROLE SHA256-IN-HEX")
	}
	s, number := &Set{}, 0
	for line := range strings.Lines(string(content)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseLine(fields)
		if err == nil {
			err = s.fits(t)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		s.all = append(s.all, t)
	}
	return s, nil
}

func parseLine(fields []string) (t Token, err error) {
	if len(fields) < 3 || len(fields) > 4 {
		return t, errors.New("is not NAME ROLE SHA256-IN-HEX [expires=RFC3339]")
	}
	t.Name = fields[0]
	if len(t.Name) > maxName || strings.Trim(t.Name, nameBytes) != "" {
		return t, fmt.Errorf("the name may have letters, digits and . _ - @, at most %d of them", maxName)
	}
	if t.Role, err = ParseRole(fields[1]); err != nil {
		return t, err
	}
	hash, err := hex.DecodeString(fields[2])
	if err != nil || len(hash) != len(t.hash) {
		return t, errors.New("the third word is not the SHA-256 of a token in hex: write the output of sha256sum")
	}
	copy(t.hash[:], hash)
	if len(fields) == 3 {
		return t, nil
	}
	at, found := strings.CutPrefix(fields[3], "expires=")
	if t.Expires, err = time.Parse(time.RFC3339, at); err != nil || !found {
		return t, errors.New("the fourth word is not expires=TIME: write a time such as expires=2027-01-31T00:00:00Z")
	}
	return t, nil
}

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@"

// emptyHash is the SHA-256 of no bytes. A line may have it by mistake, because sha256sum prints it after a command that
// failed.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// fits returns an error if the hash of a token is that of no bytes, or if the token contradicts an earlier line.
func (s *Set) fits(t Token) error {
	if hex.EncodeToString(t.hash[:]) == emptyHash {
		return errors.New("the hash is that of an empty token")
	}
	for _, other := range s.all {
		switch {
		case other.hash == t.hash:
			return errors.New("the token is given twice: remove one line")
		case other.Name == t.Name && other.Role != t.Role:
			return errors.New("the name has another role in a line before: one name has one role")
		}
	}
	return nil
}

// Len returns the number of tokens, expired ones included.
func (s *Set) Len() int { return len(s.all) }

// Find returns the token whose secret this is, even if it has expired. ok is false if there is none. Find compares the
// secret with every token in constant time, so that the time of the answer shows nothing about the tokens.
func (s *Set) Find(secret string) (found Token, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	at := -1
	for i := range s.all {
		same := subtle.ConstantTimeCompare(hash[:], s.all[i].hash[:])
		at = subtle.ConstantTimeSelect(same, i, at)
	}
	if at < 0 {
		return Token{}, false
	}
	return s.all[at], true
}
