package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/classify"
)

// classes maps the errors of a server to classes. The longest known prefix of the SQLSTATE counts (PostgreSQL, appendix
// A). classify/classtest/classes.txt lists the same table.
var classes = map[string]classify.Class{
	"08":           classify.Transient, // connection exception
	"22":           classify.Fatal,     // data exception
	"23":           classify.Fatal,     // integrity constraint violation: the tables are not as Sluice makes them
	"25006":        classify.Transient, // read-only transaction: a standby, until the failover has finished
	"28":           classify.Fatal,     // invalid authorization
	"3D":           classify.Fatal,     // no such database
	"3F":           classify.Fatal,     // no such schema
	"40":           classify.Transient, // transaction rollback: deadlock, serialization
	"42":           classify.Fatal,     // no privilege, or the tables are not as Sluice makes them
	undefinedTable: classify.Transient, // the next try creates the table again
	"53":           classify.Transient, // insufficient resources
	"54":           classify.Fatal,     // program limit exceeded
	"55":           classify.Transient, // object not in prerequisite state: for example locked
	"57":           classify.Transient, // operator intervention: shutdown, start, canceled statement
	"57P04":        classify.Fatal,     // the database was dropped
	"58":           classify.Transient, // system error: for example of the disk
	"XX":           classify.Transient, // internal error
}

// The SQLSTATEs that the code compares one by one. The map classes has the classes of these errors, too.
const (
	insufficientPrivilege = "42501"
	undefinedTable        = "42P01"
	undefinedColumn       = "42703"
	undefinedFunction     = "42883"
)

// Classified marks err with its class. An error of the server gets the class of its SQLSTATE; it stays unmarked if the
// SQLSTATE has none. Any other error stays unmarked if package classify knows its class; if not, it becomes Transient,
// because connections break. nil stays nil.
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

// Gone reports whether err says that one of Sluice's tables, columns or functions is missing: it was dropped, or the
// database was restored from an older backup.
func Gone(err error) bool {
	switch code(err) {
	case undefinedTable, undefinedColumn, undefinedFunction:
		return true
	}
	return false
}

// code returns the SQLSTATE of an error that the server sent, or "" for any other error.
func code(err error) string {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return said.Code
	}
	return ""
}
