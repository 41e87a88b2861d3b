package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/classify/classtest"
)

// TestGuaranteesPage compares the lists of errors in docs/guarantees.md with classify/classtest. -update writes them.
func TestGuaranteesPage(t *testing.T) {
	const (
		page  = "../../docs/guarantees.md"
		begin = "<!-- Generated from classify/classtest/classes.txt: go test ./cmd/connector -run TestGuaranteesPage -update -->\n"
		end   = "<!-- End of what is generated. -->\n"
	)
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(got), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + begin + classTables(t) + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("docs/guarantees.md is not up to date, run with -update (-want +got):\n%s", d)
	}
}

// classTables returns the lists of errors in Markdown: a table for each source of errors, with the errors of each
// class.
func classTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, source := range []struct{ name, title string }{
		{"go", "Network, DNS, TLS, system"},
		{"http", "HTTP status, where no code says more"},
		{"kafka", "Kafka's error codes"},
		{"kafka connection", "Connections to Kafka"},
		{"s3", "Answers of S3"},
		{"postgres", "Answers of Postgres, by SQLSTATE"},
		{"record", "Records ([reason codes](reason-codes.md))"},
	} {
		fmt.Fprintf(&b, "\n%s:\n\n| class | errors |\n|---|---|\n", source.title)
		rows := classtest.Rows(source.name)
		for _, class := range []string{"transient", "answer", "poison", "fatal", "fenced", "canceled", "unknown"} {
			var names []string
			for _, row := range rows {
				switch {
				case row.Class != class:
				case row.Note != "":
					names = append(names, row.Key+" ("+row.Note+")")
				default:
					names = append(names, row.Key)
				}
			}
			if names != nil {
				fmt.Fprintf(&b, "| %s | %s |\n", classTitle(class), strings.Join(names, "; "))
			}
		}
	}
	b.WriteString("\nBy the names that other connectors give them:\n\n| there | here | class |\n|---|---|---|\n")
	for _, row := range classtest.Rows("elsewhere") {
		source, key, _ := strings.Cut(row.Note, ": ")
		class := ""
		for _, r := range classtest.Rows(source) {
			if r.Key == key {
				class = r.Class
			}
		}
		if class != row.Class {
			t.Errorf("%s is %s, and %q is %q", row.Key, row.Class, row.Note, class)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.Key, row.Note, classTitle(row.Class))
	}
	b.WriteString("\n")
	return b.String()
}

// classTitle returns the name of a class on the page.
func classTitle(class string) string {
	switch class {
	case "answer":
		return "an answer (Transient for who did not ask for it)"
	case "unknown":
		return "unknown: Transient, counted"
	}
	return strings.ToUpper(class[:1]) + class[1:]
}
