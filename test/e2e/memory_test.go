//go:build lab && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/gen"
	"sluice/test/lab"
	"sluice/test/tablelog"
)

// limited is the memory.limit of most tests in this file. mostResident is the resident memory in bytes that a member
// with this limit may take: 15 % more. leastLimited is the smallest memory.limit that a configuration may have.
const (
	limited      = "256MiB"
	mostResident = 295 << 20
	leastLimited = "128MiB"
)

// littleMemory is a setting with memory.limit limited, and an interval of 60 s so that commits are large.
func littleMemory(c *settings) {
	c.memory, c.commit = limited, "{every: 60s}"
}

// TestMemory runs members on all kinds of records, and with a slow store. The resident memory of each must be at most
// 15 % above memory.limit, and every record must become a row or a dead letter. With the smallest limit only the memory
// that does not hold pages of files counts, and must be within the limit.
func TestMemory(t *testing.T) {
	t.Parallel()
	t.Run("backlog with records of 8 MiB", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 8)
		s.backlog(memoryRecords, "zstd")
		s.large(16, largeOrder)
		s.untilCurrentWithin(littleMemory)
	})
	t.Run("the smallest limit", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 8)
		s.backlog(memoryRecords, "lz4")
		s.untilCurrentWithin(func(c *settings) { c.memory, c.commit = leastLimited, "{every: 60s}" })
	})
	t.Run("bad records of 8 MiB", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 8)
		s.backlog(memoryRecords/4, "zstd")
		s.large(64, strings.TrimSuffix(largeOrder, "}"))
		s.untilCurrentWithin(littleMemory, withLetters)
	})
	t.Run("two of five are bad", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 8)
		s.orders.Bad = 400
		s.backlog(memoryRecords/2, "lz4")
		s.untilCurrentWithin(littleMemory, withLetters)
	})
	t.Run("512 partitions, 500 of them idle", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 512)
		s.backlogOf(12, memoryRecords)
		s.untilCurrentWithin(littleMemory)
	})
	t.Run("the store answers after 2 s", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 8)
		s.backlog(memoryRecords, "lz4")
		p := s.proxy()
		p.Slow(lab.Any, 2*time.Second)
		s.untilCurrentWithin(littleMemory, through(p))
	})
	t.Run("20 tables", func(t *testing.T) {
		t.Parallel()
		s := newSceneOf(t, 2)
		s.backlog(memoryRecords/20, "lz4")
		var more []string
		for i := range 19 {
			name := fmt.Sprintf("%s-%d", s.name, i)
			if err := shared.kafka.CreateTopic(s.ctx, name, 2, nil); err != nil {
				t.Fatal(err)
			}
			s.into(name, memoryRecords/20)
			more = append(more, name+": {}")
		}
		s.untilCurrentWithin(littleMemory, alsoReads(strings.Join(more, ", ")))
	})
}

// newSceneOf returns a scene whose topic accepts large record batches.
func newSceneOf(t *testing.T, partitions int32) *scene {
	t.Helper()
	s := newSceneAt(t, shared.kafka.Addr)
	if err := shared.kafka.CreateTopic(s.ctx, s.name, partitions, map[string]string{"max.message.bytes": "20971520"}); err != nil {
		t.Fatal(err)
	}
	s.orders.Odd = 0
	return s
}

// backlog produces n records to the topic. They do not enter the ledger.
func (s *scene) backlog(n int64, codec string) {
	s.t.Helper()
	p := s.producer(n, codec)
	p.Chunk = 50_000
	if err := p.Run(s.ctx, nil); err != nil {
		s.t.Fatal(err)
	}
}

// into produces n records to another topic. They do not enter the ledger.
func (s *scene) into(topic string, n int64) {
	s.t.Helper()
	p := gen.Producer{Brokers: s.addrs, Topic: topic, Orders: s.orders, Records: n, Codec: "lz4", Chunk: 50_000}
	if err := p.Run(s.ctx, nil); err != nil {
		s.t.Fatal(err)
	}
}

// client returns a Kafka client that produces each record to the partition that the record names, in batches of up to
// 12 MiB. It has more options, which may replace these.
func (s *scene) client(more ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(12 << 20), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
	}, more...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

// largeOrder is the format of a record's value, with a number and a text.
const largeOrder = `{"order_id":"large-%d","coupon":"%s"}`

