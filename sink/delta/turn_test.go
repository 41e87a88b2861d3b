package delta_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/connector"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

func TestAfterLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, took := range []time.Duration{0, time.Millisecond, 300 * time.Millisecond, time.Minute} {
			for n := range 20 {
				for range 20 {
					began := time.Now()
					if err := delta.AfterLoss(t.Context(), n, took); err != nil {
						t.Fatal(err)
					}
					if d := time.Since(began); d < 20*time.Millisecond || d > 2*time.Second {
						t.Fatalf("after %d losses, a put took %v: %v", n, took, d)
					}
				}
			}
		}
	})
}

// distant is a store in which a put of a commit takes a while to arrive.
type distant struct {
	objstore.Store
	wait time.Duration
}

func (d distant) Put(ctx context.Context, key string, content io.ReadSeeker, mode objstore.Mode) error {
	if strings.HasSuffix(key, ".json") {
		time.Sleep(d.wait)
	}
	return d.Store.Put(ctx, key, content, mode)
}

// TestWritersTakeTurns: writers that always have something to commit share the log. The writer that committed last does
// not keep the others from committing.
func TestWritersTakeTurns(t *testing.T) {
	puts := 2000.0
	if testing.Short() {
		puts = 400
	}
	for name, c := range map[string]struct {
		writers int
		put     time.Duration
		longest time.Duration // the longest time that a writer may be without a commit; if turns were exactly fair, it would be writers × put
	}{
		"two":                   {2, 300 * time.Millisecond, 15 * time.Second},
		"four":                  {4, 300 * time.Millisecond, 30 * time.Second},
		"four at a quick store": {4, 50 * time.Millisecond, 10 * time.Second},
		"three at a slow store": {3, 1500 * time.Millisecond, 60 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, end := context.WithTimeout(t.Context(), time.Duration(puts*float64(c.put)))
				defer end()
				store := distant{objstore.NewMem(), c.put}
				load(t, open(t, store)) // loading creates the table
				var working sync.WaitGroup
				longest := make([]time.Duration, c.writers)
				for i := range c.writers {
					tab := open(t, store)
					load(t, tab)
					working.Go(func() {
						last := time.Now()
						for version := int64(1); ctx.Err() == nil; version++ {
							_, err := tab.Commit(ctx, &connector.Commit{
								Operation: "SLUICE POSITIONS", Txns: []connector.Txn{{AppID: app(int32(i)), Version: version}},
							}, func(*connector.Snapshot) error { return nil })
							longest[i] = max(longest[i], time.Since(last))
							if last = time.Now(); err != nil && ctx.Err() == nil {
								t.Errorf("writer %d: %v", i, err)
								return
							}
						}
					})
				}
				working.Wait()
				t.Logf("longest time without a commit: %v", longest)
				for i, d := range longest {
					if d > c.longest {
						t.Errorf("writer %d had no commit for %v, of %d writers whose puts take %v", i, d, c.writers, c.put)
					}
				}
			})
		})
	}
}
