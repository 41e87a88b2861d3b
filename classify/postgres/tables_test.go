package postgres

import (
	"slices"
	"strings"
	"testing"

	"sluice/secure/pgconfig"
)

// sample returns Tables with two migrations, and their columns after the first and after both. The first migration
// creates table a, the second one adds a column to a and creates table b.
func sample() (t Tables, first, columns []string) {
	first = []string{"a.id", "a.at"}
	columns = append(slices.Clip(first), "a.status", "b.id", "b.at")
	return Tables{Latest: 2, Columns: columns, First: first, Unnoted: columns, Functions: []string{"f/0"}}, first, columns
}

// TestFound: foreign, lost and current give the expected results for each state of the database: tables that are
// missing, whole, of an earlier or later version, partly dropped, or of another program.
func TestFound(t *testing.T) {
	tables, first, columns := sample()
	both, function := []string{"a", "b"}, []string{"f/0"}
	for name, c := range map[string]struct {
		found         found
		foreign       string
		lost, current bool
	}{
		"nothing":                     {found: found{missing: function}},
		"whole":                       {found: found{tables: both, columns: columns, noted: true, version: 2}, current: true},
		"whole, versions not for us":  {found: found{tables: both, columns: columns, noted: true, version: -1}, current: true},
		"whole, no versions":          {found: found{tables: both, columns: columns, create: true, owned: true}},
		"whole, and another user's":   {found: found{tables: both, columns: columns, create: true}, current: true},
		"whole, and we make no table": {found: found{tables: both, columns: columns, owned: true}, current: true},
		"whole, versions wiped":       {found: found{tables: both, columns: columns, noted: true}},
		"whole, of a later version":   {found: found{tables: both, columns: columns, noted: true, version: 3}, current: true},
		"first version":               {found: found{tables: both[:1], columns: first, noted: true, version: 1}},
		"first version without notes": {found: found{tables: both[:1], columns: first}, foreign: "table a of schema s belongs to another program: it has no column status"},
		"another table":               {found: found{tables: both[:1], columns: []string{"a.key"}}, foreign: "has no column id"},
		"another in place of ours": {
			found: found{tables: both, columns: append(columns[3:5:5], "a.key"), noted: true, version: 2}, foreign: "has no column id", lost: true,
		},
		"another as the second":       {found: found{tables: both[1:], columns: []string{"b.key"}}, foreign: "table b"},
		"dropped":                     {found: found{noted: true, version: 2}, lost: true},
		"dropped after the first":     {found: found{noted: true, version: 1}, lost: true},
		"function dropped":            {found: found{tables: both, columns: columns, missing: function, noted: true, version: 2}, lost: true},
		"dropped, of a later version": {found: found{tables: both[1:], columns: columns[3:], noted: true, version: 3}, lost: true},
		"column dropped":              {found: found{tables: both, columns: append(first[:2:2], "b.id", "b.at"), noted: true, version: 2}, lost: true},
	} {
		c.found.schema = "s"
		err := tables.foreign(c.found)
		if (err != nil) != (c.foreign != "") || err != nil && !strings.Contains(err.Error(), c.foreign) {
			t.Errorf("%s: %v, want %q", name, err, c.foreign)
		}
		if lost := tables.lost(c.found); lost != c.lost {
			t.Errorf("%s: lost %v", name, lost)
		}
		if current := tables.current(c.found); current != c.current {
			t.Errorf("%s: current %v", name, current)
		}
	}
	if names := tables.names(); !slices.Equal(names, both) {
		t.Errorf("the tables are %v", names)
	}
}

// TestConfig: a pool has the given limits and Sluice's application_name, unless the URL has another. A URL that would
// send a password unencrypted is refused with an error that does not quote it.
func TestConfig(t *testing.T) {
	c, err := Config(pgconfig.Options{URL: "postgres://u:x@127.0.0.1/db"}, 7, connectionLife)
	if err != nil || c.MaxConns != 7 || c.MaxConnLifetime != connectionLife || c.ConnConfig.ConnectTimeout != connectionLife || c.ConnConfig.RuntimeParams["application_name"] != "sluice" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = Config(pgconfig.Options{URL: "postgres://u:x@127.0.0.1/db?application_name=mine"}, 1, 0)
	if err != nil || c.ConnConfig.RuntimeParams["application_name"] != "mine" {
		t.Errorf("application_name in the URL: %v", err)
	}
	if _, err := Config(pgconfig.Options{URL: "postgres://u:hunter2@db.example/db"}, 1, 0); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password in the clear: %v", err)
	}
}
