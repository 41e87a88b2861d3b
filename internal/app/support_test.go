package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/connector"
	"sluice/internal/admin"
	"sluice/internal/laketest"
)

// lake is a lake whose tests run members.
type lake struct{ laketest.Lake }

func newLake(t *testing.T, sections string) *lake {
	t.Helper()
	return &lake{*laketest.New(t, sections)}
}

// as returns the lake with another configuration; see [laketest.Lake.As].
func (l *lake) as(was, is string) *lake { return &lake{*l.As(was, is)} }

// start runs a member until the test ends. The member checks every 200 ms for new and deleted topics.
func (l *lake) start() *Member {
	l.T.Helper()
	m, err := New(l.T.Context(), laketest.Load(l.T, l.Config), Options{WatchEvery: 200 * time.Millisecond}, l.Logger)
	if err != nil {
		l.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.T.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	l.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.T.Error(err)
		}
		m.Close()
	})
	return m
}

// run runs a member until it is current.
func (l *lake) run() {
	l.T.Helper()
	m, err := New(l.T.Context(), laketest.Load(l.T, l.Config), Options{UntilCurrent: true}, l.Logger)
	if err != nil {
		l.T.Fatal(err)
	}
	defer m.Close()
	if err := m.Run(l.T.Context()); err != nil {
		l.T.Error(err)
	}
}

// begin sets the first positions of a topic as an operator does.
func (l *lake) begin(topic string) {
	l.T.Helper()
	a := &admin.Access{Config: laketest.Load(l.T, l.Config)}
	p, err := admin.PlanStart(l.T.Context(), a, admin.StartRequest{Topics: []string{topic}, Start: connector.Start{Policy: connector.StartEarliest}})
	if err == nil {
		err = admin.Move(l.T.Context(), a, p, admin.By{Operator: "ann", Reason: "a test"}, time.Minute)
	}
	if err != nil {
		l.T.Fatal(err)
	}
}

// listed returns the dead letters of deadletters list.
func (l *lake) listed() *admin.LetterList {
	l.T.Helper()
	list, err := admin.DeadLetters(l.T.Context(), &admin.Access{Config: laketest.Load(l.T, l.Config)}, admin.LetterQuery{Within: time.Minute, Limit: 100})
	if err != nil {
		l.T.Fatal(err)
	}
	return list
}

// states returns the offset, the state and the copies of each dead letter that is listed.
func (l *lake) states() (all []string) {
	l.T.Helper()
	for _, s := range l.listed().Listed {
		all = append(all, fmt.Sprintf("%d@%d %s %d", s.Partition, s.Offset, s.State, s.Copies))
	}
	return all
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
