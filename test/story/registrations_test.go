package story_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/health"
	"sluice/health/membership"
	"sluice/test/story"
)

// silentStore is a store of registrations that never responds: calls block until ends is closed, or, unless blind is
// set, until their context ends.
type silentStore struct {
	blind bool
	asked atomic.Int64
	ends  chan struct{}
}

func (d *silentStore) wait(ctx context.Context) error {
	d.asked.Add(1)
	ended := ctx.Done()
	if d.blind {
		ended = nil
	}
	select {
	case <-d.ends:
	case <-ended:
	}
	return membership.ErrUnavailable
}

func (d *silentStore) Beat(ctx context.Context, _ membership.Beat) (bool, error) {
	return false, d.wait(ctx)
}
func (d *silentStore) Leave(ctx context.Context, _ string) error { return d.wait(ctx) }
func (d *silentStore) Close() error                              { return nil }

func (d *silentStore) Members(ctx context.Context) ([]membership.Member, error) {
	return nil, d.wait(ctx)
}

func (d *silentStore) Sweep(ctx context.Context, _ time.Duration) (int, error) { return 0, d.wait(ctx) }

// TestRegistrations_StoreSilent expects a member to commit as usual while its store of registrations never responds.
// The member must report that it does not know the other members.
func TestRegistrations_StoreSilent(t *testing.T) {
	const minutes = 10
	versions := map[string]int{}
	for _, beside := range []string{"none", "silent", "silent and blind"} {
		seeded(t, 7, 2, func(t *testing.T, h *story.Harness) {
			p := h.Begin(t.Context())
			p.Member.Assign(joined(h, 0, 1))
			store, keeping := &silentStore{blind: beside == "silent and blind", ends: make(chan struct{})}, sync.WaitGroup{}
			ctx, end := context.WithCancel(t.Context())
			var members func() health.Members
			if beside != "none" {
				k, err := membership.NewKeeper(store, membership.Config{
					ID: p.Name, Beat: time.Second, TTL: 10 * time.Second, Sweep: time.Second, Logger: slog.New(slog.DiscardHandler), Registerer: p.Metrics,
					Poll: func() (time.Duration, int64) {
						var lag int64
						for _, c := range p.Connector.Status().Claims {
							lag += c.Lag
						}
						return 0, lag
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				members = k.Members
				keeping.Go(func() { k.Run(ctx, nil) })
			}
			for range minutes * 60 {
				h.Broker.Produce(story.Topic, 0, "r", "k")
				h.Broker.Produce(story.Topic, 1, "r", "k")
				time.Sleep(time.Second)
			}
			eventually(t, "end", h.AtEnd)
			if members != nil {
				if m := members(); m.Status != health.MembersUnknown || m.Reason == "" {
					t.Errorf("it says %+v", m)
				}
				if p.Counted("sluice_commits_total") == 0 { // collecting the metrics calls the keeper, which must not block
					t.Error("no commit is counted")
				}
				if store.asked.Load() == 0 {
					t.Error("the store was never asked")
				}
			}
			versions[beside] = len(h.Log.Versions())
			h.Stop(p) // the member must end although the store does not respond
			end()
			close(store.ends)
			keeping.Wait()
		})
	}
	t.Logf("versions: %v", versions)
	none := versions["none"]
	if none < minutes*60/3 {
		t.Errorf("%d versions in %d minutes", none, minutes)
	}
	for beside, n := range versions {
		if n < none*9/10 {
			t.Errorf("%d versions beside a store that is %s, %d without one", n, beside, none)
		}
	}
}
