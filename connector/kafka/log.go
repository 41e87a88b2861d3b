package kafka

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/connector"
	"sluice/connector/kafka/recordbatch"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// LogConfig configures a [Log]. Zero fields take their defaults.
type LogConfig struct {
	// MaxBytes is the target size of a response: 8 MiB by default, and at most half of Memory. A response is larger if
	// its first record batch alone is.
	MaxBytes int
	// PartitionBytes is the target size of one partition in a response: 1 MiB, or 1/64 of Memory if that is less.
	PartitionBytes int
	// MinBytes is how many bytes a broker collects before it answers a request for partitions that were read to their
	// end: 64 KiB. MaxWait is how long it collects at most: 500 ms.
	MinBytes int
	MaxWait  time.Duration
	// Memory is the pool for responses and records until their release: 128 MiB. The other sizes are limited to shares
	// of it.
	Memory *bytepool.Pool
	// Rack lets brokers name a nearer replica to read from (KIP-392).
	Rack string
	// Limits bound the memory of one record batch and of one result.
	Limits recordbatch.Limits
	// Loops lets the watchdog see that the fetch loops still turn; may be nil.
	Loops *pulse.Loops
}

const (
	// confirm is the time between the two readings of a finding. A finding becomes a result only if both readings show
	// it.
	confirm = 5 * time.Second
	// boundsRetryFor is how long Bounds retries if the cluster answers but some leaders do not.
	boundsRetryFor = 5 * time.Second
	// retryFirst and retryMax are the first and the longest pause before a partition with a transient error is tried
	// again. Chance makes a pause longer or shorter by at most the share retryJitter.
	retryFirst  = 100 * time.Millisecond
	retryMax    = 5 * time.Second
	retryJitter = .25
	// metadataGap is the shortest time between two metadata requests, so that one request finds the leaders of many
	// partitions.
	metadataGap = 100 * time.Millisecond
	// retryDenied is the pause after the cluster denied access.
	retryDenied = time.Minute
	// refreshBounds is the shortest time between two results of a partition that carry only new bounds.
	refreshBounds = time.Second
	// followReplica is how long a partition is read from the replica that its leader named. Then it is read from the
	// leader, which may name a replica again.
	followReplica = 5 * time.Minute
)

// Log reads partitions. It implements [connector.Log].
//
// Each broker that leads a wanted partition has a fetcher with two loops, and each loop has at most one request in
// flight. One loop serves partitions that have records, or may have; its requests return at once. The other loop
// serves partitions that were read to their end; its requests wait at the broker (long poll). So a new request never
// waits behind the long poll of idle partitions, and idle partitions cost two requests per second and broker in total.
//
// A partition has at most one request or one undelivered result. The pool bounds memory: before a request is sent,
// room for its response is reserved; batches are decompressed into buffers of the pool; and the records of a result
// keep their buffers until they are released.
type Log struct {
	questions

	logger  *slog.Logger
	fetched chan connector.Fetched

	// Each channel wakes one goroutine of Run: the one that finds leaders, the one that compares suspected positions
	// with their logs, or the one that delivers results. A channel holds one signal; wake drops further ones.
	locate, judge, deliver chan struct{}

	mu          sync.Mutex
	cursors     map[connector.Partition]*cursor
	fetchers    map[int32]*fetcher
	deliverable []*cursor // the cursors whose results are to be delivered, oldest first
	troubles    map[troubleScope]*Trouble
	old         map[int32]int16 // the brokers too old for topic ids in Fetch, with the version of Fetch that is used with them
}

// questions sends the requests of a Log that need no fetcher: for bounds, topics, the offsets at a time, and one record
// batch.
type questions struct {
	client  *Client
	cfg     LogConfig
	metrics *logMetrics
	epochs  *leaderEpochs
}

// NewLog returns a Log, which reads while [Log.Run] runs. It registers its metrics with reg, which
// may be nil.
func NewLog(client *Client, cfg LogConfig, logger *slog.Logger, reg prometheus.Registerer) *Log {
	if cfg.Memory == nil {
		cfg.Memory = bytepool.New(128 << 20)
	}
	size := int(cfg.Memory.Size())
	cfg.MaxBytes = min(cmp.Or(cfg.MaxBytes, 8<<20), size/2)
	cfg.PartitionBytes = cmp.Or(cfg.PartitionBytes, min(1<<20, size/64))
	cfg.MinBytes = cmp.Or(cfg.MinBytes, 64<<10)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 500*time.Millisecond)
	cfg.Limits.Response = cmp.Or(cfg.Limits.Response, min(8<<20, size/8))
	cfg.Limits.Batch = cmp.Or(cfg.Limits.Batch, 2*size) // the size of the pool is the bound
	cfg.Limits = cfg.Limits.WithDefaults()
	return &Log{
		questions: questions{client: client, cfg: cfg, metrics: newLogMetrics(reg), epochs: &leaderEpochs{of: map[connector.Partition]int32{}}},

		logger:   logger,
		fetched:  make(chan connector.Fetched),
		locate:   make(chan struct{}, 1),
		judge:    make(chan struct{}, 1),
		deliver:  make(chan struct{}, 1),
		cursors:  map[connector.Partition]*cursor{},
		fetchers: map[int32]*fetcher{},
		troubles: map[troubleScope]*Trouble{},
		old:      map[int32]int16{},
	}
}

