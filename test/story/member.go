package story

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
)

// NewMember returns a member that has not joined a generation. Its fetch requests end with ctx.
func (b *Broker) NewMember(ctx context.Context) *Member {
	m := &Member{
		b: b, assigned: make(chan connector.Assignment, 64), fetched: make(chan connector.Fetched), requests: map[connector.Partition]uint64{},
	}
	m.end, m.stop = context.WithCancel(ctx)
	return m
}

// Assign queues an assignment; Run delivers it later.
func (m *Member) Assign(a connector.Assignment) { m.assigned <- a }

// Kill makes every later call of the member fail without effect, as a crash would.
func (m *Member) Kill() {
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	m.stop()
}

// Wait cancels the member's fetch requests in flight and waits for their goroutines.
func (m *Member) Wait() {
	m.stop()
	m.pending.Wait()
}

var (
	errDead  = classify.Mark(errors.New("the process is gone"), classify.Canceled)
	errFlaky = classify.Mark(errors.New("connection reset"), classify.Transient)
)

// ask waits for a random time, as a request does. It fails if the member was killed, or at random as Broker.Flaky says.
func (m *Member) ask(ctx context.Context) error {
	if err := m.b.Chance.Pause(ctx, 20*time.Millisecond); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.dead:
		return errDead
	case m.b.Flaky.Load() > 0 && m.b.Chance.Is(int(m.b.Flaky.Load())):
		return errFlaky
	}
	return nil
}

// Run implements [connector.Group]: it delivers the assignments given to Assign.
func (m *Member) Run(ctx context.Context, deliver func(connector.Assignment)) error {
	for {
		select {
		case a := <-m.assigned:
			m.mu.Lock()
			m.joined = a.Joined
			m.mu.Unlock()
			deliver(a)
		case <-ctx.Done():
			return nil
		}
	}
}

// Offsets implements [connector.Group].
func (m *Member) Offsets(ctx context.Context, name string) (map[int32]connector.GroupOffset, error) {
	if err := m.ask(ctx); err != nil {
		return nil, err
	}
	if m.b.Hung.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if m.b.OnOffsets != nil {
		m.b.OnOffsets()
	}
	m.trace("group offsets of %s", name)
	return m.b.GroupOffsets(name), nil
}

func (m *Member) trace(format string, args ...any) {
	if m.Trace != nil {
		m.Trace(format, args...)
	}
}

