package commit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
)

// panicky is a table whose Commit and Discard panic. Its Load calls the function in the field.
type panicky struct {
	connector.Table
	load func() (*connector.Snapshot, error)
}

func (p panicky) Load(context.Context) (*connector.Snapshot, error) { return p.load() }

func (p panicky) Commit(context.Context, *connector.Commit, func(*connector.Snapshot) error) (*connector.Snapshot, error) {
	var none []int
	return nil, errors.New(string(rune(none[3])))
}

func (p panicky) Discard(context.Context, *connector.Staged) { panic("discard") }

// TestWaitingTable_PanicIsHold: a panic of a table becomes an error that holds its claims. The log has one line with
// the stack if the same panic repeats, and a new line for a panic at another place.
func TestWaitingTable_PanicIsHold(t *testing.T) {
	var log bytes.Buffer
	load := func() (*connector.Snapshot, error) { panic("of the first kind") }
	table := &waitingTable{Table: panicky{load: func() (*connector.Snapshot, error) { return load() }}, logger: slog.New(slog.NewJSONHandler(&log, nil))}
	holds := func(err error) {
		t.Helper()
		if reason, _, held := hold.Of(err); !held || reason != hold.TableUnsupported || classify.Of(err) != classify.Fatal {
			t.Errorf("%v", err)
		}
	}
	lines := func(want int) {
		t.Helper()
		if got := strings.Count(log.String(), `"stack":"sluice/connector/commit.`); got != want || want != strings.Count(log.String(), "\n") {
			t.Errorf("%d lines with a stack, want %d:\n%s", got, want, &log)
		}
	}
	for range 3 {
		_, err := table.Load(t.Context())
		holds(err)
	}
	lines(1)
	_, err := table.Commit(t.Context(), nil, nil)
	holds(err)
	lines(2)
	table.Discard(t.Context(), nil)
	lines(3)
	read := table.reading(func(context.Context, func(connector.PastRows) error) error { panic("while rows are read back") })
	holds(read(t.Context(), nil))
	lines(4)

	// If an adapter has recovered its own panic and returns a hold, that hold stays. An error without a panic does not
	// become a hold.
	load = func() (*connector.Snapshot, error) {
		return nil, hold.New(hold.SchemaConflict, "known", panics.Catch(func() error { panic(1) }))
	}
	if _, err = table.Load(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "schema_conflict: known: panic of type int") {
		t.Error(err)
	}
	lines(5)
	load = func() (*connector.Snapshot, error) { return nil, context.Canceled }
	if _, err = table.Load(t.Context()); !errors.Is(err, context.Canceled) || errors.As(err, new(*hold.Error)) {
		t.Error(err)
	}
	lines(5)
}