// Run reads until ctx ends. It returns nil after all its goroutines have ended.
func (l *Log) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.locating(ctx, g) })
	g.Go(func() error { return l.judging(ctx) })
	g.Go(func() error { return l.delivering(ctx) })
	defer l.releaseAll()
	if err := g.Wait(); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// releaseAll returns the memory of the results that were not delivered.
func (l *Log) releaseAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.deliverable {
		c.drop()
	}
}

// Fetch requests the next result of a partition; see [connector.Log]. It replaces an earlier request of the partition;
// if the result of that one was not delivered yet, it is dropped. After a result, even one without records, the
// partition is not read until the next Fetch.
func (l *Log) Fetch(req connector.FetchRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cursors[req.Partition]
	if c == nil {
		c = &cursor{leader: noBroker, next: -1}
		l.cursors[req.Partition] = c
	}
	if c.req.Session != req.Session || !c.wanted {
		c.loggedAt = time.Time{} // the first result of the new session must carry bounds
	}
	moved := c.next != req.Next
	if moved {
		c.behind, c.failures, c.refused = true, 0, time.Time{}
		c.maxBytes, c.alone = 0, false
	}
	c.drop()
	c.req, c.next, c.wanted = req, req.Next, true
	c.seq++
	switch c.state {
	case resting:
		l.enqueue(c)
	case queued:
		if moved { // the partition may now belong to the other queue; the new entry makes the old one stale
			l.enqueue(c)
		}
	case suspected:
		if moved {
			l.relocate(c, time.Now())
		}
	case unlocated, inFlight: // the cursor takes up the new request when it leaves this state
	}
}

// Forget ends the request of a partition and drops its result if it was not delivered; see [connector.Log].
func (l *Log) Forget(p connector.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cursors[p]
	if c == nil {
		return
	}
	c.seq++
	c.drop()
	c.wanted = false
	if c.state != inFlight { // otherwise the cursor is removed when its request in flight ends
		delete(l.cursors, p)
	}
	l.prune()
}

// Fetched returns the channel of results; see [connector.Log].
func (l *Log) Fetched() <-chan connector.Fetched { return l.fetched }

// Topic returns a topic as the cluster's metadata show it; see [connector.Log].
func (q *questions) Topic(ctx context.Context, name string) (connector.Topic, error) {
	return q.client.Topic(ctx, name)
}

// delivering sends results to Fetched in the order in which they became ready. Each cursor keeps its own result
// meanwhile, so partitions do not block each other.
func (l *Log) delivering(ctx context.Context) error {
	for {
		a, ok := l.nextResult()
		if !ok {
			if err := wait(ctx, l.deliver, time.Time{}); err != nil {
				return err
			}
			continue
		}
		select {
		case l.fetched <- a:
		case <-ctx.Done():
			if a.Records != nil {
				a.Records.Release()
			}
			return ctx.Err()
		}
	}
}

func (l *Log) nextResult() (connector.Fetched, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.deliverable) > 0 {
		c := l.deliverable[0]
		l.deliverable[0] = nil
		l.deliverable = l.deliverable[1:]
		if a := c.result; a != nil {
			c.result = nil
			return *a, true
		}
	}
	return connector.Fetched{}, false
}

// enqueueResult ends the request of a partition and queues its result for delivery. The caller holds the lock.
func (l *Log) enqueueResult(c *cursor, a connector.Fetched) {
	a.Partition, a.Session, a.From = c.req.Partition, c.req.Session, c.req.Next
	c.logged, c.loggedAt = a.Bounds, time.Now()
	c.state, c.next, c.result = resting, a.Next, &a
	l.deliverable = append(l.deliverable, c)
	wake(l.deliver)
}

