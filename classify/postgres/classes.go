package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/classify"
)

// classes maps what a server says to a class, by the longest beginning of its SQLSTATE that is known (PostgreSQL, appendix A).
// classify/classtest/classes.txt shows it.
var classes = map[string]classify.Class{
	"08":           classify.Transient, // connection exception
	"22":           classify.Fatal,     // data exception
	"23":           classify.Fatal,     // integrity constraint violation: a table of another shape
	"25006":        classify.Transient, // read only: a standby, until the failover is through
	"28":           classify.Fatal,     // invalid authorization
	"3D":           classify.Fatal,     // no such database
	"3F":           classify.Fatal,     // no such schema
	"40":           classify.Transient, // transaction rollback: deadlock, serialization
	"42":           classify.Fatal,     // no privilege, or a table of another shape
	undefinedTable: classify.Transient, // it is made again
	"53":           classify.Transient, // insufficient resources
	"54":           classify.Fatal,     // program limit exceeded
	"55":           classify.Transient, // object not in prerequisite state: locks
	"57":           classify.Transient, // operator intervention: shutdown, start, canceled statement
	"57P04":        classify.Fatal,     // the database was dropped
	"58":           classify.Transient, // system error: disk
	"XX":           classify.Transient, // internal error
}

// The SQLSTATEs that decide something beside the class.
const (
	insufficientPrivilege = "42501"
	undefinedTable        = "42P01"
	undefinedColumn       = "42703"
	undefinedFunction     = "42883"
)

// Classified marks an error with its class. An error that no server sent and that has no class is Transient: connections
// break. A SQLSTATE that is not in the table stays unknown. nil stays nil.
func Classified(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
		if _, known := classify.Known(err); known {
			return err
		}
		return classify.Mark(err, classify.Transient)
	}
	state := code(err)
	for n := len(state); n > 1; n-- {
		if class, ok := classes[state[:n]]; ok {
			return classify.Mark(err, class)
		}
	}
	return err
}

// Gone reports whether a table, a column or a function of ours is missing: it was dropped, or the database was restored.
func Gone(err error) bool {
	switch code(err) {
	case undefinedTable, undefinedColumn, undefinedFunction:
		return true
	}
	return false
}

// code returns the SQLSTATE of what a server said, "" if it said nothing.
func code(err error) string {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return said.Code
	}
	return ""
}
