package gen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Producer produces one series of records to a topic.
type Producer struct {
	Brokers []string
	Topic   string
	Orders  Orders
	From    int64 // number of the first record
	Records int64 // number of records
	// Codec compresses record batches: "none", "gzip", "snappy", "lz4" or "zstd".
	Codec string
	// BatchBytes bounds record batches, 256 KiB if 0.
	BatchBytes int32
	// Chunk is how many records are produced before their acknowledgements are awaited, 5000 if 0.
	Chunk int64
	// PerSecond bounds the rate, 0 for as fast as possible.
	PerSecond int
	// Transaction is the number of records per transaction, 0 for no transactions. Every third transaction is aborted:
	// its records never enter the ledger.
	Transaction int
	// Name is the transactional id.
	Name string
	// Letters receives the entries of bad records, with [Record.Raw] as hash; Run's ledger does not get them. It may be
	// nil.
	Letters *Ledger
	// Corrected receives the rows of the bad records that become rows once unknown fields are ignored. It may be nil.
	Corrected *Ledger
	// Live gives each record the time at which it is produced as its timestamp.
	Live bool
	// Stop, when closed, ends the series early, between two chunks. It may be nil.
	Stop <-chan struct{}
}

// Run produces the series and returns when the broker has acknowledged all of its records. Good records enter ledger,
// which may be nil.
func (p Producer) Run(ctx context.Context, ledger *Ledger) error {
	opts, err := p.options()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("create producer: %w", err)
	}
	defer client.Close()
	chunk := p.Chunk
	if chunk == 0 {
		chunk = 5000
	}
	if p.Transaction > 0 {
		chunk = int64(p.Transaction)
	}
	if p.PerSecond > 0 {
		chunk = min(chunk, max(1, int64(p.PerSecond/10)))
	}
	begin := time.Now()
	for done, round := int64(0), 0; done < p.Records; round++ {
		n := min(chunk, p.Records-done)
		if err := p.chunk(ctx, client, p.From+done, n, round, ledger); err != nil {
			return fmt.Errorf("produce to %s: %w", p.Topic, err)
		}
		done += n
		due := begin
		if p.PerSecond > 0 {
			due = begin.Add(time.Duration(float64(done) / float64(p.PerSecond) * float64(time.Second)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.Stop:
			return nil
		case <-time.After(time.Until(due)):
		}
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("produce to %s: %w", p.Topic, err)
	}
	return nil
}

// chunk produces n records and waits until the broker has acknowledged them. If transactions are configured, the n
// records are one transaction, which is committed or, every third time, aborted.
func (p Producer) chunk(ctx context.Context, client *kgo.Client, from, n int64, round int, ledger *Ledger) error {
	if p.Transaction > 0 {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
	}
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		failed  error
		entries = make([]Entry, 0, n)
		letters []Entry
		later   []Entry // the rows that bad records become once unknown fields are ignored
	)
	for i := from; i < from+n; i++ {
		rec := p.Orders.Record(i)
		if p.Live {
			rec.Time = time.Now().UnixMilli()
		}
		wg.Add(1)
		client.Produce(ctx, &kgo.Record{
			Topic: p.Topic, Key: rec.Key, Value: rec.Value, Timestamp: time.UnixMilli(rec.Time),
		}, func(r *kgo.Record, err error) {
			defer wg.Done()
			at := Coordinates{p.Topic, r.Partition, r.Offset}
			var hash string
			switch {
			case rec.Code != "":
				hash = rec.Raw()
			case err == nil && ledger != nil:
				hash = rec.Hash(at)
			}
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
			if rec.Code != "" {
				letters = append(letters, Entry{at, hash})
				if rec.Code == UnknownField && p.Corrected != nil {
					later = append(later, Entry{at, rec.Hash(at)})
				}
				return
			}
			entries = append(entries, Entry{at, hash})
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	commit := true
	if p.Transaction > 0 {
		commit = round%3 != 2
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
			return err
		}
	}
	if commit && ledger != nil {
		ledger.Add(entries...)
	}
	if commit && p.Letters != nil {
		p.Letters.Add(letters...)
	}
	if commit && p.Corrected != nil {
		p.Corrected.Add(later...)
	}
	return nil
}

func (p Producer) options() ([]kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[p.Codec]
	if !ok {
		return nil, fmt.Errorf("create producer: unknown codec %q", p.Codec)
	}
	batch := p.BatchBytes
	if batch == 0 {
		batch = 256 << 10
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(p.Brokers...), kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(batch),
		kgo.ProducerLinger(20 * time.Millisecond), kgo.MaxBufferedRecords(100_000),
	}
	if p.Transaction > 0 {
		opts = append(opts, kgo.TransactionalID(p.Name), kgo.TransactionTimeout(30*time.Second))
	}
	return opts, nil
}
