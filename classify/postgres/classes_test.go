package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/classify"
	"sluice/classify/classtest"
)

func TestClasses(t *testing.T) {
	known := map[string]error{}
	for _, row := range classtest.Rows("postgres") {
		code, _, _ := strings.Cut(row.Key, " ")
		if classes[code] != 0 || len(code) == 5 || len(code) == 2 && code != "no" {
			known[row.Key] = Classified(fmt.Errorf("ask: %w", &pgconn.PgError{Code: (code + "000")[:5], Message: "connection refused"}))
		}
	}
	known["any other"] = Classified(&pgconn.PgError{Code: "0A000"})
	known["no answer"] = Classified(errors.New("unexpected message"))
	known["the window moved"] = Classified(classify.Mark(errors.New("moved"), classify.Fenced)) // a store marks this error with its class itself
	classtest.Check(t, "postgres", known)
	for code := range classes {
		found := false
		for _, row := range classtest.Rows("postgres") {
			found = found || strings.HasPrefix(row.Key, code+" ")
		}
		if !found {
			t.Errorf("classes.txt does not list SQLSTATE %s", code)
		}
	}
	if Classified(nil) != nil {
		t.Error("a nil error has a class")
	}
	if err := Classified(fmt.Errorf("ask: %w", context.Canceled)); classify.Of(err) != classify.Canceled {
		t.Errorf("a canceled call is %v, want canceled", classify.Of(err))
	}
	if err := Classified(fatal("not ours")); classify.Of(err) != classify.Fatal {
		t.Errorf("an error of this package is %v, want fatal", classify.Of(err))
	}
}

func TestGone(t *testing.T) {
	for code, want := range map[string]bool{"42P01": true, "42703": true, "42883": true, "42501": false, "": false} {
		if got := Gone(fmt.Errorf("ask: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
	if Gone(nil) || Gone(errors.New("42P01")) {
		t.Error("an error without a SQLSTATE counts as gone")
	}
}
