// Command bench measures the connector from real Kafka to a Delta table on MinIO, and compares it with a tuned Python
// pipeline (librdkafka, pyarrow, deltalake) on the same topic. Connector and pipeline run in turns, and after each run
// the command verifies the rows.
//
//	go run ./test/bench [-records 2000000] [-rounds 3] [-memory 128MiB,256MiB,512MiB] [-against connector]
//
// The connector runs once a round with each memory.limit of -memory.
//
// The command prints a line for each run and then the medians as rows of the table in docs/benchmarks.md. CPU is the
// user and system time of the measured process and its children; RSS is the peak of the process without its children.
// The broker and the S3 server run on the same machine.
//
// With -against the connector and the one that the flag names run in pairs, every second pair in the opposite order.
// The command prints the median and the quartiles of the ratios within the pairs, because a disturbance of the machine
// mostly affects both runs of a pair.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/test/gen"
	"sluice/test/lab"
)

const topic = "orders"

func main() {
	records := flag.Int64("records", 2_000_000, "records to produce")
	rounds := flag.Int("rounds", 3, "runs of each pipeline")
	limits := flag.String("memory", "128MiB,256MiB,512MiB", "the connector's memory.limit, several with commas")
	against := flag.String("against", "", "another connector, as a binary, to run in turns with in place of the Python pipeline")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *records, *rounds, strings.Split(*limits, ","), *against); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// bench has the servers and inputs that all runs use.
type bench struct {
	dir      string
	binary   string
	kafka    *lab.Kafka
	minio    *lab.MinIO
	bucket   *lab.Bucket
	records  int64
	quantity int64 // the sum of quantity over all records
}

func run(ctx context.Context, records int64, rounds int, limits []string, against string) (err error) {
	b := &bench{records: records}
	if b.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.binary = filepath.Join(b.dir, "connector")
	root, err := lab.Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.binary, "./cmd/connector")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the connector: %w: %s", err, out)
	}
	for _, name := range []string{"kafka", "minio"} {
		if err := os.Mkdir(filepath.Join(b.dir, name), 0o755); err != nil {
			return err
		}
	}
	if b.kafka, err = lab.StartKafka(ctx, lab.KafkaOptions{Dir: filepath.Join(b.dir, "kafka")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.kafka.Stop()) }()
	if b.minio, err = lab.StartMinIO(ctx, filepath.Join(b.dir, "minio")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.minio.Stop()) }()
	if b.bucket, err = lab.CreateBucket(ctx, b.minio.Endpoint, "bench"); err != nil {
		return err
	}
	if err := b.produce(ctx); err != nil {
		return err
	}
	type pipeline struct {
		name string
		run  func(context.Context, string) (result, error)
	}
	var pipelines []pipeline
	for _, limit := range limits {
		pipelines = append(pipelines, pipeline{"sluice, memory.limit " + limit, b.sluice(b.binary, limit)})
		if against != "" {
			pipelines = append(pipelines, pipeline{against + ", memory.limit " + limit, b.sluice(against, limit)})
		}
	}
	if against == "" {
		pipelines = append(pipelines, pipeline{"Python + pyarrow + deltalake", b.peer})
	}
	results := make(map[string][]result)
	for round := range rounds {
		for i := range pipelines {
			if against != "" && round%2 == 1 {
				i ^= 1 // the other run of the same pair
			}
			p, table := pipelines[i], fmt.Sprintf("p%d-%d", i, round)
			r, err := p.run(ctx, table)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Printf("%-30s %s\n", p.name, r.line(records))
			results[p.name] = append(results[p.name], r)
		}
	}
	fmt.Printf("\n%d records, 8 partitions, lz4, %d CPUs, %s, median of %d\n\n", records, runtime.NumCPU(), runtime.Version(), rounds)
	fmt.Println("| pipeline | records/s | records per CPU second | peak RSS MiB | allocations per record | bytes allocated per record | " +
		"S3 requests | bytes written | CPU s of broker / S3 server |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, p := range pipelines {
		fmt.Printf("| %s | %s |\n", p.name, median(results[p.name]).row(records))
	}
	if against != "" {
		for i := 0; i < len(pipelines); i += 2 {
			fmt.Printf("\n%s, divided by the other one:\n%s", pipelines[i].name, ratios(results[pipelines[i].name], results[pipelines[i+1].name]))
		}
	}
	return nil
}

