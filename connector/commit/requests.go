package commit

import (
	"maps"
	"sync"
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// requests are what the reader wants of the writer of a table. Each kind of request exists at most once: a newer one is merged
// into it. No method blocks.
type requests struct {
	mu    sync.Mutex
	todo  work
	wake  chan struct{}
	hurry bool // the process ends: no pause is worth it
}

func newRequests() *requests { return &requests{wake: make(chan struct{}, 1)} }

// Follow tells the writer of a topic that feeds its table from now on, too.
func (r *requests) Follow(conf connector.TopicConfig) {
	r.post(func(todo *work) {
		if todo.topics == nil {
			todo.topics = map[string]connector.TopicConfig{}
		}
		todo.topics[conf.Topic] = conf
	})
}

// Write has the writer commit a cut, whose marker is on its way through the lanes. There is no other one at the time.
func (r *requests) Write(barrier *lane.Barrier) { r.post(func(todo *work) { todo.barrier = barrier }) }

// Abandon gives up the cut on its way, nil if there is none, and the comparison that was asked for.
func (r *requests) Abandon(barrier *lane.Barrier) {
	r.post(func(todo *work) {
		if todo.barrier, todo.compare = nil, nil; barrier != nil {
			todo.dropped = append(todo.dropped, barrier)
		}
	})
}

// Resume asks where claims stand. A newer question about a claim replaces an older one.
func (r *requests) Resume(claims map[connector.Partition]ResumeRequest) {
	r.post(func(todo *work) {
		if todo.resume == nil {
			todo.resume = map[connector.Partition]ResumeRequest{}
		}
		maps.Copy(todo.resume, claims)
	})
}

// Compare asks whether claims that have nothing to commit still stand where the reader knows them to.
func (r *requests) Compare(expected map[connector.Partition]int64) {
	r.post(func(todo *work) { todo.compare = expected })
}

// Measure asks which partitions of the topics, of whichever member, are behind the ends of the first such question.
func (r *requests) Measure() { r.post(func(todo *work) { todo.ends = true }) }

// Lose tells the writer of a claim that is not this member's any more. session is one behind its last.
func (r *requests) Lose(p connector.Partition, session uint64) {
	r.post(func(todo *work) {
		if todo.lost == nil {
			todo.lost = map[connector.Partition]uint64{}
		}
		todo.lost[p] = session
	})
}

// Haste tells the writer that the process ends: it waits for nothing but the world.
func (r *requests) Haste() { r.post(func(todo *work) { todo.hurry = true }) }

// filled tells the writer that windows of fingerprints were filled, or could not be.
func (r *requests) filled(f filledWindows) {
	r.post(func(todo *work) { todo.filled = append(todo.filled, f) })
}

// post adds to what the writer is to do. It never blocks.
func (r *requests) post(add func(*work)) {
	r.mu.Lock()
	add(&r.todo)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns what there is to do. A cut stays where it is until notBefore, for pause, unless the process ends.
func (r *requests) take(notBefore time.Time) (todo work, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	todo, r.todo = r.todo, work{}
	r.hurry = r.hurry || todo.hurry
	if pause = time.Until(notBefore); todo.barrier == nil || pause <= 0 || r.hurry {
		return todo, 0
	}
	r.todo.barrier, todo.barrier = todo.barrier, nil
	return todo, pause
}

// Left returns the cuts that no writer took. The writer has ended.
func (r *requests) Left() []*lane.Barrier { return append(r.todo.dropped, r.todo.barrier) }

// work is what was requested and not taken yet.
type work struct {
	topics  map[string]connector.TopicConfig // that feed the table from now on, too
	barrier *lane.Barrier
	// dropped are cuts that nobody wants any more; what the lanes had for them is given back.
	dropped []*lane.Barrier
	resume  map[connector.Partition]ResumeRequest
	compare map[connector.Partition]int64
	lost    map[connector.Partition]uint64 // claims that are not this member's any more, with a session behind their last one
	filled  []filledWindows                // of fingerprints
	ends    bool                           // how far the whole table is from where its topics ended at the first such question
	hurry   bool                           // do not wait for anything but the world: the process ends
}

// keep puts back what was taken and not done yet, unless something newer came.
func (now *work) keep(old work) {
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
	now.ends = now.ends || old.ends
}

// ResumeRequest asks where a claim stands.
type ResumeRequest struct {
	Session uint64
	// Last is where the claim stood as far as the reader knows. Its epoch is that of the position still, if the table has
	// not moved.
	Last connector.Position
	// Standing is the reason of the hold that the claim is in, "" if none: a finding that is known already needs no
	// second look.
	Standing hold.Reason
	// Paused says that what is found only matters once an operator resumes the claim: it needs no second look, either.
	Paused bool
}
