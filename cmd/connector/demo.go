//go:build !nodemo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/app"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

const (
	demoTopic      = "orders"
	demoPartitions = 4
)

func (c *cli) demoCommand() *cobra.Command {
	var (
		records int
		dir     string
		keep    bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Fill a table on the local disk from a broker inside this process",
		Long: `Starts a Kafka broker inside this process, produces orders to it, moves them
into a Delta table in a directory, and prints how to query it. It needs no
Kafka, no store and no Docker. It refuses a directory that already has a table.

With --keep the member runs on until Ctrl-C, and orders continue to be produced.
/health and the ops API are on free ports of 127.0.0.1. The command prints what
to try: other commands, with a configuration that it writes into the directory
and deletes at the end, and requests, with a token.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if records < 1 {
				return fail.Usage(fmt.Errorf("--records %d: write 1 or more", records))
			}
			return c.demo(cmd.Context(), records, dir, keep)
		},
	}
	cmd.Flags().IntVar(&records, "records", 200_000, "the number of orders to produce")
	cmd.Flags().StringVar(&dir, "dir", "sluice-demo", "the directory of the table")
	cmd.Flags().BoolVar(&keep, "keep", false, "continue until Ctrl-C, with /health and the ops API")
	return cmd
}

// demoLog configures the log of the demo's members: warnings and errors only, because the demo prints its progress
// itself.
var demoLog = config.Log{Level: "warn", Format: "text"}

// demo runs a member, with the wiring of the command run, until the table has all orders. If keep is true, it then runs
// another member until ctx ends.
func (c *cli) demo(ctx context.Context, records int, dir string, keep bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fail.Usage(fmt.Errorf("--dir: %w", err))
	}
	table := filepath.Join(dir, demoTopic)
	if _, err := os.Stat(filepath.Join(table, "_delta_log")); !errors.Is(err, os.ErrNotExist) {
		return fail.Refused(fmt.Errorf("%s already has a table: remove the directory with rm -r %s, or name another one with --dir", table, dir))
	}
	if err := os.MkdirAll(table, 0o750); err != nil {
		return fail.Dependency(fmt.Errorf("--dir: %w", err))
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(demoPartitions, demoTopic))
	if err != nil {
		return fail.Dependency(fmt.Errorf("broker: %w", err))
	}
	defer broker.Close()

	began := time.Now()
	progress := terminal.NewProgress(c.stderr, "producing orders")
	err = produceOrders(ctx, broker.ListenAddrs(), records)
	progress.Close()
	if err != nil {
		return fail.Dependency(err)
	}
	produced := time.Since(began)

	cfg := demoConfig(broker.ListenAddrs(), dir)
	logger, err := terminal.NewLogger(demoLog, c.stderr)
	if err != nil {
		return err
	}
	began = time.Now()
	if err := app.Run(ctx, cfg, app.Options{Version: readBuild().Version, UntilCurrent: true}, logger); err != nil {
		return err
	}
	moved := time.Since(began)
	if ctx.Err() != nil {
		return fail.Found(errors.New("interrupted; what was committed stays in " + table))
	}
	store, err := objstore.NewLocal(ctx, dir)
	if err != nil {
		return fail.Dependency(err)
	}
	defer store.Close()
	info, err := delta.Inspect(ctx, objstore.Sub(store, demoTopic))
	if err != nil {
		return fail.Dependency(err)
	}
	if err := writeDemo(c.stdout, table, records, info, produced, moved); err != nil {
		return fail.Dependency(err)
	}
	if info.Rows != int64(records) {
		return fail.Found(fmt.Errorf("%d records became %d rows", records, info.Rows))
	}
	if keep {
		return c.keep(ctx, cfg, dir, records)
	}
	return nil
}

// demoConfig returns the configuration of the demo: the defaults, with smaller batches so that the table has several
// versions.
func demoConfig(brokers []string, dir string) *config.Config {
	cfg := config.Default()
	cfg.Pipeline = "demo"
	cfg.Kafka.Brokers, cfg.Kafka.Group = brokers, "demo"
	cfg.Storage.URL = (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
	cfg.Health.Enabled = false // the demo ends within seconds and needs no health server, whose port may be in use
	topic := cfg.Defaults
	topic.Table, topic.Schema = demoTopic, ordersDDL
	topic.Commit.Rows = 50_000
	cfg.Topics[demoTopic] = topic
	return cfg
}

func produceOrders(ctx context.Context, brokers []string, records int) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(demoTopic), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(100_000), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	defer producer.Close()
	failed := make(chan error, 1)
	for i := range records {
		key, value := order(i)
		producer.Produce(ctx, &kgo.Record{Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("produce: %w", err)
	default:
		return nil
	}
}

// order returns the i-th order of the demo. It is the same in every run.
func order(i int) (key, value []byte) {
	cities := [...]string{"Lisbon", "Oslo", "Kraków", "Lyon", "Turin", "Graz", "Ghent"}
	states := [...]string{"new", "paid", "packed", "sent", "returned"}
	customer := fmt.Sprintf("customer-%05d", i*7919%20_000)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 311 * time.Millisecond)
	city := i * 31 % len(cities)
	value = fmt.Appendf(nil, `{"order_id":"%08x-%04x","customer_id":%q,"store_id":%d,"quantity":%d,"total":%d.%02d,"discount":%s,`+
		`"created_at":%q,"paid":%t,"status":%q,"coupon":%s,`+
		`"shipping":{"street":"%d Long Street","city":%q,"zip":"%05d","country":"EU","lat":%d.%04d,"note":"leave it at the door, please"},`+
		`"tags":["web","batch-%d"]}`,
		i*2_654_435_761&0xffffffff, i&0xffff, customer, i*13%500, 1+i%9, i%900, i%100, nullEvery(i, 5, "0.15"),
		at.Format(time.RFC3339Nano), i%3 > 0, states[i%len(states)], nullEvery(i+1, 2, `"SPRING"`),
		i%300, cities[city], i*17%100_000, 38+city, i%10_000, i/10_000)
	return []byte(customer), value
}

func nullEvery(i, n int, value string) string {
	if i%n == 0 {
		return "null"
	}
	return value
}

func writeDemo(w io.Writer, table string, records int, info delta.Info, produced, moved time.Duration) error {
	place := (&url.URL{Scheme: "file", Path: filepath.ToSlash(table)}).String()
	_, err := fmt.Fprintf(w, `%d orders, %d partitions, produced in %.1f s, moved in %.1f s.

table     %s
rows      %d
versions  %d
files     %d

Query it:

  duckdb -c "INSTALL delta; LOAD delta; SELECT status, count(*) FROM delta_scan('%s') GROUP BY 1"
  python3 -c "import polars; print(polars.scan_delta('%s').select(polars.len()).collect())"
  python3 -c "from deltalake import DeltaTable; print(DeltaTable('%s').history(1))"
  spark-sql --packages io.delta:delta-spark_4.1_2.13:4.4.0 -e 'SELECT count(*) FROM delta.`+"`%s`"+`'
`, records, demoPartitions, produced.Seconds(), moved.Seconds(), table, info.Rows, info.Version+1, info.Files, place, table, table, table)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
