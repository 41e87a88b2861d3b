// Package admin is what operators can do, as functions that take a context, an [Access] and plain arguments and return
// structs: commands print them, an API may serve them. What changes something is planned first: a plan says what would be
// done, and a dry run ends with it. Errors have kinds, see package fail.
package admin

import (
	"context"

	"sluice/internal/config"
)

// Access is a pipeline as operators work on it. What is asked for opens Kafka and the tables for itself, so that no question
// waits for a dependency of another one; the operations log is opened once. It is for one goroutine.
type Access struct {
	Config   *config.Config
	Version  string // of this program, for the commits that it makes
	ReadOnly bool   // nothing is made, not even the directory of a store

	log *operationsLog
}

// operations returns the operations log, opened at the first call.
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

// Close ends the connection to the operations log.
func (a *Access) Close() {
	if a.log != nil {
		a.log.end()
		a.log = nil
	}
}

// By is who does something, and why: the operations log and commits keep both.
type By struct{ Operator, Reason string }
