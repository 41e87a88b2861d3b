package story

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Twins gives each record of Topic an identity and a timestamp, and decides which records are duplicates. It compares
// a record with all earlier rows of its partition, so the result does not depend on members, dedup windows and stores.
type Twins struct {
	Window time.Duration
	// Shared is the store of fingerprints that all members use, as they would use a database. If nil, each member keeps
	// fingerprints in its own memory.
	Shared idempotency.Store
	// Reset becomes [connector.Duplicates.Reset] of the members. May be nil.
	Reset func(connector.Partition) int64
	// Identity is the members' configuration of identities. [NewTwins] sets the header "id".
	Identity idempotency.Identity
	// Limit is the maximum size of a member's own memory of fingerprints, in bytes.
	Limit int64

	chance *Chance
	mu     sync.Mutex
	at     map[int32]*stamped
}

type stamped struct {
	clock   int64           // newest timestamp that Random chose
	newest  int64           // newest timestamp of a row
	records map[int64]Stamp // by offset
	rows    []Stamp
}

// Stamp is the identity and the timestamp that a producer gave a record.
type Stamp struct {
	ID string // "" if the record has no identity
	At int64  // in milliseconds since 1970; negative if the record has no timestamp
}

// NewTwins returns Twins for members with this dedup window, without records.
func NewTwins(chance *Chance, window time.Duration) *Twins {
	return &Twins{Identity: idempotency.Identity{By: idempotency.ByHeader, Name: "id"}, Window: window, Limit: 1 << 30, chance: chance, at: map[int32]*stamped{}}
}

// Add produces a record for each stamp.
func (t *Twins) Add(b *Broker, id int32, stamps ...Stamp) {
	for _, s := range stamps {
		b.Stamp = func(id int32, offset int64, _ Kind) Kind { return t.put(id, offset, s) }
		b.Produce(Topic, id, "r", "k")
	}
}

// Random makes the broker give a random stamp to every row that is produced from now on. The identity is often that of
// another row, so that many of these records become duplicates.
func (t *Twins) Random(b *Broker) {
	b.Stamp = func(id int32, offset int64, k Kind) Kind {
		if k != Row {
			return k
		}
		now := time.Now().UnixMilli()
		p := t.partition(id)
		if p.clock == 0 {
			p.clock = now - []int64{0, 30, 100}[t.chance.N(3)]*24*3600_000
		}
		const second, hour = int64(1000), int64(3600_000)
		p.clock += []int64{0, 0, 1, second, hour, 23*hour + 59*60*second, 24*hour + 60*second, -2 * hour, -30 * hour}[t.chance.N(9)]
		p.clock = min(p.clock, now+hour)
		s := Stamp{At: p.clock}
		if t.chance.Is(15) {
			s.At = -1
		}
		if n := t.chance.N(7); n > 0 {
			s.ID = fmt.Sprint("e-", n)
		}
		return t.put(id, offset, s)
	}
}

func (t *Twins) partition(id int32) *stamped {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at[id] == nil {
		t.at[id] = &stamped{newest: idempotency.Never, records: map[int64]Stamp{}}
	}
	return t.at[id]
}

