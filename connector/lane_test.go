package connector

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/reliability/bytepool"
)

// copier is a builder that keeps a copy of the last record that it was given, also of one that it refused, until it is sealed.
type copier struct {
	tally

	copied, sealed int64
}

func (b *copier) Add(_ Partition, r *Record) error {
	b.copied = int64(len(r.Value))
	if r.Value[0] == 'b' {
		return classify.Mark(errors.New("bad"), classify.Poison)
	}
	b.rows++
	return nil
}

func (b *copier) Held() int64   { return b.copied + int64(10*b.rows) }
func (b *copier) Sealed() int64 { return b.sealed }
func (b *copier) Seal() arrow.RecordBatch {
	b.sealed, b.copied = int64(10*b.rows), 0
	return b.tally.Seal()
}

type copiers struct{}

func (copiers) Builder(Schema) (Builder, error) { return &copier{}, nil }

// TestLane_HoldsNothingOfAClosedBatch: between two batches no commit frees memory, so a claim that needs the whole pool would
// wait forever for what a lane kept.
func TestLane_HoldsNothingOfAClosedBatch(t *testing.T) {
	for _, values := range []string{"r", "b", "rb", "rB", "Br", "rBrB", "rBr", "rbB"} { // a row, a bad record, one that is large enough for a chunk of its own
		t.Run(values, func(t *testing.T) {
			pool := bytepool.New(1 << 30)
			v := newValve(QueueConfig{PauseAt: 100, ResumeAt: 5, PerKey: 100})
			l := &lane{
				progress: make(chan struct{}, 1), valve: v, blocks: newBlockPool(1), metrics: newMetrics(prometheus.NewRegistry()), batch: pool, chunk: &chunkLimit{},
				records: newRecordLog(slog.New(slog.DiscardHandler)), open: map[*tableState]*openChunk{},
			}
			l.chunk.Store(chunkBytes)
			tab := &tableState{decoder: copiers{}, nulls: true}
			b := l.blocks.get(newAnswer(Fetched{}))
			b.table, b.schema, b.partition, b.session, b.letters, b.trail = tab, &fits{}, part0(0), 1, true, &trail{}
			for i, kind := range values {
				value := []byte(strings.ToLower(string(kind)))
				if kind == 'B' {
					value = append(value, make([]byte, 2*largeRecord)...)
				}
				b.records, b.taken = append(b.records, Record{Offset: int64(i), Value: value}), append(b.taken, 0)
				v.take(0)
			}
			l.decode(t.Context(), b)
			if pool.Used() == 0 || tab.filled.held.Load() != pool.Used() {
				t.Errorf("open: the table holds %d bytes, the pool %d", tab.filled.held.Load(), pool.Used())
			}
			p, held := l.close(tab, true)
			if pool.Used() != held || tab.filled.held.Load() != 0 {
				t.Errorf("closed: the batch has %d bytes, the pool %d, the lane keeps %d", held, pool.Used(), tab.filled.held.Load())
			}
			if p.release(pool); pool.Used() != 0 {
				t.Errorf("released: the pool holds %d bytes", pool.Used())
			}
		})
	}
}
