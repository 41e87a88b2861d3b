// Package story runs the shipped reader, lanes and writer against a cluster and a table in memory. Cluster and table do
// everything late and can fail at every step. Time is virtual: each step waits for a random time from a seeded
// generator, so the seed determines the schedule. Package model judges the log of the table after a run.
package story

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
)

// Kind is the kind of a record. It determines whether the record must become a row.
type Kind byte

// The kinds of records.
const (
	Row       Kind = 'r'
	Tombstone Kind = 't' // left out
	Poison    Kind = 'p' // bad: the decoder refuses it
	Health    Kind = 'h' // a health-check record: left out
	Duplicate Kind = 'd' // has the identity of an earlier row: left out
	Breaks    Kind = 'x' // bad: the decoder fails on it with an unknown error, or panics
	Unfit     Kind = 'e' // bad: the encoder panics on its row
	Control   Kind = 'c' // an offset that a read_committed consumer does not see
	Was       Kind = 'w' // a row until the table is altered, bad afterwards
	Becomes   Kind = 'b' // bad until the table is altered, a row afterwards
)

// Bad reports whether a record can never become a row.
func (k Kind) Bad() bool { return k == Poison || k == Breaks || k == Unfit }

// Chance is a seeded random generator that goroutines share.
type Chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// NewChance returns the generator for a seed.
func NewChance(seed uint64) *Chance { return &Chance{rng: rand.New(rand.NewPCG(seed, 1))} }

// N returns a random number in [0, n).
func (c *Chance) N(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// Is returns true with probability 1/n.
func (c *Chance) Is(n int) bool { return c.N(n) == 0 }

// Pause waits for a random time below most, or until ctx ends.
func (c *Chance) Pause(ctx context.Context, most time.Duration) error {
	t := time.NewTimer(time.Duration(c.N(int(most))))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Broker is a Kafka cluster in memory, with the committed offsets of one consumer group. Fields marked "use Lock" may
// be changed while members run, inside Lock.
type Broker struct {
	Cluster string
	Chance  *Chance
	// Flaky n makes requests of members and writes of dead letters fail with probability 1/n; 0 never.
	Flaky atomic.Int64
	// Hung is set while requests for the group's offsets get no response.
	Hung atomic.Bool
	// Silent are the partitions for which [Member.Bounds] cannot read the ends of the log. Use Lock.
	Silent map[int32]bool
	// Slow is how long the broker takes to return a fetch result that begins with a damaged batch. Use Lock.
	Slow time.Duration
	// Answer is the maximum number of records in a fetch result; 0: one to six, at random. Set before use.
	Answer int
	// Shown is the number of partitions that the metadata shows, 0 for all. Use Lock.
	Shown int
	// Paused reports whether an operator has paused a partition, and since when. A fetch of the partition later than
	// HearsOfPauses after that time is a violation. Set before use.
	Paused func(id int32) (since time.Time, paused bool)
	// Value makes the value of a record; if nil, the value is the record's kind.
	Value func(k Kind, offset int64) []byte
	// Stamp is called with each produced record of kind k, and returns the kind that the record gets. If nil, the
	// record keeps k. Use Lock.
	Stamp func(id int32, offset int64, k Kind) Kind
	// stamped returns the identity and the timestamp of a record. If nil, records have none. mu guards the field.
	stamped func(id int32, offset int64) Stamp
	// Carries puts an identity into a record's value. If nil, the identity is only in the record's header.
	Carries func(value []byte, id string) []byte
	// OnOffsets is called when a member requests the group's offsets, before the response. May be nil.
	OnOffsets func()

	mu     sync.Mutex
	topics map[string]*topic
	group  map[string]map[int32]connector.GroupOffset
	grown  chan struct{} // closed and replaced when records arrive
	blames []string
}

type topic struct {
	id         idempotency.TopicID
	partitions []*partition
}

type partition struct {
	kinds    []Kind
	keys     []string
	times    []time.Time
	logStart int64
	corrupt  int64 // offset of a damaged record batch, -1 for none
	// epochs are the leader epochs of the records by offset, epoch is the one of the current leader.
	epochs []int32
	epoch  int32
}

// NewBroker returns a cluster without topics.
func NewBroker(chance *Chance) *Broker {
	return &Broker{
		Cluster: "cluster", Chance: chance, topics: map[string]*topic{}, group: map[string]map[int32]connector.GroupOffset{},
		grown: make(chan struct{}),
	}
}

// Create creates a topic without records. It replaces an existing topic of this name.
func (b *Broker) Create(name string, id byte, partitions int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &topic{id: idempotency.TopicID{15: id}}
	for range partitions {
		t.partitions = append(t.partitions, &partition{corrupt: -1})
	}
	b.topics[name] = t
}

// Grow adds partitions to a topic until it has n.
func (b *Broker) Grow(name string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	for len(t.partitions) < n {
		t.partitions = append(t.partitions, &partition{corrupt: -1})
	}
}

// Produce appends one record for each letter of kinds, all with this key.
func (b *Broker) Produce(name string, id int32, kinds string, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.topics[name].partitions[id]
	for _, k := range []byte(kinds) {
		kind := Kind(k)
		if b.Stamp != nil {
			kind = b.Stamp(id, int64(len(p.kinds)), kind)
		}
		p.kinds = append(p.kinds, kind)
		p.keys = append(p.keys, key)
		p.times = append(p.times, time.Now())
		p.epochs = append(p.epochs, p.epoch)
	}
	close(b.grown)
	b.grown = make(chan struct{})
}

// Change sets where the log of a partition starts, and the offset of a damaged record batch, -1 for none.
func (b *Broker) Change(name string, id int32, logStart, corrupt int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.topics[name].partitions[id]
	p.logStart, p.corrupt = logStart, corrupt
}

// Elect elects another leader of a partition. The new leader has all records, and the leader epoch rises by one.
func (b *Broker) Elect(name string, id int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name].partitions[id].epoch++
}

// Truncate elects a leader that has only a partition's records below offset at. Then it produces records of these kinds
// at the lost offsets.
func (b *Broker) Truncate(name string, id int32, at int64, kinds string) {
	b.mu.Lock()
	p := b.topics[name].partitions[id]
	p.kinds, p.keys, p.times, p.epochs = p.kinds[:at:at], p.keys[:at:at], p.times[:at:at], p.epochs[:at:at]
	p.epoch++
	b.mu.Unlock()
	b.Produce(name, id, kinds, "k")
}

// Epochs returns the leader epochs of a partition's records, from offset 0 on.
func (b *Broker) Epochs(name string, id int32) []int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.topics[name].partitions[id].epochs)
}

