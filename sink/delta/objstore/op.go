package objstore

import (
	"context"
	"errors"
	"fmt"

	"sluice/classify"
)

// OpKind is the kind of an operation.
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

// String returns the name in traces and metrics.
func (k OpKind) String() string {
	if int(k) >= len(opNames) {
		return fmt.Sprintf("op(%d)", uint8(k))
	}
	return opNames[k]
}

// PutKind returns the kind of a Put with this mode.
func PutKind(m Mode) OpKind {
	if m == IfAbsent {
		return OpPutIfAbsent
	}
	return OpPut
}

// Op is one operation as a decorator sees it.
type Op struct {
	Kind  OpKind
	Key   string // the key; for a List the prefix
	After string // the start key of a List
	N     int    // index of the operation among all operations of the decorator, from 0
}

// String returns the operation as one line without its index: "put-if-absent _delta_log/00000000000000000000.json".
func (o Op) String() string {
	s := o.Kind.String() + " " + o.Key
	if o.After != "" {
		s += " after " + o.After
	}
	return s
}

// Outcome returns the result of an operation as one word: ok, exists, not_found, not_sent, refused, canceled or
// failed. A put that failed may have had an effect or not.
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

// WithLastCheck makes every Put under the returned context call check once, when the request is ready to be sent. For
// S3 that is after signing: if the process sleeps after the check, the signature expires and S3 refuses the request.
// If check returns an error, the request is not sent and Put returns that error together with [ErrNotSent]. A nil
// check removes an earlier one.
func WithLastCheck(ctx context.Context, check func() error) context.Context {
	return context.WithValue(ctx, lastCheck{}, check)
}

// LastCheck is for implementations of Store, which call it just before a put is sent. It returns the error of ctx or
// of the check of [WithLastCheck].
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
