// Package admin implements the actions of operators as functions that take a context, an [Access] and plain arguments
// and return structs. The commands print the structs, and the ops API serves them. An action that changes something has
// two steps: a Plan function returns what would change, and a second function does it; a dry run ends after the plan.
// Errors have kinds; see package fail.
package admin

import (
	"context"

	"sluice/internal/config"
	"sluice/sink/opslog"
)

// Access gives operators access to a pipeline. Each function opens Kafka and the tables itself, so that it waits only
// for the dependencies that it needs. The operations log is opened once. An Access is not safe for concurrent use.
type Access struct {
	Config   *config.Config
	Version  string // the version of this program, which names it in its commits
	ReadOnly bool   // true if nothing may be created, not even the directory of a local store
	// LetterBytes bounds the memory for the dead letters of one call; 0 for no bound. A call that needs more is
	// refused.
	LetterBytes int64
	// Progress, if not nil, is called often during a long read: done of so many parts are read. If of is 0, it is not
	// known how many there are.
	Progress func(done, of int64)

	log *operationsLog
}

// operations returns the operations log. It opens the log at the first call.
func (a *Access) operations(ctx context.Context) (*operationsLog, error) {
	if a.log == nil {
		log, err := openOperations(ctx, a.Config, !a.ReadOnly)
		if err != nil {
			return nil, err
		}
		a.log = log
	}
	return a.log, nil
}

// passed calls Progress.
func (a *Access) passed(done, of int64) {
	if a.Progress != nil {
		a.Progress(done, of)
	}
}

// Close ends the connection to the operations log.
func (a *Access) Close() {
	if a.log != nil {
		a.log.end()
		a.log = nil
	}
}

// By is the operator of an action, and the reason. The operations log and the commits keep both.
type By struct {
	Operator, Reason string
	Once             opslog.Once // the key of a decision that must be recorded at most once; zero if it may be repeated
}