// CommitOffsets implements [connector.Group]. It may fail before or after it took effect.
func (m *Member) CommitOffsets(ctx context.Context, offsets map[connector.Partition]connector.GroupOffset) error {
	if err := m.ask(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	joined := m.joined
	m.mu.Unlock()
	if !joined {
		return classify.Mark(errors.New("no generation"), classify.Fenced)
	}
	for p, o := range offsets {
		if p.Topic != Topic {
			continue
		}
		if at := m.Position(p.ID); o.Next > at {
			m.b.blame("group offset %d of %v, and the position is %d", o.Next, p, at)
		}
	}
	m.b.mu.Lock()
	for p, o := range offsets {
		m.b.set(p.Topic, p.ID, o)
	}
	m.b.mu.Unlock()
	m.trace("commit %d group offsets", len(offsets))
	return m.ask(ctx)
}

// Topic implements [connector.Log].
func (m *Member) Topic(ctx context.Context, name string) (connector.Topic, error) {
	if err := m.ask(ctx); err != nil {
		return connector.Topic{}, err
	}
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	t, ok := m.b.topics[name]
	if !ok {
		return connector.Topic{}, hold.New(hold.TopicMissing, "no such topic", nil)
	}
	answer := connector.Topic{Cluster: m.b.Cluster, Name: name, ID: t.id}
	for i := range t.partitions {
		if m.b.Shown == 0 || i < m.b.Shown {
			answer.Partitions = append(answer.Partitions, int32(i))
		}
	}
	return answer, nil
}

// Bounds implements [connector.Log].
func (m *Member) Bounds(ctx context.Context, at []connector.Position) (map[connector.Partition]connector.Bounds, error) {
	if err := m.ask(ctx); err != nil {
		return nil, err
	}
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	bounds := map[connector.Partition]connector.Bounds{}
	unread := &connector.UnreadError{Causes: map[connector.Partition]error{}}
	for _, pos := range at {
		if m.b.Silent[pos.Partition.ID] {
			unread.Causes[pos.Partition] = classify.Mark(errors.New("no leader"), classify.Transient)
			continue
		}
		if t := m.b.topics[pos.Partition.Topic]; t != nil && t.id == pos.Partition.TopicID {
			p := t.partitions[pos.Partition.ID]
			b := p.bounds()
			b.DivergedAt = p.divergedAt(pos)
			bounds[pos.Partition] = b
		}
	}
	m.trace("bounds of %d partitions", len(at))
	if len(unread.Causes) > 0 {
		return bounds, unread
	}
	return bounds, nil
}

// OffsetsAt implements [connector.Log].
func (m *Member) OffsetsAt(ctx context.Context, partitions []connector.Partition, at time.Time) (map[connector.Partition]int64, error) {
	if err := m.ask(ctx); err != nil {
		return nil, err
	}
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	offsets := map[connector.Partition]int64{}
	for _, p := range partitions {
		if t := m.b.topics[p.Topic]; t != nil && t.id == p.TopicID {
			times := t.partitions[p.ID].times
			if i := slices.IndexFunc(times, func(t time.Time) bool { return !t.Before(at) }); i >= 0 {
				offsets[p] = int64(i)
			}
		}
	}
	return offsets, nil
}

func (p *partition) bounds() connector.Bounds {
	end := int64(len(p.kinds))
	return connector.Bounds{LogStart: p.logStart, LastStable: end, HighWatermark: end, LeaderEpoch: p.epoch, DivergedAt: -1}
}

// Fetch implements [connector.Log]: some time after the partition has a record or an error, the result is in Fetched.
func (m *Member) Fetch(q connector.FetchRequest) {
	m.mu.Lock()
	m.n++
	n := m.n
	m.requests[q.Partition] = n
	dead := m.dead
	m.mu.Unlock()
	if dead {
		return
	}
	if since, paused := m.b.Paused(q.Partition.ID); paused && time.Since(since) > HearsOfPauses {
		m.b.blame("fetch of %v from %d, and it is paused for %v", q.Partition, q.Next, time.Since(since))
	}
	m.trace("fetch %v from %d", q.Partition, q.Next)
	m.pending.Go(func() { m.answer(q, n) })
}

// Forget implements [connector.Log].
func (m *Member) Forget(p connector.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.requests, p)
}

// Fetched implements [connector.Log].
func (m *Member) Fetched() <-chan connector.Fetched { return m.fetched }

func (m *Member) answer(q connector.FetchRequest, n uint64) {
	for {
		if m.b.Chance.Pause(m.end, 30*time.Millisecond) != nil {
			return
		}
		if m.Memory.Acquire(m.end, Response) != nil { // like the shipped fetcher, before the request
			return
		}
		f, grown := m.b.read(q)
		again := !m.open(&f)
		m.Memory.Release(Response)
		if again {
			continue
		}
		if slow := m.b.slow(f); slow > 0 {
			t := time.NewTimer(slow)
			select {
			case <-t.C:
			case <-m.end.Done():
				t.Stop()
				forget(f)
				return
			}
		}
		if grown != nil {
			select {
			case <-grown:
				continue
			case <-m.end.Done():
				return
			}
		}
		m.mu.Lock()
		wanted := m.requests[q.Partition] == n
		m.mu.Unlock()
		if !wanted && !m.b.Chance.Is(4) { // a result that was replaced or forgotten may arrive all the same
			forget(f)
			return
		}
		select {
		case m.fetched <- f:
		case <-m.end.Done():
			forget(f)
		}
		return
	}
}

// Response is the memory that a fetch request reserves for its response, in bytes.
const Response = 4 << 10

