// Package fail has the kinds of errors that a front end distinguishes: a command by its exit code, an API by its status
// code.
package fail

import "errors"

// Kind is the cause of a failed action. A larger Kind is more severe.
type Kind int

const (
	// KindFound means that the action finished and found a problem.
	KindFound Kind = iota + 1
	// KindUsage means that the arguments or the configuration are wrong.
	KindUsage
	// KindDependency means that Kafka, the store or another service could not be used.
	KindDependency
	// KindRefused means that the action would do harm.
	KindRefused
)

func (k Kind) String() string {
	switch k {
	case KindFound:
		return "found something wrong"
	case KindUsage:
		return "wrong usage"
	case KindDependency:
		return "a dependency could not be used"
	case KindRefused:
		return "refused"
	}
	return "failed"
}

// Error is an error with a kind. A nil Err means that the caller has already printed the details.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.String()
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Found returns err as an error of [KindFound].
func Found(err error) error { return &Error{KindFound, err} }

// Usage returns err as an error of [KindUsage].
func Usage(err error) error { return &Error{KindUsage, err} }

// Dependency returns err as an error of [KindDependency].
func Dependency(err error) error { return &Error{KindDependency, err} }

// Refused returns err as an error of [KindRefused].
func Refused(err error) error { return &Error{KindRefused, err} }

// Of returns the kind of err, 0 if it has none.
func Of(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return 0
}

// Join joins errs into one error with the most severe of their kinds.
func Join(errs []error) error {
	joined := &Error{Err: errors.Join(errs...)}
	for _, err := range errs {
		joined.Kind = max(joined.Kind, Of(err))
	}
	return joined
}
