package objstore

import (
	"context"
	"errors"
	"fmt"

	"sluice/classify"
)

// OpKind is what an operation does.
type OpKind uint8

// The kinds of operations. A Put has two, by its mode.
const (
	OpGet OpKind = iota
	OpHead
	OpPut
	OpPutIfAbsent
	OpList
	OpDelete
)

var opNames = [...]string{"get", "head", "put", "put-if-absent", "list", "delete"}

// String returns the name that traces and metrics show.
func (k OpKind) String() string {
	if int(k) >= len(opNames) {
		return fmt.Sprintf("op(%d)", uint8(k))
	}
	return opNames[k]
}

// PutKind is the kind of a Put with this mode.
func PutKind(m Mode) OpKind {
	if m == IfAbsent {
		return OpPutIfAbsent
	}
	return OpPut
}

// Op is one operation as a decorator sees it.
type Op struct {
	Kind  OpKind
	Key   string // the prefix of a List
	After string // of a List
	N     int    // its index among all operations that went through the decorator, from 0
}

// String returns the operation as one line without its index: "put-if-absent _delta_log/00000000000000000000.json".
func (o Op) String() string {
	s := o.Kind.String() + " " + o.Key
	if o.After != "" {
		s += " after " + o.After
	}
	return s
}

// Outcome puts the answer to an operation in one word: ok, exists, not_found, not_sent, refused, canceled or failed.
// After failed the effect of a put is unknown.
func Outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrExists):
		return "exists"
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.Is(err, ErrRefused):
		return "refused"
	case classify.Of(err) == classify.Canceled:
		return "canceled"
	case errors.Is(err, ErrNotSent):
		return "not_sent"
	}
	return "failed"
}

type lastCheck struct{}

// WithLastCheck makes every Put under the returned context call check once, when nothing is left to do but to send the
// request (for S3: after signing, so that a process that slept since cannot land it: its signature is too old). If check
// returns an error, the request does not leave and Put returns that error together with [ErrNotSent]. A nil check takes
// an earlier one away.
func WithLastCheck(ctx context.Context, check func() error) context.Context {
	return context.WithValue(ctx, lastCheck{}, check)
}

// LastCheck is what a Store calls just before a put leaves: the end of ctx and the check of [WithLastCheck].
func LastCheck(ctx context.Context) error {
	err := ctx.Err()
	if check, _ := ctx.Value(lastCheck{}).(func() error); err == nil && check != nil {
		err = check()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return nil
}