// Trouble is a problem that now prevents reading: the cluster, a broker or a partition does not answer, denies access,
// or is too old. The Log retries, and holds no claim for it. But the member's status lists the claims concerned as
// held, with this Reason.
type Trouble struct {
	Broker    int32               // the id of the broker; -1 if the trouble is not about one broker
	Partition connector.Partition // zero if the trouble is not about one partition
	Reason    hold.Reason         // kafka_down, kafka_denied or kafka_incompatible
	Since     time.Time
	Err       error // the newest error
}

// troubleScope is what a trouble is about: one partition; one broker; or the cluster, with noBroker and no partition.
type troubleScope struct {
	broker    int32
	partition connector.Partition
}

// attrs returns the log attributes that name the scope.
func (w troubleScope) attrs() []any {
	switch {
	case w.partition != connector.Partition{}:
		return []any{"topic", w.partition.Topic, "partition", w.partition.ID}
	case w.broker != noBroker:
		return []any{"broker", w.broker}
	}
	return nil // the scope is the cluster
}

// Status returns the current troubles, ordered by broker and partition; nil if there are none.
func (l *Log) Status() []Trouble {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Trouble
	for _, t := range l.troubles {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Trouble) int {
		p, q := a.Partition, b.Partition
		return cmp.Or(cmp.Compare(a.Broker, b.Broker), cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.ID, q.ID))
	})
	return all
}

// TroubleOf returns the trouble that prevents reading a partition: its own, the cluster's or its broker's, the first of
// these that exists. It returns false if there is none.
func (l *Log) TroubleOf(p connector.Partition) (Trouble, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := []troubleScope{{broker: noBroker, partition: p}, {broker: noBroker}}
	if c := l.cursors[p]; c != nil {
		places = append(places, troubleScope{broker: c.source()})
	}
	for _, where := range places {
		if t := l.troubles[where]; t != nil {
			return *t, true
		}
	}
	return Trouble{}, false
}

// trouble records an error about a scope, which is a partition, a broker or the cluster. It logs the error if the scope
// had no trouble before, or a trouble with another reason. The caller holds the lock.
func (l *Log) trouble(where troubleScope, err error) {
	reason := hold.KafkaDown
	if h, ok := errors.AsType[*hold.Error](AsHold("reading", err)); ok {
		reason = h.Reason
	}
	t := l.troubles[where]
	if t == nil {
		t = &Trouble{Broker: where.broker, Partition: where.partition, Since: time.Now()}
		l.troubles[where] = t
	}
	if t.Reason != reason {
		l.logger.Warn("failed to read from Kafka; retrying", append(where.attrs(), "reason", reason, "err", err)...)
	}
	t.Reason, t.Err = reason, err
}

// troublePartition records a trouble about one partition once four requests in a row have failed, or at once if access
// is denied. Most other errors, such as those while a leader moves, end before the fourth request. The caller holds the
// lock.
func (l *Log) troublePartition(c *cursor, err error) {
	if c.failures >= 4 || isRefusal(err) {
		l.trouble(troubleScope{broker: noBroker, partition: c.req.Partition}, err)
	}
}

// endTrouble removes the trouble of a scope, if it has one, because a request has succeeded. The caller holds the lock.
func (l *Log) endTrouble(where troubleScope) {
	t := l.troubles[where]
	if t == nil {
		return
	}
	delete(l.troubles, where)
	l.logger.Info("reading from Kafka works again", append(where.attrs(), "after", time.Since(t.Since))...)
}

// prune removes the troubles that concern no wanted partition, and ends the fetchers of brokers from which no partition
// is read any more. The caller holds the lock.
func (l *Log) prune() {
	brokers := map[int32]bool{noBroker: true}
	for _, c := range l.cursors {
		brokers[c.source()] = true
	}
	maps.DeleteFunc(l.troubles, func(w troubleScope, _ *Trouble) bool {
		_, ours := l.cursors[w.partition]
		return !brokers[w.broker] || w.partition != (connector.Partition{}) && !ours
	})
	for id, f := range l.fetchers {
		if !brokers[id] {
			f.end()
			delete(l.fetchers, id)
			delete(l.old, id)
		}
	}
}

// wake sends a signal to a goroutine without blocking.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// wait returns nil once there is a signal on ch, or at the time until. If until is zero, it waits for the signal alone.
// If ctx ends first, it returns the error of ctx.
func wait(ctx context.Context, ch <-chan struct{}, until time.Time) error {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ch:
		return nil
	case <-due:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryPause returns the pause after this number of failures in a row, which is at least 1.
func retryPause(failures int) time.Duration {
	return reliability.Backoff{Initial: retryFirst, Max: retryMax, Jitter: retryJitter}.Pause(failures)
}
