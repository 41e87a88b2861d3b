// Package classtest is the table of what errors mean. The tests of the packages that meet the errors hold their code
// against it, row by row and in both directions, and docs/guarantees.md shows it.
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

// Row is one error.
type Row struct {
	Source string // who made the error: "http", "kafka", "s3", …
	Key    string // how that source names it
	// Class as in classes.txt: the name of a class, "unknown" for Transient and counted as unknown, or "answer" for what
	// no failure is: it says what is there.
	Class string
	Note  string
}

// Rows returns the rows of a source in their order, of all sources if source is "".
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

// Check holds the rows of a source against what is known of the same errors, by their keys. A row that is not known and
// an error without a row fail.
func Check(t *testing.T, source string, known map[string]error) {
	t.Helper()
	rows := map[string]bool{}
	for _, row := range Rows(source) {
		if rows[row.Key] {
			t.Errorf("%s: %s stands twice in classes.txt", source, row.Key)
		}
		rows[row.Key] = true
		err, ok := known[row.Key]
		if !ok {
			t.Errorf("%s: %s stands in classes.txt and nobody makes it", source, row.Key)
			continue
		}
		if got := Class(err); got != row.Class {
			t.Errorf("%s: %s (%v) is %s, classes.txt says %s", source, row.Key, err, got, row.Class)
		}
	}
	for key := range known {
		if !rows[key] {
			t.Errorf("%s: %s does not stand in classes.txt", source, key)
		}
	}
	if len(rows) == 0 {
		t.Errorf("%s: no rows", source)
	}
}

// Class returns the class of err as the table writes it.
func Class(err error) string {
	class, known := classify.Known(err)
	if !known {
		return "unknown"
	}
	return class.String()
}
