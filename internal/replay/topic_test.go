package replay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/replay"
	"sluice/reliability/origin"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/opslog"
)

func keys(t *testing.T) origin.Keys {
	t.Helper()
	k, err := origin.ParseKeys([]byte(strings.Repeat("k", origin.MinKeyBytes)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// topic is the topic of the dead letters. Offset passed is the first one that members have not read.
type topic struct {
	mu  sync.Mutex
	log map[int32][]connector.Record
	// produce, unless nil, decides what becomes of a request: how many of its records are appended, and its error. It may
	// append records itself.
	produce func(p int32, records []connector.Record) (n int, err error)
}

// Produce implements [replay.Producer].
func (f *topic) Produce(_ context.Context, p idempotency.Partition, records []connector.Record) error {
	n, err := len(records), error(nil)
	if f.produce != nil {
		n, err = f.produce(p.ID, records)
	}
	f.append(p.ID, records[:n]...)
	return err
}

func (f *topic) append(p int32, records ...connector.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log == nil {
		f.log = map[int32][]connector.Record{}
	}
	for _, r := range records {
		r.Offset = passed + int64(len(f.log[p]))
		f.log[p] = append(f.log[p], r)
	}
}

func (f *topic) from(p int32, offset int64) []connector.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if skip := offset - passed; skip < int64(len(f.log[p])) {
		return slices.Clone(f.log[p][skip:])
	}
	return nil
}

// member reads the topic and commits to the table as a member does. The package plan decides, as in the connector,
// which records become rows.
type member struct {
	l     *lake
	store objstore.Store
	topic *topic
	most  func() int // records of one commit
}

// commit commits the next records of all partitions. It returns how many origins were accepted, and whether there was
// anything to commit.
func (m *member) commit(ctx context.Context) (n plan.OriginCounts, more bool, err error) {
	t := table(m.l.t, m.store)
	defer t.Close()
	s, err := t.Load(ctx)
	if err != nil {
		return n, false, err
	}
	batch := &plan.SealedBatch{ID: "b", Claims: map[connector.Partition]plan.Span{}}
	for _, id := range []int32{0, 1} {
		p := partition(id)
		from := s.Positions[p.AppID(pipeline)]
		records := m.topic.from(id, from)
		records = records[:min(len(records), m.most())]
		if len(records) == 0 {
			continue
		}
		next := from + int64(len(records))
		batch.Claims[p] = plan.Span{Session: 1, From: from, Next: next}
		builder, err := decode.Formats()[0].New(decode.Options{}).Builder(s.Schema)
		if err != nil {
			return n, false, err
		}
		c := plan.Chunk{Schema: s.Schema}
		for i := range records {
			r := &records[i]
			if header, ok := connector.LastHeader(r.Headers, origin.Header); ok {
				if o, err := keys(m.l.t).Verify(header, r.Key, r.Value); err == nil && o.Record.Partition == p {
					batch.Origins = append(batch.Origins, plan.Origin{Partition: p, Session: 1, Offset: r.Offset, TableID: o.TableID, Intent: o.Intent, Number: o.Number})
				}
			}
			if err := builder.Add(p, r); err != nil {
				return n, false, err
			}
			at := int64(builder.Rows())
			c.Runs = append(c.Runs, plan.Run{Partition: p, Session: 1, First: r.Offset, Last: r.Offset, From: at - 1, To: at})
		}
		c.Rows = builder.Seal()
		defer c.Rows.Release()
		batch.Chunks = append(batch.Chunks, c)
	}
	if len(batch.Claims) == 0 {
		return n, false, nil
	}
	decided := plan.Decide(batch, s, plan.Terms{Pipeline: pipeline})
	if len(decided.Pieces) > 0 {
		if decided.Commit.Staged, err = t.Stage(ctx, s, "b", decided.Pieces, func(int, int64) {}); err != nil {
			return n, true, err
		}
	}
	if _, err := t.Commit(ctx, &decided.Commit, decided.Precondition); err != nil {
		return n, true, err
	}
	for _, of := range decided.Origins {
		n.Accepted, n.Repeated, n.Missing, n.Unknown = n.Accepted+of.Accepted, n.Repeated+of.Repeated, n.Missing+of.Missing, n.Unknown+of.Unknown
	}
	return n, true, nil
}

// run commits until ctx ends, and ignores errors: the next commit begins at the table's position.
func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		_, _, _ = m.commit(ctx)
		select {
		case <-time.After(700 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// drained commits until nothing is left, and returns the sum of the counts.
func (m *member) drained() (sum plan.OriginCounts) {
	m.l.t.Helper()
	for {
		n, more, err := m.commit(m.l.t.Context())
		if err != nil {
			m.l.t.Fatal(err)
		}
		if !more {
			return sum
		}
		sum.Accepted, sum.Repeated, sum.Missing, sum.Unknown = sum.Accepted+n.Accepted, sum.Repeated+n.Repeated, sum.Missing+n.Missing, sum.Unknown+n.Unknown
	}
}

func (l *lake) member(f *topic, most int) *member {
	return &member{l, l.store, f, func() int { return most }}
}

// byLetter returns how many rows each dead letter has. A row at an offset from passed on was made through the topic;
// the value of its record names the offset of the dead letter.
func (l *lake) byLetter(f *topic) map[string]int {
	l.t.Helper()
	all := map[string]int{}
	for at, n := range l.rows() {
		var id int32
		var offset int64
		if _, err := fmt.Sscanf(at, "orders:%d@%d", &id, &offset); err != nil {
			l.t.Fatal(err)
		}
		if offset >= passed {
			var letter int64
			if _, err := fmt.Sscanf(string(f.from(id, offset)[0].Value), `{"id":%d}`, &letter); err != nil {
				l.t.Fatal(err)
			}
			offset = letter
		}
		all[fmt.Sprintf("%d@%d", id, offset)] += n
	}
	return all
}

func (l *lake) hasLetters(f *topic, id int32, want ...int64) {
	l.t.Helper()
	rows := map[string]int{}
	for _, offset := range want {
		rows[fmt.Sprintf("%d@%d", id, offset)] = 1
	}
	if d := cmp.Diff(rows, l.byLetter(f)); d != "" {
		l.t.Errorf("rows (-want +got):\n%s", d)
	}
}

// reproducer returns a Table as a process that replays through the topic has one.
func (l *lake) reproducer(store objstore.Store) *replay.Table {
	r := l.replayer(store)
	r.Keys = keys(l.t)
	return r
}

// beside runs a member until the test function returns.
func beside(t *testing.T, m *member, do func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.run(ctx) })
	do()
	end()
	running.Wait()
}

// TestReproduce: each record comes back to the partition of its dead letter, with its key, value and headers, and becomes
// one row. The same replay again does nothing, in both modes.
func TestReproduce(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		records := slices.Concat(good(0, 9, 3), good(1, 7), good(0, 3))
		records[0].Record.Key = []byte("k")
		records[0].Record.Headers = []connector.Header{{Key: "a", Value: []byte("1")}, {Key: origin.Header, Value: []byte("forged")}}
		f.append(0, good(0, 50)[0].Record) // a live record
		var result replay.Result
		var err error
		beside(t, l.member(f, 2), func() { result, err = l.reproducer(l.store).Reproduce(t.Context(), records, f) })
		if err != nil || result.Rows != 3 || result.Version != -1 || len(result.Failed)+len(result.Left) > 0 {
			t.Errorf("%+v, %v", result, err)
		}
		if d := cmp.Diff(map[string]int{"0@3": 1, "0@9": 1, "1@7": 1, "0@50": 1}, l.byLetter(f)); d != "" {
			t.Errorf("rows (-want +got):\n%s", d)
		}
		got := f.from(0, passed+2)[0]
		if string(got.Key) != "k" || string(got.Value) != `{"id":9}` || len(got.Headers) != 2 || got.Headers[0].Key != "a" || got.Headers[1].Key != origin.Header {
			t.Errorf("%+v", got)
		}
		s := l.state()
		if p := s.Letters(partition(0)); p.Reproduced.String() != "3,9" || p.Replayed.String() != "3,9" || p.Replaying.Len() > 0 || len(s.TopicReplays(path)) > 0 {
			t.Errorf("%+v", p)
		}
		produced := len(f.from(0, passed))
		result, err = l.reproducer(l.store).Reproduce(t.Context(), records, f)
		if err != nil || result.Rows != 0 || len(result.Left) != 3 || result.Left[0].Why != replay.Resolved || len(f.from(0, passed)) != produced {
			t.Errorf("%+v, %v", result, err)
		}
		if result := add(t, l.replayer(l.store), records...); result.Rows != 0 {
			t.Errorf("%+v", result)
		}
	})
}

