package story_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
	"sluice/test/story"
)

// operators pause and resume partitions through the shipped operations log, in a store whose every operation may fail.
type operators struct {
	store objstore.Store
	log   *opslog.Log

	mu    sync.Mutex
	since map[int32]time.Time // when the pause of each paused partition was acknowledged
}

func storeGuard() *reliability.Guard {
	return reliability.NewGuard("operations log", reliability.Config{
		Backoff:  reliability.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.25},
		Failures: 5, OpenFor: 2 * time.Second, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
}

// follow connects the operations log to members, as internal/app does.
func (o *operators) follow(ctx context.Context, _ string) (<-chan struct{}, func(connector.Partition) *hold.Hold) {
	f, err := opslog.Open(o.store, story.Pipeline, opslog.Options{Guard: storeGuard()}).Follow(10 * time.Second)
	if err != nil {
		panic(err)
	}
	go f.Run(ctx)
	return f.Ready(), func(p connector.Partition) *hold.Hold {
		by, paused := f.State().Paused(p.Topic, p.ID)
		if !paused {
			return nil
		}
		return &hold.Hold{Reason: hold.Paused, Detail: by.Reason, Since: by.Since, Offset: -1}
	}
}

// hears is the time after an acknowledged pause from which no member may fetch the partition. Members poll the log
// about every 10 s, and polls may fail.
const hears = 25 * time.Second

func (o *operators) paused(id int32) (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since, paused := o.since[id]
	return since.Add(hears), paused
}

// do appends a pause or a resume of partitions to the log. It returns once the store has acknowledged the entry.
func (o *operators) do(t *testing.T, pause bool, ids ...int32) {
	t.Helper()
	var targets []opslog.Target
	for _, id := range ids {
		targets = append(targets, opslog.Target{Topic: story.Topic, Partition: id})
	}
	var body opslog.Body = opslog.Pause{Targets: targets}
	if !pause {
		body = opslog.Resume{Targets: targets}
		o.mu.Lock()
		for _, id := range ids {
			delete(o.since, id) // deleted before the resume, because a member may learn of the resume before it is acknowledged
		}
		o.mu.Unlock()
	}
	if _, err := o.log.Append(t.Context(), opslog.Operation{Operator: "ada", Reason: "a test", Body: body}, nil); err != nil {
		t.Fatal(err)
	}
	if pause {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, id := range ids {
			if _, already := o.since[id]; !already {
				o.since[id] = time.Now()
			}
		}
	}
}

// TestSchedules_OperationsLog is TestSchedules with pauses in the shipped operations log. Partitions that have been
// paused for longer than hears must not be fetched, and their positions must not move.
func TestSchedules_OperationsLog(t *testing.T) {
	operations := int64(0)
	for s := uint64(1); s <= uint64(*seeds)/4 && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			h := story.NewHarness(s, 3)
			b := &bucket{mem: objstore.NewMem(), harness: h}
			faulty := objstoretest.NewFaulty(b.mem, b.fault)
			o := &operators{store: faulty, log: opslog.Open(faulty, story.Pipeline, opslog.Options{Guard: storeGuard()}), since: map[int32]time.Time{}}
			h.Follow, h.Broker.Paused = o.follow, o.paused
			disturb(t, h, func() {
				o.do(t, h.Chance.Is(2), int32(h.Chance.N(3)))
				if h.Chance.Is(3) {
					o.do(t, true, 0, 1, 2)
					time.Sleep(hears + 20*time.Second)
					before := []int64{h.Position(0), h.Position(1), h.Position(2)}
					h.Broker.Produce(story.Topic, 1, "rr", "k")
					time.Sleep(time.Minute)
					for id, was := range before {
						if at := h.Position(int32(id)); at != was && was != -1 {
							t.Errorf("seed %d: partition %d is paused and moved from %d to %d\n%s", s, id, was, at, history(h))
						}
					}
				}
			})
			o.do(t, false, 0, 1, 2)
			calm(t, h, s)
			h.Close()
			if err := faulty.Close(); err != nil {
				t.Error(err)
			}
			for _, v := range h.Broker.Violations() {
				t.Errorf("seed %d: %s", s, v)
			}
			if broken := judge(h, versionsOf(h)); broken != "" {
				t.Errorf("seed %d: %s\n%s", s, broken, history(h))
			}
			starts := h.Started()
			for id := range int32(3) {
				if got, want := h.Rows(id), h.Want(id, starts[id], 1<<40); !slices.Equal(got, want) {
					t.Errorf("seed %d: partition %d has rows %v, want %v\n%s", s, id, got, want, history(h))
				}
			}
			r, err := opslog.Open(b.mem, story.Pipeline, opslog.Options{Guard: storeGuard()}).Verify(context.WithoutCancel(t.Context()), opslog.Head{})
			if err != nil || len(r.Findings) > 0 {
				t.Errorf("seed %d: %+v %v", s, r, err)
			}
			operations += r.Entries
		})
	}
	t.Logf("%d operations", operations)
}
