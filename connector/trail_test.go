package connector

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
)

// given are records of an answer, once.
type given struct{ left []Record }

func (g *given) Release() {}
func (g *given) Read(block []Record) (int, error) {
	n := copy(block, g.left)
	if g.left = g.left[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// tally is a builder that refuses records without a value.
type tally struct{ rows int }

func (b *tally) Add(_ Partition, r *Record) error {
	if len(r.Value) == 0 {
		return classify.Mark(errors.New("no value"), classify.Poison)
	}
	b.rows++
	return nil
}
func (b *tally) Rows() int        { return b.rows }
func (b *tally) Bytes() int64     { return 0 }
func (b *tally) Held() int64      { return 0 }
func (b *tally) Sealed() int64    { return 0 }
func (b *tally) Ignored() Ignored { return Ignored{} }
func (b *tally) Seal() arrow.RecordBatch {
	b.rows = 0
	return noRows{}
}

type noRows struct{ arrow.RecordBatch }

func (noRows) Release() {}

type tallies struct{}

func (tallies) Builder(Schema) (Builder, error) { return &tally{}, nil }

// TestWhatWaitsForALaneIsNotConsumed follows blocks of a claim through a lane that takes them one by one.
func TestWhatWaitsForALaneIsNotConsumed(t *testing.T) {
	pools := Pools{}.withDefaults()
	m := newMetrics(prometheus.NewRegistry())
	v := newValve(QueueConfig{PauseAt: 1 << 20, ResumeAt: 5, PerKey: 1 << 20})
	l := &lane{in: make(chan laneWork, laneQueue), progress: make(chan struct{}, 1), valve: v, blocks: newBlockPool(1), metrics: m, batch: pools.Batch, chunk: &chunkLimit{}, records: newRecordLog(slog.New(slog.DiscardHandler)), open: map[*tableState]*openChunk{}}
	l.chunk.Store(chunkBytes)
	tab := &tableState{schema: &fits{}, decoder: tallies{}, nulls: true, claims: map[Partition]*claim{}, limits: Limits{Rows: 1 << 20, Bytes: 1 << 30}}
	r := &reader{
		log: silent{}, claims: map[Partition]*claim{}, blocks: l.blocks, pools: pools, valve: v, lanes: []*lane{l},
		metrics: m, logger: slog.New(slog.DiscardHandler), tables: []*tableState{tab},
	}
	c := &claim{Partition: part0(0), table: tab, lane: l, state: resuming, position: 10}
	r.claims[c.Partition], tab.claims[c.Partition], r.order = c, c, []*claim{c}
	r.end(c)
	r.begin(c, Position{Partition: c.Partition, Next: 10, Epoch: 1})
	hand := func(next int64, records ...Record) {
		r.fetched(Fetched{Partition: c.Partition, Session: c.session, From: c.ahead, Next: next, Epoch: 1, Records: &given{records}})
		r.enqueue()
	}
	good := func(offset, at int64) Record { return Record{Offset: offset, Timestamp: at, Value: []byte("x")} }
	decode := func() { l.decode(t.Context(), (<-l.in).block) }
	var published *Status
	r.publish = func(s *Status) { published = s }
	want := func(what string, consumed, oldest int64, waits bool) {
		t.Helper()
		r.shown = time.Time{}
		r.show()
		s := published.Claims[0]
		if s.Consumed != consumed || !s.Oldest.Equal(stamped(oldest)) || s.Waiting.IsZero() == waits || len(published.Claims) != 1 {
			t.Errorf("%s: consumed %d, oldest %v, waiting %v; want %d, %v, %v", what, s.Consumed, s.Oldest, s.Waiting, consumed, stamped(oldest), waits)
		}
	}

	want("nothing read", 10, 0, false)
	hand(12, good(10, 500), good(11, 400))
	hand(14, good(12, 300)) // and a control record
	want("two blocks queued", 10, 300, false)
	decode()
	want("one of them", 12, 300, true)
	if since := published.Claims[0].Waiting; !strings.Contains(since.String(), " m=") {
		t.Error("nothing but the wall clock says since when rows wait: one that is set, or a machine that slept, makes them overdue")
	}
	decode()
	want("both, and what no reader sees", 14, 300, true)

	// A cut takes it over; what comes behind it is queued.
	cut := &openCut{claims: map[Partition]Span{c.Partition: {c.session, 10, 14, 1, nil}}}
	tab.cutting, c.from = cut, 14
	l.close(tab, true)
	want("cut", 14, 300, true)
	hand(15, good(14, 200))
	want("cut, and one queued", 14, 200, true)
	decode()
	want("cut, and one open", 15, 200, true)
	tab.cutting = cut
	r.settled(tab, &Plan{})
	want("settled", 15, 200, true)

	// Behind a bad record nothing is.
	hand(18, good(15, 600), Record{Offset: 16, Timestamp: 100}, good(17, 700))
	hand(19, good(18, 50))
	decode()
	decode()
	want("a bad record", 16, 100, true)
	l.close(tab, true)
	hand(20, good(19, 800))
	decode()
	want("a bad record, cut", 16, 100, true)

	// A new session begins at the position, with what is owed from before.
	c.position = 15
	r.end(c)
	want("fenced", 15, 100, false)
	l.drop(tab)
	r.begin(c, Position{Partition: c.Partition, Next: 15, Epoch: 1})
	for n := range int64(3 * flights) {
		hand(16+n, good(15+n, 1000-n))
		if n >= flights-2 {
			decode()
		}
	}
	if len(c.flights) > flights {
		t.Errorf("%d blocks are remembered one by one", len(c.flights))
	}
	c.owed = 0
	for len(l.in) > 0 {
		decode()
	}
	want("many", 15+3*flights, 1000-3*flights+1, true)
	l.drop(tab)
	want("dropped", 15+3*flights, 0, false)
}