// TestReproduce_Repeats: repeated, forged and late records make no second row; an unknown origin is an ordinary record.
func TestReproduce_Repeats(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		f.produce = func(p int32, records []connector.Record) (int, error) {
			f.append(p, records[:2]...) // a request whose answer was lost
			return len(records), nil
		}
		var err error
		beside(t, l.member(f, 3), func() { _, err = l.reproducer(l.store).Reproduce(t.Context(), good(0, 1, 2, 3), f) })
		if err != nil {
			t.Fatal(err)
		}
		l.hasLetters(f, 0, 1, 2, 3)
		first := f.from(0, passed)[0]
		f.append(0, first, first) // an old record again, for example of a mirror
		forged, strange := first, first
		forged.Value = []byte(`{"id":60}`)
		header := origin.Origin{Pipeline: pipeline, TableID: l.tableID(), Record: idempotency.Coordinates{Partition: partition(0), Offset: 61}, Intent: 900, Number: 1, Replays: 1}
		strange.Value = []byte(`{"id":61}`)
		strange.Headers = []connector.Header{{Key: origin.Header, Value: keys(t).Sign(header, strange.Key, strange.Value)}}
		other := strange
		other.Value = []byte(`{"id":62}`)
		header.TableID, header.Intent = "another", 1
		other.Headers = []connector.Header{{Key: origin.Header, Value: keys(t).Sign(header, other.Key, other.Value)}}
		f.append(0, forged, strange, other)
		if n := l.member(f, 100).drained(); n != (plan.OriginCounts{Repeated: 2, Unknown: 2}) {
			t.Errorf("%+v", n)
		}
		l.hasLetters(f, 0, 1, 2, 3, 60, 61, 62)
	})
}