// large produces n records, each with a random text of 8 MiB, which compresses badly. format makes the value of a
// record from its number and its text, as largeOrder does.
func (s *scene) large(n int, format string) {
	s.t.Helper()
	client := s.client()
	note := make([]byte, 8<<20)
	for i := range n {
		for j := range note {
			note[j] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"[s.random.IntN(64)]
		}
		value := fmt.Appendf(nil, format, i, note)
		rec := &kgo.Record{Topic: s.name, Partition: int32(i % 8), Value: value}
		if err := client.ProduceSync(s.ctx, rec).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.produced += int64(n)
}

// backlogOf produces n records, spread over the first partitions of the topic. They do not enter the ledger.
func (s *scene) backlogOf(partitions int, n int64) {
	s.t.Helper()
	client := s.client()
	for i := int64(0); i < n; {
		var recs []*kgo.Record
		for ; len(recs) < 20_000 && i < n; i++ {
			r := s.orders.Record(i)
			recs = append(recs, &kgo.Record{Topic: s.name, Partition: int32(i) % int32(partitions), Key: r.Key, Value: r.Value})
		}
		if err := client.ProduceSync(s.ctx, recs...).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.produced += n
}

// untilCurrentWithin runs a member until it is current and expects it to keep within memory.limit and 15 %. Each
// produced record must be a row or a dead letter, and `connector verify --kafka` must find no difference.
func (s *scene) untilCurrentWithin(change ...setting) {
	s.t.Helper()
	path, _ := s.config(change...)
	log := filepath.Join(s.dir, "limited.log")
	began := time.Now()
	p, err := lab.StartProcess("limited", log, environment(), shared.binary, "run", "--until-current", "--config", path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.Kill() })
	peak, files := s.watch(s.ctx, p, 30*time.Minute)
	if code := p.ExitCode(); code != 0 {
		s.t.Fatalf("exit code %d: %s", code, p.Tail())
	}
	s.t.Logf("%d records in %v, at most %d MiB resident, %d of them pages of files", s.produced, time.Since(began).Round(time.Second), peak>>20, files>>20)
	var c settings
	for _, f := range change {
		f(&c)
	}
	switch {
	case !bounded():
	case c.memory == leastLimited && peak-files > 128<<20:
		s.t.Errorf("%d MiB resident without %d MiB of files, the limit is %s", (peak-files)>>20, files>>20, leastLimited)
	case c.memory != leastLimited && peak > mostResident:
		s.t.Errorf("%d MiB resident, the limit and 15 %% are %d", peak>>20, mostResident>>20)
	}
	if rows, letters := tablelog.Rows(s.commits()), s.passed(); rows+letters != s.produced {
		s.t.Errorf("%d rows and %d dead letters of %d records", rows, letters, s.produced)
	}
	path, _ = s.config(append(change, func(c *settings) { c.store = shared.minio.Endpoint })...)
	if code, text := s.command("verify", "--kafka", "--config", path); code != 0 {
		s.t.Errorf("verify: exit code %d: %s", code, tail([]byte(text)))
	}
}

// passed returns the number of dead letters that the table has counted: each commit records how many it passes, and
// passed adds these numbers up.
func (s *scene) passed() (n int64) {
	s.t.Helper()
	for _, c := range s.commits() {
		var own struct {
			Ranges []struct {
				Letters int64 `json:"letters"`
			} `json:"ranges"`
		}
		if len(c.Info.Sluice) > 0 {
			if err := json.Unmarshal(c.Info.Sluice, &own); err != nil {
				s.t.Fatal(err)
			}
		}
		for _, r := range own.Ranges {
			n += r.Letters
		}
	}
	return n
}

// watch waits until a process ends, and fails the test if that takes longer than most. It returns the peak of the
// process's resident memory, and the peak of the part that holds pages of files, in bytes.
func (s *scene) watch(ctx context.Context, p *lab.Process, most time.Duration) (peak, files int64) {
	s.t.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	end := time.After(most)
	var series strings.Builder
	for n := 0; ; n++ {
		if now, _, err := p.Resident(); err == nil && n%80 == 0 {
			fmt.Fprintf(&series, " %d", now>>20)
		}
		if now, err := p.ResidentOfFiles(); err == nil {
			files = max(files, now)
		}
		select {
		case <-p.Done():
			peak = p.PeakRSS()
			s.t.Logf("MiB resident every 2 s:%s; peak %d", &series, peak>>20)
			return peak, files
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatal(ctx.Err())
		case <-end:
			s.t.Fatalf("not done after %v: %s", most, p.Tail())
		}
	}
}

// bounded reports whether tests judge the memory of the binary. They do not if the binary has the race detector, which
// takes several times as much memory.
func bounded() bool { return os.Getenv("E2E_RACE") == "" }
