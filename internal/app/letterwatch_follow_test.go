package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

// TestLetterWatch_FollowsInTime: gauge and health follow decisions and replays within [opslog.FollowDelay], however long
// the pause until the next poll is. While the store is down they keep their number, and they follow as fast once it
// answers again.
func TestLetterWatch_FollowsInTime(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 40)
	w := l.knowing()
	w.poll(t.Context())
	var down atomic.Bool
	w.stands = func(table string) error {
		if table == "" {
			t.Error("another poll")
		}
		if down.Load() {
			return errors.New("the circuit breaker is open")
		}
		return nil
	}
	// An operator's commands run outside of the bubble, because encoders of data files are shared with other tests.
	commands, ended := make(chan func()), make(chan struct{})
	defer close(commands)
	go func() {
		for command := range commands {
			command()
			ended <- struct{}{}
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		operator := func(command func()) { commands <- command; <-ended }
		follower, err := l.operationsLog().Follow(opslog.PollEvery)
		if err != nil {
			t.Fatal(err)
		}
		w.decisions, w.decided = follower.State, follower.Changed
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go follower.Run(ctx)
		<-follower.Ready()
		go w.rest(ctx, time.Hour)
		shows := func(n int) bool {
			r := w.report().Unresolved
			return cmp.Equal([]string{fmt.Sprintf("orders poison %d", n)}, unresolved(t, w)) && len(r) == 1 && r[0].Count == int64(n)
		}
		follows := func(step string, n int) {
			t.Helper()
			for began := time.Now(); !shows(n); time.Sleep(100 * time.Millisecond) {
				if time.Since(began) > opslog.FollowDelay {
					t.Fatalf("%s: %v, want %d", step, unresolved(t, w), n)
				}
			}
		}
		follows("at first", 20)
		operator(func() { l.decide(opslog.Discard{Letters: l.letters(1, 3)}) })
		follows("two discarded", 18)
		operator(func() { l.replay(5, 7, 9) })
		follows("three replayed", 15)
		operator(func() { l.decide(opslog.Reopen{Letters: l.letters(1)}); l.replay(11) })
		follows("one reopened, one replayed", 15)
		operator(func() {
			for at := int64(13); at < 23; at += 2 { // a large replay has several commits
				l.replay(at)
			}
		})
		follows("five commits", 10)
		down.Store(true)
		operator(func() { l.replay(23); l.decide(opslog.Acknowledge{Letters: l.letters(25)}) })
		follows("the store is down: the decision alone", 9)
		time.Sleep(time.Minute)
		follows("the store is still down", 9)
		down.Store(false)
		follows("the store answers", 8)
	})
}

// TestLetterWatch_FollowReadsCommitsAlone: between two polls, a replay costs no data file and no request to Kafka, and
// without a new replay nothing is read.
func TestLetterWatch_FollowReadsCommitsAlone(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	w := l.knowing()
	var mu sync.Mutex // a table's log is read by several goroutines
	var requests []string
	w.tables = objstoretest.Traced(w.tables, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, line)
	})
	w.poll(t.Context())
	w.find = nil // a request to Kafka panics
	follows := func(step string, n int, reads bool) {
		t.Helper()
		requests = nil
		w.recount(t.Context())
		if d := cmp.Diff([]string{fmt.Sprintf("orders poison %d", n)}, unresolved(t, w)); d != "" {
			t.Errorf("%s (-want +got):\n%s", step, d)
		}
		if reads != (len(requests) > 0) || strings.Contains(strings.Join(requests, "\n"), ".parquet") {
			t.Errorf("%s: requests %q", step, requests)
		}
	}
	follows("nothing happened", 5, false)
	l.replay(1, 3)
	follows("two replayed", 3, true)
	follows("nothing more", 3, false)
	l.decide(opslog.Discard{Letters: l.letters(5)})
	follows("one discarded", 2, false)
}

// TestLetterWatch_ReplayedRowsGone: a dead letter is unresolved again if another program has deleted the row of its
// replay, also if the watch reads both commits at once.
func TestLetterWatch_ReplayedRowsGone(t *testing.T) {
	l := newBadOrders(t, lettersAgain, 10)
	w := l.knowing()
	w.poll(t.Context())
	l.replay(1, 3)
	l.removeNewest("orders")
	w.recount(t.Context())
	if d := cmp.Diff([]string{"orders poison 5"}, unresolved(t, w)); d != "" {
		t.Errorf("before the rows are read (-want +got):\n%s", d)
	}
	w.poll(t.Context())
	if of := l.listed(); of.Unresolved != 5 {
		t.Errorf("list says %+v", of)
	}
	if d := cmp.Diff([]string{"orders poison 5"}, unresolved(t, w)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// removeNewest removes the data file of the newest commit of a table, as another program does.
func (l *lake) removeNewest(table string) {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	commit, err := deltalog.ReadCommit(l.T.Context(), store, state.Version, deltalog.All)
	if err != nil {
		l.T.Fatal(err)
	}
	for _, a := range commit.Actions {
		if add, ok := a.(deltalog.Add); ok {
			l.Append(table, fmt.Sprintf(`{"remove":{"path":%q,"dataChange":true,"deletionTimestamp":1}}`, add.Path))
			return
		}
	}
	l.T.Fatalf("version %d adds no file", state.Version)
}
