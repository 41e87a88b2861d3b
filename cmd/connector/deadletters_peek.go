package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/fail"
	"sluice/reliability/hold"
	"sluice/sink/opslog"
)

func (c *cli) deadLettersPeekCommand() *cobra.Command {
	var raw bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "peek TOPIC:PARTITION@OFFSET",
		Short: "Show a record of a topic, and why it cannot become a row",
		Long: `Prints the record behind a hold such as poison or flood as JSON: its key, value,
headers and timestamp, and what keeps it from becoming a row of the table as it
is now. holds and offsets show name the coordinates. It reads the topic and
changes nothing; the record need not be a dead letter.

With --value it writes only the value of the record, to the byte. The value may
hold what only its owner should see.`,
		Example: `  connector deadletters peek orders:3@1207
  connector deadletters peek orders:3@1207 --value > record`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, offset, err := parseRecord(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.peek(ctx, place, offset, raw)
		},
	}
	cmd.Flags().BoolVar(&raw, "value", false, "write only the value of the record")
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "how long to wait for Kafka and the store")
	c.configFlag(cmd)
	return cmd
}

// peekedRecord is a record as peek shows it. What is not UTF-8 stands there in base64, and its encoding says so.
type peekedRecord struct {
	Topic         string         `json:"topic"`
	Partition     int32          `json:"partition"`
	Offset        int64          `json:"offset"`
	Timestamp     time.Time      `json:"timestamp"`
	Key           *string        `json:"key"`
	KeyEncoding   string         `json:"key_encoding,omitempty"`
	Value         *string        `json:"value"`
	ValueEncoding string         `json:"value_encoding,omitempty"`
	Headers       []peekedHeader `json:"headers"`
	// Problem is why the record cannot become a row, "" if it can.
	Problem string `json:"problem"`
}

type peekedHeader struct {
	Key           string  `json:"key"`
	Value         *string `json:"value"`
	ValueEncoding string  `json:"value_encoding,omitempty"`
}

// shownBytes returns bytes as text, and the encoding of the text: "" for UTF-8. nil is null.
func shownBytes(b []byte) (text *string, encoding string) {
	switch {
	case b == nil:
		return nil, ""
	case utf8.Valid(b):
		return new(string(b)), ""
	}
	return new(base64.StdEncoding.EncodeToString(b)), "base64"
}

func (c *cli) peek(ctx context.Context, place opslog.Target, offset int64, raw bool) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if _, meant, _ := cfg.Route(place.Topic); !meant {
		return fail.Usage(fmt.Errorf("topic %s is not in topics: write one of %s", place.Topic, strings.Join(cfg.Meant(), ", ")))
	}
	tables, end, err := openAll(ctx, cfg, []string{place.Topic})
	if err != nil {
		return err
	}
	defer end()
	snapshot, _, err := tables[0].snapshot(ctx)
	if err != nil {
		return err
	}
	ask, err := newQuestions(ctx, cfg)
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer ask.close()
	l, err := ask.look(ctx, tables[0], place.Topic, snapshot)
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return fail.Found(held)
	}
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	r, err := ask.recordOf(l, place.Partition, offset)
	if err != nil {
		return err
	}
	if raw {
		return c.writeBytes(r.Value)
	}
	shown := peekedRecord{
		Topic: place.Topic, Partition: place.Partition, Offset: r.Offset, Timestamp: time.UnixMilli(r.Timestamp).UTC(), Headers: []peekedHeader{},
	}
	shown.Key, shown.KeyEncoding = shownBytes(r.Key)
	shown.Value, shown.ValueEncoding = shownBytes(r.Value)
	for _, h := range r.Headers {
		text, encoding := shownBytes(h.Value)
		shown.Headers = append(shown.Headers, peekedHeader{h.Key, text, encoding})
	}
	p, _ := l.partition(place.Partition)
	if err := l.becomesRow(p, r); err != nil {
		shown.Problem = err.Error()
	}
	return writeJSON(c.stdout, shown)
}

// recordOf reads the record at an offset.
func (q *questions) recordOf(l *look, id int32, offset int64) (*connector.Record, error) {
	p, ok := l.partition(id)
	if !ok {
		return nil, fail.Found(fmt.Errorf("topic %s has no partition %d", l.topic.Name, id))
	}
	var b kafka.Batch
	err := q.ask(func(ctx context.Context) (err error) { b, err = q.log.BatchAt(ctx, p, offset); return err })
	if err == nil {
		err = b.Unreadable
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return nil, fail.Found(held)
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	if b.Record == nil || b.Record.Offset != offset {
		return nil, fail.Found(fmt.Errorf("there is no committed record at %v@%d: it is a marker of a transaction, of an aborted one, or compacted away", p, offset))
	}
	return b.Record, nil
}
