package lane

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/reliability/bytepool"
)

// copier is a builder that keeps a copy of the last record passed to Add, even if Add refused it, until Seal.
type copier struct {
	connectortest.Tally

	copied, sealed int64
}

func (b *copier) Add(_ connector.Partition, r *connector.Record) error {
	b.copied = int64(len(r.Value))
	if r.Value[0] == 'b' {
		return classify.Mark(errors.New("bad"), classify.Poison)
	}
	b.Count++
	return nil
}

func (b *copier) Allocated() int64 { return b.copied + int64(10*b.Count) }
func (b *copier) Sealed() int64    { return b.sealed }
func (b *copier) Seal() arrow.RecordBatch {
	b.sealed, b.copied = int64(10*b.Count), 0
	return b.Tally.Seal()
}

type copiers struct{}

func (copiers) Builder(connector.Schema) (connector.Builder, error) { return &copier{}, nil }

// TestLane_SealedBatchLeavesNothing: after a batch is sealed, the lane keeps none of its memory in the batch pool. No
// commit would free such memory, and a claim that needs the whole pool would wait forever.
func TestLane_SealedBatchLeavesNothing(t *testing.T) {
	for _, values := range []string{"r", "b", "rb", "rB", "Br", "rBrB", "rBr", "rbB"} { // r is a row, b a bad record; in upper case it is so large that it needs a chunk of its own
		t.Run(values, func(t *testing.T) {
			pool := bytepool.New(1 << 30)
			v := NewBackpressure(connector.QueueConfig{PauseAt: 100, ResumeAt: 5, PerKey: 100})
			l := &Lane{
				progress: make(chan struct{}, 1), backpressure: v, Blocks: NewBlocks(1), metrics: NewMetrics(prometheus.NewRegistry()), batch: pool, chunk: &ChunkLimit{},
				records: NewRecordLog(slog.New(slog.DiscardHandler)), open: map[*Table]*openPart{},
			}
			l.chunk.Store(chunkBytes)
			tab := &Table{Decoder: copiers{}}
			b := l.Blocks.Get(NewFetchResult(connector.Fetched{}))
			b.Table, b.Schema, b.Partition, b.Session, b.Letters, b.Progress = tab, &connectortest.Schema{}, connectortest.Partition(0), 1, true, &Progress{}
			for i, kind := range values {
				value := []byte(strings.ToLower(string(kind)))
				if kind == 'B' {
					value = append(value, make([]byte, 2*largeRecord)...)
				}
				b.Records, b.Taken = append(b.Records, connector.Record{Offset: int64(i), Value: value}), append(b.Taken, 0)
				v.Reserve(0)
			}
			l.decode(t.Context(), b)
			if pool.Used() == 0 || tab.OpenBatch.Allocated.Load() != pool.Used() {
				t.Errorf("open: the table holds %d bytes, the pool %d", tab.OpenBatch.Allocated.Load(), pool.Used())
			}
			p, allocated := l.close(tab, true)
			if pool.Used() != allocated || tab.OpenBatch.Allocated.Load() != 0 {
				t.Errorf("closed: the batch has %d bytes, the pool %d, the lane keeps %d", allocated, pool.Used(), tab.OpenBatch.Allocated.Load())
			}
			if p.Release(pool); pool.Used() != 0 {
				t.Errorf("released: the pool holds %d bytes", pool.Used())
			}
		})
	}
}
