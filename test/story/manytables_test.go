package story_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sluice/test/story"
)

// TestUntilCurrent_ManyTables expects a run until current of a thousand tables to end within ten minutes, although each
// load of a table takes up to 200 ms.
func TestUntilCurrent_ManyTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := 1000
		if testing.Short() {
			tables = 100
		}
		h := story.NewHarness(7, 1)
		h.UntilCurrent, h.Every, h.Queue = true, time.Hour, shipped
		h.Others = map[string]*story.TableLog{}
		all := joined(h, 0)
		for i := range tables - 1 {
			name := fmt.Sprintf("topic-%03d", i)
			h.Others[name] = story.NewTableLog("table-" + name)
			h.Broker.Create(name, byte(2+i%250), 1)
			h.Broker.Produce(name, 0, "rr", "k")
			all.Partitions = append(all.Partitions, h.Broker.Partitions(name)...)
		}
		h.Broker.Produce(story.Topic, 0, "rr", "k")
		ended := make(chan struct{})
		p := h.Begin(t.Context())
		p.Member.Assign(all)
		go func() {
			h.Done(p)
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Minute):
			t.Error("it has not ended after ten minutes")
			h.Stop(p)
			<-ended
		}
		for name, log := range h.Others {
			if got := rowsOf(log, name)[0]; len(got) != 2 {
				t.Errorf("%s has rows %v", name, got)
			}
		}
		wantRows(t, h, 0, []int64{0, 1})
		h.Close()
		for _, v := range h.Broker.Violations() {
			t.Error(v)
		}
	})
}