// epochMark stands between the kind of a record and its leader epoch in the record's value.
const epochMark = 0xE0

// valueOf returns the value of a record: its kind, and its leader epoch if that is not 0.
func valueOf(k Kind, epoch int32) []byte {
	if epoch == 0 {
		return []byte{byte(k)}
	}
	return []byte{byte(k), epochMark, byte(epoch)}
}

// valueAt returns the value of a record. The caller holds the lock.
func (b *Broker) valueAt(p *partition, offset int64) []byte {
	if b.Value != nil {
		return b.Value(p.kinds[offset], offset)
	}
	return valueOf(p.kinds[offset], p.epochs[offset])
}

// epochOf returns the leader epoch in a record's value, 0 if it has none.
func epochOf(value []byte) int32 {
	if len(value) == 3 && value[1] == epochMark {
		return int32(value[2])
	}
	return 0
}

// divergedAt returns the offset from which the log may differ from what was read before a position, as a leader
// computes it (KIP-320). It returns -1 if the leader finds no difference or the position has no epoch.
func (p *partition) divergedAt(at connector.Position) int64 {
	if at.Epoch < 0 || at.Next <= 0 || at.Epoch == p.epoch {
		return -1
	}
	end, found := int64(0), at.Epoch // end offset and number of the newest epoch that is not newer than the position's
	for o, e := range p.epochs {
		if e > at.Epoch {
			break
		}
		end, found = int64(o)+1, e
	}
	switch {
	case end < at.Next:
		return end
	case found < at.Epoch:
		return at.Next - 1
	}
	return -1
}

// epochBefore returns the epoch of the record before an offset, -1 if there is none.
func (p *partition) epochBefore(next int64) int32 {
	if next == 0 {
		return -1
	}
	return p.epochs[next-1]
}

// Lock runs f with the broker's lock: no request reads or changes the cluster meanwhile.
func (b *Broker) Lock(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// Kinds returns the kinds of a partition's records, from offset 0 on.
func (b *Broker) Kinds(name string, id int32) []Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.topics[name].partitions[id].kinds)
}

// Partitions returns the partitions of a topic in the form of an assignment.
func (b *Broker) Partitions(name string) []connector.Partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	var all []connector.Partition
	for i := range t.partitions {
		all = append(all, connector.Partition{Cluster: b.Cluster, Topic: name, TopicID: t.id, ID: int32(i)})
	}
	return all
}

// GroupOffsets returns the committed offsets of a topic.
func (b *Broker) GroupOffsets(name string) map[int32]connector.GroupOffset {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.group[name] == nil {
		return map[int32]connector.GroupOffset{}
	}
	return maps.Clone(b.group[name])
}

// SetGroupOffset commits an offset without a leader epoch, as another program would.
func (b *Broker) SetGroupOffset(name string, id int32, next int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(name, id, connector.GroupOffset{Next: next, Epoch: -1})
}

// ForgetGroup deletes the committed offsets of a topic.
func (b *Broker) ForgetGroup(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.group, name)
}

// stampWith gives fetched records the identity and the timestamp that stamp returns. Members may be fetching meanwhile.
func (b *Broker) stampWith(stamp func(id int32, offset int64) Stamp) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stamped = stamp
}

// Violations returns what members did that they must not do, a line each: a fetch of a paused partition, a committed
// offset ahead of the table, a wrong dead letter, memory that was not released, a loop that stopped turning.
func (b *Broker) Violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.blames)
}

func (b *Broker) blame(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blames = append(b.blames, fmt.Sprintf(format, args...))
}

func (b *Broker) set(name string, id int32, o connector.GroupOffset) {
	if b.group[name] == nil {
		b.group[name] = map[int32]connector.GroupOffset{}
	}
	b.group[name][id] = o
}

// A Member is a process's client of the cluster: its Group and its Log.
type Member struct {
	b        *Broker
	assigned chan connector.Assignment
	fetched  chan connector.Fetched

	mu       sync.Mutex
	dead     bool
	requests map[connector.Partition]uint64 // number of the newest fetch request of each partition
	n        uint64                         // number of fetch requests so far
	joined   bool
	// Position returns the table's position of a partition. Committing an offset after this position is a violation.
	// Set before use.
	Position func(id int32) int64
	// Trace is called with a line for each event that is visible outside of the process. May be nil; set before
	// use.
	Trace func(format string, args ...any)
	// Memory is the pool for the records of fetch results. Set before use.
	Memory  *bytepool.Pool
	pending sync.WaitGroup
	end     context.Context
	stop    context.CancelFunc
}

var (
	_ connector.Group = (*Member)(nil)
	_ connector.Log   = (*Member)(nil)
)
