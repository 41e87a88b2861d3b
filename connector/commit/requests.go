package commit

import (
	"maps"
	"sync"
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// requests has those requests of the reader that the writer of a table has not taken yet. There is at most one of each
// kind, because a newer request is merged with the waiting one. No method blocks.
type requests struct {
	mu       sync.Mutex
	todo     work
	wake     chan struct{}
	stopping bool // true once the process is stopping; take then ignores notBefore
}

func newRequests() *requests { return &requests{wake: make(chan struct{}, 1)} }

// Follow adds a topic to those that feed the writer's table.
func (r *requests) Follow(conf connector.TopicConfig) {
	r.post(func(todo *work) {
		if todo.topics == nil {
			todo.topics = map[string]connector.TopicConfig{}
		}
		todo.topics[conf.Topic] = conf
	})
}

// Write requests the commit of a sealed batch whose barrier is on its way through the lanes. Only one may be on its
// way.
func (r *requests) Write(barrier *lane.Barrier) { r.post(func(todo *work) { todo.barrier = barrier }) }

// Abandon gives up a requested comparison and, unless barrier is nil, the batch of barrier. The writer then releases
// the memory of the batch.
func (r *requests) Abandon(barrier *lane.Barrier) {
	r.post(func(todo *work) {
		if todo.barrier, todo.compare = nil, nil; barrier != nil {
			todo.dropped = append(todo.dropped, barrier)
		}
	})
}

// Resume requests the positions of claims. A newer request for a claim replaces an older one.
func (r *requests) Resume(claims map[connector.Partition]ResumeRequest) {
	r.post(func(todo *work) {
		if todo.resume == nil {
			todo.resume = map[connector.Partition]ResumeRequest{}
		}
		maps.Copy(todo.resume, claims)
	})
}

// Compare requests a check that claims without anything to commit have the expected positions.
func (r *requests) Compare(expected map[connector.Partition]int64) {
	r.post(func(todo *work) { todo.compare = expected })
}

// Measure requests a list of the partitions whose position is before the end of their log, those of other members
// included. The ends are those that the first Measure found.
func (r *requests) Measure() { r.post(func(todo *work) { todo.measure = true }) }

// Lose tells the writer that the member lost a claim. session is larger than the claim's last one, so that the writer
// can tell requests from before the loss from those after it.
func (r *requests) Lose(p connector.Partition, session uint64) {
	r.post(func(todo *work) {
		if todo.lost == nil {
			todo.lost = map[connector.Partition]uint64{}
		}
		todo.lost[p] = session
	})
}

// Haste tells the writer that the process is stopping. The writer then skips its pauses, and waits only for Kafka and
// the store.
func (r *requests) Haste() { r.post(func(todo *work) { todo.stopping = true }) }

// filled tells the writer that filling dedup windows has ended, with or without success.
func (r *requests) filled(f filledWindows) {
	r.post(func(todo *work) { todo.filled = append(todo.filled, f) })
}

// post changes the waiting requests with add, and wakes the writer. It does not block.
func (r *requests) post(add func(*work)) {
	r.mu.Lock()
	add(&r.todo)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the waiting requests. Before notBefore it leaves the barrier, unless the process is
// stopping, and returns as pause the time until then. In all other cases pause is 0.
func (r *requests) take(notBefore time.Time) (todo work, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	todo, r.todo = r.todo, work{}
	r.stopping = r.stopping || todo.stopping
	if pause = time.Until(notBefore); todo.barrier == nil || pause <= 0 || r.stopping {
		return todo, 0
	}
	r.todo.barrier, todo.barrier = todo.barrier, nil
	return todo, pause
}

// Left returns the barriers that the writer did not take; one may be nil. Call it only after the writer has ended.
func (r *requests) Left() []*lane.Barrier { return append(r.todo.dropped, r.todo.barrier) }

// work is a set of requests for the writer.
type work struct {
	topics  map[string]connector.TopicConfig // the topics that begin to feed the table
	barrier *lane.Barrier
	// dropped are barriers whose batches were given up; the writer releases the parts of the lanes.
	dropped  []*lane.Barrier
	resume   map[connector.Partition]ResumeRequest
	compare  map[connector.Partition]int64
	lost     map[connector.Partition]uint64 // lost claims, each with a session number larger than that of its last session
	filled   []filledWindows                // the results of filling dedup windows
	measure  bool                           // true if Measure was requested
	stopping bool                           // true if the process is stopping
}

// merge puts requests of old back that the writer took but could not do: those to resume, compare and measure. A newer
// request of the same kind stays.
func (now *work) merge(old work) {
	for p, r := range old.resume {
		if now.resume == nil {
			now.resume = map[connector.Partition]ResumeRequest{}
		}
		if newer, ok := now.resume[p]; !ok || newer.Session < r.Session {
			now.resume[p] = r
		}
	}
	if now.compare == nil {
		now.compare = old.compare
	}
	now.measure = now.measure || old.measure
}

// ResumeRequest asks for the position of a claim.
type ResumeRequest struct {
	Session uint64
	// Last is the position that the reader knows. If it equals the table's, its epoch is still valid.
	Last connector.Position
	// Held is the reason of the claim's hold, "" if it has none: a finding with the same reason needs no
	// confirmation.
	Held hold.Reason
	// Paused is true while an operator pauses the claim: a finding needs no confirmation until the operator resumes
	// it.
	Paused bool
}
