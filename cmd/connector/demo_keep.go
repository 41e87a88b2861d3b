//go:build !nodemo

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/app"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

const (
	// While the demo continues, it produces keptOrders at each tick of keptEvery.
	keptOrders = 20
	keptEvery  = 100 * time.Millisecond
	// One of badOrders orders has a number as its id, so that there are dead letters to look at.
	badOrders = 2000
)

// keep runs a member of the demo with its health server and its ops API until ctx ends, and produces orders meanwhile,
// from number next on. Once both servers listen, it prints what to try. Two files are in dir meanwhile: tokens, with the
// hash of a token that is valid for this run, and config.yaml, with which other commands work.
func (c *cli) keep(ctx context.Context, cfg *config.Config, dir string, next int) (err error) {
	token := rand.Text()
	tokens, file := filepath.Join(dir, "tokens"), filepath.Join(dir, config.DefaultFile)
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "demo operator %x\n", sha256.Sum256([]byte(token))), 0o600); err != nil {
		return fail.Dependency(fmt.Errorf("--dir: %w", err))
	}
	defer func() { err = errors.Join(err, os.Remove(tokens), ignoreMissing(os.Remove(file))) }()
	cfg.Ops.Listen, cfg.Ops.TokensFile = "127.0.0.1:0", tokens
	cfg.Health.Enabled, cfg.Health.Listen = true, "127.0.0.1:0"
	topic := cfg.Topics[demoTopic]
	topic.Commit.Every = 5 * time.Second
	cfg.Topics[demoTopic] = topic
	logger, level, err := terminal.NewVarLogger(demoLog, c.stderr)
	if err != nil {
		return err
	}
	var producing sync.WaitGroup
	defer producing.Wait()
	producing.Go(func() {
		if err := keepProducing(ctx, cfg.Kafka.Brokers, next); err != nil {
			_, _ = terminal.Printf(c.stderr, "no more orders are produced: %v\n", err) // the member continues
		}
	})
	var health net.Addr
	frontEnd := opsAPI(cfg, level, logger)
	return app.Run(ctx, cfg, app.Options{
		Version: readBuild().Version, Stderr: c.stderr, Exit: func() { c.exit(exitFound) },
		HealthListens: func(at net.Addr) { health = at },
		FrontEnd: func(ctx context.Context, m *app.Member) (app.FrontEnd, error) {
			server, err := frontEnd(ctx, m)
			if err != nil {
				return nil, err
			}
			return announced{server, func(at net.Addr) error {
				if err := writeKeptConfig(cfg, file, health); err != nil {
					return err
				}
				return writeRequests(c.stdout, file, token, health, at)
			}}, nil
		},
	}, logger)
}

// keepProducing produces orders from number next on until ctx ends.
func keepProducing(ctx context.Context, brokers []string, next int) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(demoTopic))
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	defer producer.Close()
	tick := time.NewTicker(keptEvery)
	defer tick.Stop()
	for {
		records := make([]*kgo.Record, keptOrders)
		for i := range records {
			key, value := order(next)
			if next%badOrders == 0 {
				value = fmt.Appendf(nil, `{"order_id":%d}`, next)
			}
			records[i] = &kgo.Record{Key: key, Value: value}
			next++
		}
		if err := producer.ProduceSync(ctx, records...).FirstErr(); ctx.Err() == nil && err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// writeKeptConfig writes the configuration for other commands, which ask the member at the address health for its holds.
func writeKeptConfig(cfg *config.Config, file string, health net.Addr) error {
	topic := cfg.Topics[demoTopic]
	d := config.NewDraft("# Written by connector demo --keep, for other commands while it runs. It then deletes the file.")
	d.Set("The name of the pipeline.", cfg.Pipeline, "pipeline")
	d.SetList("The broker inside of the demo.", cfg.Kafka.Brokers, "kafka", "brokers")
	d.Set("The folder of all tables.", cfg.Storage.URL, "storage", "url")
	d.Set("The columns.", topic.Schema, "topics", demoTopic, "schema")
	d.Set("The limits of a batch are small, so that the table soon has several versions.", topic.Commit.Every.String(), "topics", demoTopic, "commit", "every")
	d.Set("See above.", fmt.Sprint(topic.Commit.Rows), "topics", demoTopic, "commit", "rows")
	d.Set("The health server of the demo.", health.String(), "health", "listen")
	text, err := d.Text()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fail.Dependency(fmt.Errorf("--dir: %w", err))
	}
	return nil
}

// announced is a front end that passes its address to tell as soon as it listens.
type announced struct {
	app.FrontEnd
	tell func(net.Addr) error
}

// Listen opens the address of the front end, and passes it to tell.
func (a announced) Listen(ctx context.Context) (net.Addr, error) {
	at, err := a.FrontEnd.Listen(ctx)
	if err != nil {
		return nil, err
	}
	return at, a.tell(at)
}

// writeRequests prints commands and requests to try.
func writeRequests(w io.Writer, file, token string, health, ops net.Addr) error {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\nThe member runs until Ctrl-C. Some %d orders a second are produced, one of %d is bad. Try in another terminal:\n\n",
		keptOrders*int(time.Second/keptEvery), badOrders)
	for _, command := range []string{
		"connector offsets show", "connector deadletters list", "connector table inspect -o wide", "connector verify --kafka", "connector check",
	} {
		_, _ = terminal.Printf(&b, "  %s\n", config.Pasted(command, file))
	}
	_, _ = fmt.Fprintf(&b, `  curl -s http://%[4]s/health

Its ops API takes this token, with the role operator:

  TOKEN=%[1]s
  curl -s --oauth2-bearer "$TOKEN" http://%[2]s/internal/v1/status
  curl -s --oauth2-bearer "$TOKEN" --json '{"targets": ["%[3]s:0"], "reason": "a try"}' http://%[2]s/internal/v1/pause
  curl -s --oauth2-bearer "$TOKEN" http://%[2]s/internal/v1/holds
  curl -s --oauth2-bearer "$TOKEN" --json '{"all": true, "reason": "the try is over"}' http://%[2]s/internal/v1/resume
  curl -s --oauth2-bearer "$TOKEN" http://%[2]s/internal/v1/audit
`, token, ops, demoTopic, health)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