func (l *lake) tableID() string {
	l.t.Helper()
	tab := table(l.t, l.store)
	defer tab.Close()
	s, err := tab.Load(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return s.TableID
}

// TestReproduce_Killed: a replay is killed while it produces, and its last request lands late. The next replay waits until
// the first one counts as abandoned, withdraws it, and replays what members have not accepted.
func TestReproduce_Killed(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		var late []connector.Record
		f.produce = func(_ int32, records []connector.Record) (int, error) {
			late = records[2:]
			return 2, errors.New("killed")
		}
		if _, err := l.reproducer(l.store).Reproduce(t.Context(), good(0, 1, 2, 3, 4), f); err == nil {
			t.Fatal("not killed")
		}
		if n := l.member(f, 100).drained(); n != (plan.OriginCounts{Accepted: 2}) {
			t.Errorf("%+v", n)
		}
		if at := l.state().Letters(partition(0)).Replaying.String(); at != "1-4" {
			t.Errorf("replaying %s", at)
		}
		// A direct replay leaves out the records that the killed replay may have produced. A decision about their dead
		// letters is refused while members may still accept them.
		if result := add(t, l.replayer(l.store), good(0, 1, 4, 5)...); result.Rows != 1 || len(result.Left) != 2 || result.Left[0].Why != replay.InTopic {
			t.Errorf("%+v", result)
		}
		f.produce = func(p int32, records []connector.Record) (int, error) {
			f.append(p, late...) // of the closed intent, before the new ones
			return len(records), nil
		}
		began := time.Now()
		var result replay.Result
		var err error
		beside(t, l.member(f, 100), func() { result, err = l.reproducer(l.store).Reproduce(t.Context(), good(0, 1, 2, 3, 4), f) })
		if err != nil || result.Rows != 2 || time.Since(began) < 20*time.Second {
			t.Errorf("%+v, %v after %v", result, err, time.Since(began))
		}
		l.hasLetters(f, 0, 1, 2, 3, 4, 5)
		if s := l.state().Letters(partition(0)); s.Reproduced.String() != "1-4" || s.Replayed.String() != "1-5" {
			t.Errorf("%+v", s)
		}
	})
}

// TestReproduce_Missing: a record that was not produced stops the acceptance of those after it. None of them counts as
// replayed, and the next replay makes their rows.
func TestReproduce_Missing(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		f.produce = func(p int32, records []connector.Record) (int, error) {
			f.append(p, records[0], records[2])
			return 0, errors.New("the second one was refused")
		}
		if _, err := l.reproducer(l.store).Reproduce(t.Context(), good(0, 1, 2, 3), f); err == nil {
			t.Fatal("no error")
		}
		if n := l.member(f, 100).drained(); n != (plan.OriginCounts{Accepted: 1, Missing: 1}) {
			t.Errorf("%+v", n)
		}
		time.Sleep(2 * time.Minute)
		open, err := l.replayer(l.store).Withdraw(t.Context(), time.Minute)
		if err != nil || len(open) > 0 {
			t.Errorf("%+v, %v", open, err)
		}
		if s := l.state().Letters(partition(0)); s.Reproduced.String() != "1" || s.Replaying.Len() > 0 {
			t.Errorf("%+v", s)
		}
		if result := add(t, l.replayer(l.store), good(0, 1, 2, 3)...); result.Rows != 2 {
			t.Errorf("%+v", result)
		}
		l.hasLetters(f, 0, 1, 2, 3)
	})
}

