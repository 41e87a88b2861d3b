package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/classify"
	"sluice/idempotency"
)

// classes are those of what a server answers, by its SQLSTATE (PostgreSQL, appendix A): the longest start that is known.
// classify/classtest/classes.txt shows it.
var classes = map[string]classify.Class{
	"08":    classify.Transient, // connection exception
	"22":    classify.Fatal,     // data exception
	"23":    classify.Fatal,     // integrity constraint violation: a table of another shape
	"25006": classify.Transient, // read only: a standby, until the failover is through
	"28":    classify.Fatal,     // invalid authorization
	"3D":    classify.Fatal,     // no such database
	"3F":    classify.Fatal,     // no such schema
	"40":    classify.Transient, // transaction rollback: deadlock, serialization
	"42":    classify.Fatal,     // no privilege, or a table of another shape
	"42P01": classify.Transient, // no such table: it is made again
	"53":    classify.Transient, // insufficient resources
	"54":    classify.Fatal,     // program limit exceeded
	"55":    classify.Transient, // object not in prerequisite state: locks
	"57":    classify.Transient, // operator intervention: shutdown, start, canceled statement
	"57P04": classify.Fatal,     // the database was dropped
	"58":    classify.Transient, // system error: disk
	"XX":    classify.Transient, // internal error
}

// classified gives an error its class. What a server did not say passes: connections break.
func classified(err error) error {
	if err == nil || errors.Is(err, idempotency.ErrMoved) {
		return moved(err)
	}
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		for n := len(said.Code); n > 1; n-- {
			if class, ok := classes[said.Code[:n]]; ok {
				return classify.Mark(err, class)
			}
		}
		return err
	}
	if _, known := classify.Known(err); known {
		return err
	}
	return classify.Mark(err, classify.Transient)
}

// moved marks ErrMoved, which is an answer: no retry would change it.
func moved(err error) error { return classify.Mark(err, classify.Fenced) }

// gone says that a table of ours is not there, or has the columns of an earlier version: somebody dropped it, or the database
// was restored.
func gone(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (said.Code == "42P01" || said.Code == "42703")
}
