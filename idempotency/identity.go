package idempotency

import (
	"errors"
	"fmt"
	"strings"
)

// By is the part of a record by which its producer identifies it.
type By uint8

// The ways to identify a record. The zero value declares no identity: only its coordinates identify a record.
const (
	ByNone    By = iota
	ByField      // by a column of the table
	ByHeader     // by the last header with a given name
	ByContent    // by key and value
)

// Identity distinguishes the repeats of a producer from new records: two records of one partition with the same
// identity are one record that was sent twice.
type Identity struct {
	By   By
	Name string // dotted path of the column, or name of the header
}

// ParseIdentity reads none, field:<path>, header:<name> or content.
func ParseIdentity(s string) (Identity, error) {
	by, name, named := strings.Cut(s, ":")
	switch {
	case s == "none":
		return Identity{}, nil
	case s == "content":
		return Identity{By: ByContent}, nil
	case by == "field" && named:
		for part := range strings.SplitSeq(name, ".") {
			if part == "" {
				return Identity{}, fmt.Errorf("%q names no column: write field:<column>, or field:<column>.<field> for a field of a struct", s)
			}
		}
		return Identity{ByField, name}, nil
	case by == "header" && named:
		if name == "" {
			return Identity{}, errors.New("header: needs the name of a header, like header:event-id")
		}
		return Identity{ByHeader, name}, nil
	}
	return Identity{}, fmt.Errorf("%q is no identity: use none, field:<path>, header:<name> or content", s)
}

// String returns the form that [ParseIdentity] parses.
func (i Identity) String() string {
	switch i.By {
	case ByField:
		return "field:" + i.Name
	case ByHeader:
		return "header:" + i.Name
	case ByContent:
		return "content"
	case ByNone:
	}
	return "none"
}

// Stored reports whether the table needs a column for the fingerprints, because the table lacks the data to compute
// them.
func (i Identity) Stored() bool { return i.By == ByHeader || i.By == ByContent }
