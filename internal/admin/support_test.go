package admin

import (
	"testing"

	"sluice/internal/app"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// lake is a lake that tests access as an operator does.
type lake struct{ laketest.Lake }

func newLake(t *testing.T, sections string) *lake {
	t.Helper()
	return &lake{*laketest.New(t, sections)}
}

// run runs a member until its tables have all records of the topics.
func (l *lake) run() {
	l.T.Helper()
	m, err := app.New(l.T.Context(), laketest.Load(l.T, l.Config), app.Options{UntilCurrent: true}, l.Logger)
	if err != nil {
		l.T.Fatal(err)
	}
	defer m.Close()
	if err := m.Run(l.T.Context()); err != nil {
		l.T.Error(err)
	}
}

// operations returns the bodies of all entries of the operations log.
func (l *lake) operations() (bodies []opslog.Body) {
	l.T.Helper()
	guard := reliability.NewGuard("store", laketest.Load(l.T, l.Config).Guard(), l.Logger, nil, objstore.ErrNotFound, objstore.ErrExists)
	for e, err := range opslog.Open(l.Store, "p", opslog.Options{Guard: guard}).Entries(l.T.Context(), 1) {
		if err != nil {
			l.T.Fatal(err)
		}
		body, err := e.Decode()
		if err != nil {
			l.T.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	return bodies
}