// open copies the records of a fetch result into memory of the member's pool, and waits for the memory if needed. If it
// returns false, no records were copied, and the fetch must be repeated.
func (m *Member) open(f *connector.Fetched) bool {
	r, ok := f.Records.(*records)
	if !ok {
		return true
	}
	size := 1
	for _, rec := range r.left {
		size += len(rec.Key) + len(rec.Value)
	}
	buf, ok := m.Memory.TryGet(size)
	if !ok {
		var err error
		if buf, err = m.Memory.GetFirst(m.end, size, Response); err != nil {
			return false
		}
	}
	move := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		n := len(buf)
		buf = append(buf, b...)
		return buf[n:len(buf):len(buf)]
	}
	for i := range r.left {
		r.left[i].Key, r.left[i].Value = move(r.left[i].Key), move(r.left[i].Value)
	}
	r.release = func() { m.Memory.Put(buf) }
	return true
}

func forget(f connector.Fetched) {
	if f.Records != nil {
		f.Records.Release()
	}
}

// slow returns Broker.Slow for a result that begins with a damaged batch, 0 for others.
func (b *Broker) slow(f connector.Fetched) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := f.Records.(*records); ok && r.err != nil && len(r.left) == 0 {
		return b.Slow
	}
	return 0
}

// read returns a fetch result. At the end of the log it also returns a channel that is closed once records arrive; then
// the caller must call read again.
func (b *Broker) read(q connector.FetchRequest) (connector.Fetched, <-chan struct{}) {
	most := b.Answer
	if most == 0 {
		most = 1 + b.Chance.N(6)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[q.Partition.Topic]
	f := connector.Fetched{Partition: q.Partition, Session: q.Session, From: q.Next, Next: q.Next}
	if t == nil || t.id != q.Partition.TopicID {
		f.Err = hold.New(hold.TopicRecreated, "another topic now", nil)
		return f, nil
	}
	p := t.partitions[q.Partition.ID]
	f.Bounds = p.bounds()
	switch end := f.Bounds.HighWatermark; {
	case q.Next < p.logStart:
		f.Err = hold.New(hold.BehindLogStart, "offset out of range", nil)
		return f, nil
	case q.Next > end:
		f.Err = hold.New(hold.AheadOfLogEnd, "offset out of range", nil)
		return f, nil
	case p.divergedAt(q.Position) >= 0:
		f.Err = hold.New(hold.Truncated, "other records stand there now", nil)
		return f, nil
	case q.Next == end:
		return f, b.grown
	}
	r := &records{}
	for o := q.Next; o < int64(len(p.kinds)) && len(r.left) < most; o++ {
		if p.epochs[o] != p.epochs[q.Next] { // all records of a fetch result have one leader epoch
			break
		}
		if o == p.corrupt {
			r.err = hold.New(hold.CorruptBatch, "checksum", nil)
			break
		}
		f.Next = o + 1
		rec := connector.Record{Offset: o, Timestamp: p.times[o].UnixMilli(), Key: []byte(p.keys[o]), Value: b.valueAt(p, o)}
		switch p.kinds[o] {
		case Control:
			continue
		case Tombstone:
			rec.Value = nil
		case Health:
			rec.Headers = []connector.Header{{Key: connector.HealthHeader, Value: []byte(connector.HealthValue)}}
		default:
		}
		if b.stamped != nil {
			s := b.stamped(q.Partition.ID, o)
			rec.Timestamp = s.At
			if s.ID != "" && b.Carries != nil {
				rec.Value = b.Carries(rec.Value, s.ID)
			}
			if s.ID != "" {
				rec.Headers = append(rec.Headers, connector.Header{Key: "id", Value: []byte(s.ID)})
			}
		}
		r.left = append(r.left, rec)
	}
	if len(r.left) > 0 || r.err != nil {
		f.Records = r
	}
	f.Epoch = p.epochBefore(f.Next)
	return f, nil
}

// records are the records of a fetch result.
type records struct {
	left    []connector.Record
	err     error
	release func() // returns the memory of the records to the pool, which overwrites it
}

// Release implements [connector.Records].
func (r *records) Release() { r.release() }

// Read implements [connector.Records].
func (r *records) Read(block []connector.Record) (int, error) {
	n := copy(block, r.left)
	r.left = r.left[n:]
	switch {
	case len(r.left) > 0:
		return n, nil
	case r.err != nil:
		return n, r.err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