// ratios formats the median and the quartiles of the ratios between the runs of each pair.
func ratios(ours, others []result) string {
	var b strings.Builder
	for _, m := range []struct {
		name string
		of   func(result) float64
	}{
		{"CPU per record", func(r result) float64 { return r.cpu.Seconds() }},
		{"peak RSS", func(r result) float64 { return float64(r.rss) }},
		{"time", func(r result) float64 { return r.wall.Seconds() }},
	} {
		all := make([]float64, len(ours))
		for i := range ours {
			all[i] = m.of(ours[i]) / m.of(others[i])
		}
		slices.Sort(all)
		fmt.Fprintf(&b, "  %-15s median %.3f, quartiles %.3f and %.3f, %d pairs\n", m.name, quantile(all, 0.5), quantile(all, 0.25), quantile(all, 0.75), len(all))
	}
	return b.String()
}

// quantile returns the q-quantile of sorted values. Between two values it interpolates.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	next := sorted[min(i+1, len(sorted)-1)]
	return sorted[i] + (at-float64(i))*(next-sorted[i])
}

// produce fills the topic and computes the sums that the verification compares.
func (b *bench) produce(ctx context.Context) error {
	if err := b.kafka.CreateTopic(ctx, topic, 8, nil); err != nil {
		return err
	}
	begin := time.Now()
	const producers = 4
	orders := gen.Orders{Seed: 42, Span: b.records}
	var (
		group errgroup.Group
		size  [producers]int64
		sums  [producers]int64
	)
	for i := range int64(producers) {
		from, to := b.records*i/producers, b.records*(i+1)/producers
		group.Go(func() error {
			return gen.Producer{
				Brokers: []string{b.kafka.Addr}, Topic: topic, Orders: orders, From: from, Records: to - from, Codec: "lz4",
				Chunk: 50_000,
			}.Run(ctx, nil)
		})
		group.Go(func() error {
			for n := from; n < to; n++ {
				rec := orders.Record(n)
				sums[i] += int64(*rec.Order.Quantity)
				size[i] += int64(len(rec.Value))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var bytes int64
	for i := range producers {
		bytes += size[i]
		b.quantity += sums[i]
	}
	fmt.Printf("produced %d records of %.0f bytes in %.0f s\n", b.records, float64(bytes)/float64(b.records), time.Since(begin).Seconds())
	return nil
}

// result has the figures of one run.
type result struct {
	wall, cpu      time.Duration
	rss            int64 // peak resident memory in bytes
	allocs, memory float64
	requests       int64
	written        int64
	broker, store  time.Duration // CPU time of the broker and of the S3 server
}

func (r result) line(records int64) string {
	return fmt.Sprintf("%.2f s wall, %.2f s CPU, %d k records/s, %d k records per CPU second, %d MiB, %d requests, %d MB, CPU of broker %.1f s, store %.1f s",
		r.wall.Seconds(), r.cpu.Seconds(), int64(float64(records)/r.wall.Seconds()/1000), int64(float64(records)/r.cpu.Seconds()/1000),
		r.rss>>20, r.requests, r.written/1e6, r.broker.Seconds(), r.store.Seconds())
}

func (r result) row(records int64) string {
	allocs, memory := "-", "-"
	if r.allocs > 0 {
		allocs, memory = fmt.Sprintf("%.3f", r.allocs), fmt.Sprintf("%.0f", r.memory)
	}
	return fmt.Sprintf("%.0f | %.0f | %d | %s | %s | %d | %d | %.1f / %.1f", float64(records)/r.wall.Seconds(),
		float64(records)/r.cpu.Seconds(), r.rss>>20, allocs, memory, r.requests, r.written, r.broker.Seconds(), r.store.Seconds())
}

// median returns, for each figure, the median of several runs.
func median(rs []result) result {
	return result{
		wall: middle(rs, func(r result) time.Duration { return r.wall }), cpu: middle(rs, func(r result) time.Duration { return r.cpu }),
		rss:    middle(rs, func(r result) int64 { return r.rss }),
		allocs: middle(rs, func(r result) float64 { return r.allocs }), memory: middle(rs, func(r result) float64 { return r.memory }),
		requests: middle(rs, func(r result) int64 { return r.requests }), written: middle(rs, func(r result) int64 { return r.written }),
		broker: middle(rs, func(r result) time.Duration { return r.broker }),
		store:  middle(rs, func(r result) time.Duration { return r.store }),
	}
}

func middle[T cmp.Ordered](rs []result, of func(result) T) T {
	values := make([]T, len(rs))
	for i, r := range rs {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
