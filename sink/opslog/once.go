package opslog

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// KeyLife is how long a key keeps an operation from being performed again.
const KeyLife = 24 * time.Hour

// Once makes an operation repeatable without a second effect: for [KeyLife] the log takes no other operation with the
// same key. Key and Request are SHA-256 in hex, so the log shows neither the operator's key nor the request.
type Once struct {
	Key     string `json:"key"`     // hash of the operator's name and the key that the operator chose
	Request string `json:"request"` // hash of the request
}

func (o Once) check() error {
	if !isHash(o.Key) || !isHash(o.Request) {
		return errors.New("its key is no pair of hashes")
	}
	return nil
}

// RepeatedError means that the log already has an operation with the key. Seq is that operation's.
type RepeatedError struct {
	Seq  int64
	Same bool // true if the earlier operation with the key had the same request
}

// Error names the seq.
func (e *RepeatedError) Error() string {
	if e.Same {
		return fmt.Sprintf("operation %d has this key: it was performed", e.Seq)
	}
	return fmt.Sprintf("operation %d has this key and was another request", e.Seq)
}

// performed is an operation with a key.
type performed struct {
	seq     int64
	request string
	at      time.Time
}

// Repeated returns a [RepeatedError] if an operation of the last [KeyLife] before now has the key, else nil.
func (s *State) Repeated(o Once, now time.Time) *RepeatedError {
	p, ok := s.once[o.Key]
	if !ok || o.Key == "" || now.Sub(p.at) >= KeyLife {
		return nil
	}
	return &RepeatedError{Seq: p.seq, Same: p.request == o.Request}
}

func (s *State) repeated(o Once, now time.Time) error {
	if e := s.Repeated(o, now); e != nil {
		return e
	}
	return nil
}

// performedBefore returns the operations with a key as of the entry e, by key. It adds e if e has a key, and then drops
// those that are older than [KeyLife] at the time of e.
func (s *State) performedBefore(e Entry) map[string]performed {
	if e.Once == nil {
		return s.once
	}
	next := copied(s.once)
	maps.DeleteFunc(next, func(_ string, p performed) bool { return e.At.Sub(p.at) >= KeyLife })
	next[e.Once.Key] = performed{e.Seq, e.Once.Request, e.At}
	return next
}