// TestReproduce_NobodyReads: without members the replay gives up, and its dead letters stay in the open intent until
// members have read them.
func TestReproduce_NobodyReads(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		_, err := l.reproducer(l.store).Reproduce(t.Context(), good(0, 1, 2), f)
		if _, refused := errors.AsType[*replay.RefusedError](err); !refused || !strings.Contains(err.Error(), "have accepted no record of the replay for 10m0s") {
			t.Errorf("%v", err)
		}
		l.member(f, 1).drained()
		if _, _, err := l.replayer(l.store).Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := l.state().Letters(partition(0)); s.Reproduced.String() != "1-2" || s.Replaying.Len() > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestReproduce_LeavesOut: records that cannot become rows are not produced, and one that came back too often is left out.
func TestReproduce_LeavesOut(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		records := slices.Concat(good(0, 1, 2), []replay.Record{record(0, 5, `{`)})
		for i, times := range []int64{opslog.MaxReplays, opslog.MaxReplays - 1} {
			r := &records[i].Record
			from := origin.Origin{Pipeline: pipeline, TableID: "t", Record: idempotency.Coordinates{Partition: partition(0)}, Intent: 1, Number: 1, Replays: times}
			r.Headers = []connector.Header{{Key: origin.Header, Value: keys(t).Sign(from, r.Key, r.Value)}}
		}
		var result replay.Result
		var err error
		beside(t, l.member(f, 3), func() { result, err = l.reproducer(l.store).Reproduce(t.Context(), records, f) })
		if err != nil || result.Rows != 1 || len(result.Failed) != 1 || len(result.Left) != 1 || result.Left[0].Why != replay.TooOften {
			t.Errorf("%+v, %v", result, err)
		}
		if produced := f.from(0, passed); len(produced) != 1 || string(produced[0].Value) != `{"id":2}` {
			t.Errorf("%+v", produced)
		}
	})
}

// TestReproduce_EveryStep stops a replay through the topic at each operation of the store: before the operation takes
// effect, after it, or with an effect that comes only after another process has replayed. In the end each record has one
// row and each intent its outcome.
func TestReproduce_EveryStep(t *testing.T) {
	for _, effect := range []objstoretest.Effect{objstoretest.Never, objstoretest.Done, objstoretest.Late} {
		for n := 1; ; n++ {
			ended := false
			t.Run(fmt.Sprintf("%d/%d", effect, n), func(t *testing.T) {
				deltatest.Bubble(t, func(t *testing.T) { ended = topicDiesAt(t, n, effect) })
			})
			if ended || t.Failed() {
				break
			}
		}
	}
}

// topicDiesAt ends a replay at its nth operation of the store, and reports whether it ended before that.
func topicDiesAt(t *testing.T, n int, effect objstoretest.Effect) (ended bool) {
	l, f := newLake(t), &topic{}
	dying, die := context.WithCancel(t.Context())
	defer die()
	count := 0
	var mu sync.Mutex
	faulty := objstoretest.NewFaulty(l.store, func(op objstore.Op) objstoretest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if count++; count != n {
			return objstoretest.Fault{}
		}
		die()
		if op.Kind != objstore.OpPutIfAbsent && op.Kind != objstore.OpPut {
			return objstoretest.Fault{Err: objstoretest.ErrTimeout}
		}
		return objstoretest.Fault{Err: objstoretest.ErrTimeout, Effect: effect, Land: 90 * time.Second}
	})
	defer func() { _ = faulty.Close() }()
	beside(t, l.member(f, 2), func() {
		_, err := l.reproducer(faulty).Reproduce(dying, good(0, 3, 9), f)
		ended = err == nil && dying.Err() == nil
		// Another process replays the same records. With the effect Late, the last operation of the first process takes
		// effect only 90 seconds later.
		if _, err := l.reproducer(l.store).Reproduce(t.Context(), good(0, 3, 9), f); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := l.reproducer(l.store).Reproduce(t.Context(), good(0, 3, 9), f); err != nil {
			t.Error(err)
		}
	})
	l.settled()
	l.member(f, 100).drained()
	l.hasLetters(f, 0, 3, 9)
	if s := l.state(); s.Letters(partition(0)).Reproduced.String() != "3,9" || len(s.TopicReplays(path)) > 0 {
		t.Errorf("%+v", s.Letters(partition(0)))
	}
	return ended
}

