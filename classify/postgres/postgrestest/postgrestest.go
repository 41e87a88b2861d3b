// Package postgrestest has what the tests of stores in Postgres need of a real server.
package postgrestest

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Server returns the URL of the database that the lab started. The test fails if there is none.
func Server(t *testing.T) string {
	t.Helper()
	url := os.Getenv("SLUICE_TEST_POSTGRES")
	if url == "" {
		t.Fatal("SLUICE_TEST_POSTGRES is not set: go run ./test/lab/with postgres go test -tags lab PACKAGE")
	}
	return url
}

// Ask runs a statement on a new connection, and scans the row of the result into the variables of into, if there are
// any. The test ends if the statement fails.
func Ask(t *testing.T, url, sql string, into ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if len(into) > 0 {
		err = conn.QueryRow(t.Context(), sql).Scan(into...)
	} else {
		_, err = conn.Exec(t.Context(), sql)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Schema creates a schema for one test, and returns a URL of the server with this schema and the schema's name.
func Schema(t *testing.T) (url, name string) {
	t.Helper()
	url = Server(t)
	// Two test processes use the server at the same time, so the database draws the name.
	Ask(t, url, "SELECT 'test_' || replace(gen_random_uuid()::text, '-', '')", &name)
	Ask(t, url, "CREATE SCHEMA "+name)
	return url + "&search_path=" + name, name
}