// put stores the stamp of a new record and returns its kind. The kind is Duplicate if an earlier row has the same
// identity and is at most Window older than the newest of the rows and this record, otherwise Row. A record without a
// timestamp is always a Row. The timestamp must be at most an hour ahead of now, since members count a later one as
// now.
func (t *Twins) put(id int32, offset int64, s Stamp) Kind {
	p := t.partition(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	p.records[offset] = s
	if s.At < 0 {
		return Row
	}
	newest := max(p.newest, s.At)
	if s.ID != "" && slices.ContainsFunc(p.rows, func(r Stamp) bool { return r.ID == s.ID && r.At >= newest-t.Window.Milliseconds() }) {
		return Duplicate
	}
	p.rows, p.newest = append(p.rows, s), newest
	return Row
}

// Stamp returns the stamp of a record, the zero Stamp if Twins has not seen the record.
func (t *Twins) Stamp(id int32, offset int64) Stamp {
	p := t.partition(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.records[offset]
}

// entry returns what a store of fingerprints keeps about a record with this stamp.
func (s Stamp) entry(offset int64) idempotency.Entry {
	h := idempotency.NewHasher(idempotency.Identity{By: idempotency.ByHeader, Name: "id"})
	return idempotency.Entry{Fingerprint: h.Header([]byte(s.ID)), Offset: offset, At: s.At}
}

// duplicates returns a member's configuration and its own memory of fingerprints. After crash every call of the store
// fails.
func (t *Twins) duplicates(chance *Chance) (d *connector.Duplicates, own *idempotency.Memory, crash func()) {
	own = idempotency.NewMemory(t.Limit, nil)
	s := &mortalStore{Store: own, chance: chance}
	if t.Shared != nil {
		s.Store, s.shared = t.Shared, true
	}
	return &connector.Duplicates{
		Identity: t.Identity, Window: t.Window, Sweep: 2 * time.Second, Store: s, Reset: t.Reset,
	}, own, s.kill
}

// mortalStore is a process's client of a store of fingerprints. Its calls fail once the process has crashed. Calls of a
// shared store take a random time.
type mortalStore struct {
	idempotency.Store
	chance *Chance
	shared bool

	mu   sync.Mutex
	dead bool
}

func (s *mortalStore) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

func (s *mortalStore) step(ctx context.Context) error {
	if s.shared {
		if err := s.chance.Pause(ctx, 50*time.Millisecond); err != nil {
			return classify.Mark(err, classify.Canceled)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errDead
	}
	return nil
}

// Through implements [idempotency.Store].
func (s *mortalStore) Through(ctx context.Context, sc idempotency.Scope) (int64, error) {
	if err := s.step(ctx); err != nil {
		return 0, err
	}
	return s.Store.Through(ctx, sc)
}

// Seen implements [idempotency.Store].
func (s *mortalStore) Seen(ctx context.Context, sc idempotency.Scope, entries iter.Seq[idempotency.Entry]) (map[idempotency.Fingerprint]int64, error) {
	if err := s.step(ctx); err != nil {
		return nil, err
	}
	return s.Store.Seen(ctx, sc, entries)
}

// Remember implements [idempotency.Store].
func (s *mortalStore) Remember(ctx context.Context, sc idempotency.Scope, from, next int64, entries iter.Seq[idempotency.Entry]) error {
	if err := s.step(ctx); err != nil {
		return err
	}
	return s.Store.Remember(ctx, sc, from, next, entries)
}

// For implements [idempotency.Store].
func (s *mortalStore) For(string) idempotency.Store { return s }

// Release implements [idempotency.Store].
func (s *mortalStore) Release(sc idempotency.Scope) {
	if !s.shared {
		s.Store.Release(sc)
	}
}

// ReadFingerprints implements [connector.FingerprintReader]. It returns rows in random order, and some that are older
// than the query asks for.
func (t *Table) ReadFingerprints(s *connector.Snapshot, q connector.FingerprintQuery) (connector.Reading, error) {
	if t.Twins == nil {
		return nil, hold.New(hold.SchemaConflict, "rows without identities", nil)
	}
	versions := t.Log.Versions()[:s.Version+1]
	return func(ctx context.Context, each func(connector.PastRows) error) error {
		if err := t.step(ctx, "recall"); err != nil {
			return err
		}
		var all []connector.PastRows
		for _, v := range versions {
			for _, r := range v.Rows {
				e := t.Twins.Stamp(r.ID, r.Offset).entry(r.Offset)
				if e.At < q.Since && t.Chance.Is(2) {
					continue
				}
				all = append(all, connector.PastRows{Topic: r.Topic, Partition: r.ID, Written: v.At.UnixMilli(), Entries: []idempotency.Entry{e}})
			}
		}
		for len(all) > 0 {
			i := t.Chance.N(len(all))
			if err := each(all[i]); err != nil {
				return err
			}
			all = slices.Delete(all, i, i+1)
			if t.Chance.Is(20) {
				if err := t.step(ctx, "recall more"); err != nil {
					return err
				}
			}
		}
		t.trace("recalled the rows of %d versions", len(versions))
		return nil
	}, nil
}