// TestReproduce_Concurrently lets several processes replay the same dead letters through the topic and directly, beside two
// members and an operator who discards some. The store fails at random and lets puts land late; requests to produce are
// repeated, cut off and land late. In the end no record has two rows, no discarded one has a row, and all others have one.
func TestReproduce_Concurrently(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			deltatest.Bubble(t, func(t *testing.T) { reproduceConcurrently(t, seed) })
		})
	}
}

func reproduceConcurrently(t *testing.T, seed uint64) {
	l := newLake(t)
	random := rand.New(rand.NewPCG(seed, 2))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	faulty := l.failing(draw, 20)
	defer func() { _ = faulty.Close() }()
	f := &topic{}
	var landing sync.WaitGroup
	f.produce = func(p int32, records []connector.Record) (int, error) {
		switch draw(6) {
		case 0: // repeated
			f.append(p, records[:1+draw(len(records))]...)
			return len(records), nil
		case 1: // cut off
			return draw(len(records)), errors.New("cut off")
		case 2: // out of order, and late
			late := slices.Clone(records)
			slices.Reverse(late)
			after := time.Duration(1+draw(200)) * time.Second
			landing.Go(func() { time.Sleep(after); f.append(p, late...) })
			return draw(len(records)), errors.New("no answer")
		}
		return len(records), nil
	}
	members, end := context.WithCancel(t.Context())
	var running, reading sync.WaitGroup
	for range 2 {
		m := &member{l, faulty, f, func() int { return 1 + draw(5) }}
		reading.Go(func() { m.run(members) })
	}
	for i := range 4 {
		r := l.reproducer(faulty)
		running.Go(func() {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+draw(120))*time.Second)
				from := int64(draw(letters))
				records := good(0, from, (from+1)%letters, (from+5)%letters)
				if i == 0 {
					_, _ = r.Add(ctx, records) // the rows decide
				} else {
					_, _ = r.Reproduce(ctx, records, f)
				}
				cancel()
			}
		})
	}
	var discarded map[int64]bool
	running.Go(func() { discarded = l.discards(draw, 90, 20*time.Second) })
	running.Wait()
	landing.Wait()
	time.Sleep(2 * time.Minute) // everything lands
	end()
	reading.Wait()
	synctest.Wait()
	f.produce = nil
	all := make([]int64, letters)
	for i := range all {
		all[i] = int64(i)
	}
	beside(t, l.member(f, 100), func() {
		if _, err := l.reproducer(l.store).Reproduce(t.Context(), good(0, all...), f); err != nil {
			t.Error(err)
		}
	})
	l.member(f, 100).drained()
	l.settled()
	want := slices.DeleteFunc(all, func(offset int64) bool { return discarded[offset] })
	l.hasLetters(f, 0, want...)
	if got := l.state().Letters(partition(0)).Replayed; !got.Equal(offsets.Of(want...)) {
		t.Errorf("replayed %v, want %v; discarded %v", got, want, slices.Sorted(maps.Keys(discarded)))
	}
}

// TestReproduce_StaleMember: a member decides by a snapshot from before the intent was opened. The table refuses its commit.
func TestReproduce_StaleMember(t *testing.T) {
	deltatest.Bubble(t, func(t *testing.T) {
		l, f := newLake(t), &topic{}
		opened := make(chan struct{})
		f.produce = func(_ int32, records []connector.Record) (int, error) { close(opened); return len(records), nil }
		tab := table(t, l.store)
		defer tab.Close()
		before, err := tab.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = l.reproducer(l.store).Reproduce(t.Context(), good(0, 1), f) }()
		<-opened
		time.Sleep(time.Millisecond)
		batch := &plan.SealedBatch{ID: "b", Claims: map[connector.Partition]plan.Span{partition(0): {Session: 1, From: passed, Next: passed + 1}}}
		o, err := keys(t).Verify(f.from(0, passed)[0].Headers[0].Value, nil, f.from(0, passed)[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		batch.Origins = []plan.Origin{{Partition: partition(0), Session: 1, Offset: passed, TableID: o.TableID, Intent: o.Intent, Number: o.Number}}
		decided := plan.Decide(batch, before, plan.Terms{Pipeline: pipeline})
		if !batch.OpenedSince(before, pipeline) || decided.Origins[partition(0)].Unknown != 1 {
			t.Errorf("%+v", decided.Origins)
		}
		if _, err := tab.Commit(t.Context(), &decided.Commit, decided.Precondition); classify.Of(err) != classify.Fenced {
			t.Errorf("%v", err)
		}
		if n := l.member(f, 100).drained(); n != (plan.OriginCounts{Accepted: 1}) {
			t.Errorf("%+v", n)
		}
		l.hasLetters(f, 0, 1)
	})
}
