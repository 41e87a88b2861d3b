// Package classtest holds the table of all error classes, classes.txt. The packages in which the errors occur test
// their code against it: each row must have a tested error, and each tested error a row. docs/guarantees.md shows the
// table.
package classtest

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"sluice/classify"
)

//go:embed classes.txt
var table string

// Row is one line of the table: an error and its class.
type Row struct {
	Source string // where the error comes from: "http", "kafka", "s3", …
	Key    string // the name of the error at that source
	// Class is the name of a class, "unknown" for an error that is Transient and counted as unknown, or "answer" for a
	// response that is not a failure.
	Class string
	Note  string
}

// Rows returns the rows of a source in the order of the file, or all rows if source is "". It panics on a malformed
// line.
func Rows(source string) []Row {
	var rows []Row
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := append(strings.Split(line, "|"), "")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if len(fields) < 4 || len(fields) > 5 {
			panic(fmt.Sprintf("classes.txt: %q", line))
		}
		if source == "" || fields[0] == source {
			rows = append(rows, Row{fields[0], fields[1], fields[2], fields[3]})
		}
	}
	return rows
}

// Check fails the test unless the code under test gives each error in known the class that the table has for it. The
// keys of known are the keys of the rows. A row without an error in known, and an error without a row, also fail the
// test.
func Check(t *testing.T, source string, known map[string]error) {
	t.Helper()
	rows := map[string]bool{}
	for _, row := range Rows(source) {
		if rows[row.Key] {
			t.Errorf("%s: classes.txt lists %s twice", source, row.Key)
		}
		rows[row.Key] = true
		err, ok := known[row.Key]
		if !ok {
			t.Errorf("%s: classes.txt lists %s, but no error has that key", source, row.Key)
			continue
		}
		if got := Class(err); got != row.Class {
			t.Errorf("%s: %s (%v) is %s, classes.txt says %s", source, row.Key, err, got, row.Class)
		}
	}
	for key := range known {
		if !rows[key] {
			t.Errorf("%s: classes.txt does not list %s", source, key)
		}
	}
	if len(rows) == 0 {
		t.Errorf("%s: no rows", source)
	}
}

// Class returns the class of err in the spelling of classes.txt: "unknown" if no rule matches.
func Class(err error) string {
	class, known := classify.Known(err)
	if !known {
		return "unknown"
	}
	return class.String()
}
