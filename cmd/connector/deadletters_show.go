package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
)

func (c *cli) deadLettersShowCommand() *cobra.Command {
	var o letterLook
	cmd := &cobra.Command{
		Use:   "show TOPIC:PARTITION@OFFSET",
		Short: "Show a dead letter",
		Long: `Prints a dead letter as JSON, version 1.0. The coordinates are those of the
record; the command searches the dead-letter topic for it. They may be those of
the dead letter itself, too: then TOPIC is the dead-letter topic.

With --value it writes nothing but the value of the record, to the byte, from
the bucket if the dead letter was too large for its topic. Both may hold what
nobody but its owner should see.`,
		Example: `  connector deadletters show orders:3@1207
  connector deadletters show orders-dlq:0@12 --value > record`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, offset, err := parseRecord(args[0])
			if err != nil {
				return err
			}
			o.topic, o.partition, o.offset = place.Topic, place.Partition, offset
			return c.showLetter(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.value, "value", false, "write only the value of the record")
	cmd.Flags().StringVar(&o.topicID, "topic-id", "", "id of the record's topic, if it was created again")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for each answer of Kafka")
	c.configFlag(cmd)
	return cmd
}

// letterLook says which letter to show.
type letterLook struct {
	topic     string
	partition int32
	offset    int64
	topicID   string
	value     bool
	timeout   time.Duration
}

// errFound ends the reading of a topic.
var errFound = errors.New("found")

func (c *cli) showLetter(ctx context.Context, o letterLook) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	scope, err := c.letterScopeOf(ctx, cfg, o.topic)
	if err != nil {
		return err
	}
	r, end, err := lookup.NewReader(ctx, cfg, o.timeout)
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	letter, notes, err := o.find(ctx, r, scope)
	if err != nil {
		return err
	}
	for _, note := range notes {
		if _, err := printf(c.stderr, "%s\n", note); err != nil {
			return err
		}
	}
	if o.value {
		return c.writeValue(ctx, cfg, letter)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, letter.JSON(), "", "  "); err != nil {
		return fmt.Errorf("letter: %w", err)
	}
	b.WriteByte('\n')
	_, err = b.WriteTo(c.stdout)
	return err
}

// find reads the letter. Of several for the same place the newest is meant; the notes tell of the others.
func (o *letterLook) find(ctx context.Context, r *lookup.Reader, scope *letterScope) (*deadletter.Letter, []string, error) {
	var found *deadletter.Letter
	ids := map[idempotency.TopicID]bool{}
	for _, name := range scope.topics {
		var topic connector.Topic
		err := r.Ask(func(ctx context.Context) (err error) { topic, err = r.Log.Topic(ctx, name); return err })
		if lookup.ReasonOf(err) == hold.TopicMissing {
			continue
		}
		if err != nil {
			return nil, nil, fail.Dependency(fmt.Errorf("kafka: dead-letter topic %s: %w", name, err))
		}
		for _, id := range topic.Partitions {
			if scope.source == "" && id != o.partition {
				continue
			}
			p := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID, ID: id}
			err := r.Each(ctx, p, func(record *connector.Record) error {
				if scope.source == "" { // the letter's own place
					if record.Offset == o.offset {
						l, err := decode.ParseLetter(record)
						if err != nil {
							return fail.Found(fmt.Errorf("%v@%d: %w", p, o.offset, err))
						}
						found = keep(&l)
					}
					if record.Offset >= o.offset {
						return errFound
					}
					return nil
				}
				l, err := decode.ParseLetter(record)
				if err != nil || !o.means(&l) {
					return nil //nolint:nilerr // list tells of records that are no letters
				}
				ids[l.Source.TopicID] = true
				if found == nil || !l.LastFailure.Before(found.LastFailure) {
					found = keep(&l)
				}
				return nil
			})
			switch {
			case fail.Of(err) != 0:
				return nil, nil, err
			case err != nil && !errors.Is(err, errFound):
				return nil, nil, fail.Dependency(fmt.Errorf("kafka: dead-letter topic %v: %w", p, err))
			}
		}
	}
	if found == nil {
		return nil, nil, fail.Found(fmt.Errorf("there is no dead letter for %s:%d@%d", o.topic, o.partition, o.offset))
	}
	var notes []string
	if len(ids) > 1 {
		notes = append(notes, fmt.Sprintf("there are dead letters of %d topics of this name; this is the newest, with topic id %s: write --topic-id for another", len(ids), found.Source.TopicID))
	}
	return found, notes, nil
}

// means tells whether a letter is about the record that is looked for.
func (o *letterLook) means(l *deadletter.Letter) bool {
	return l.Source.Topic == o.topic && l.Source.ID == o.partition && l.Source.Offset == o.offset &&
		(o.topicID == "" || l.Source.TopicID.String() == o.topicID)
}

// keep copies a letter out of the memory of what was fetched.
func keep(l *deadletter.Letter) *deadletter.Letter {
	k := *l
	k.Key, k.Value, k.Headers = bytes.Clone(l.Key), bytes.Clone(l.Value), slices.Clone(l.Headers)
	for i := range k.Headers {
		k.Headers[i].Value = bytes.Clone(k.Headers[i].Value)
	}
	return &k
}

// largestObject bounds what is read of a record that a letter links.
const largestObject = 2 << 30

// writeValue writes the value of the letter's record, and nothing else.
func (c *cli) writeValue(ctx context.Context, cfg *config.Config, l *deadletter.Letter) error {
	if l.Link.Key != "" {
		whole, err := linked(ctx, cfg, l)
		if err != nil {
			return err
		}
		l = whole
	}
	return c.writeBytes(l.Value)
}

// writeBytes writes the value of a record and nothing else. A terminal gets it escaped.
func (c *cli) writeBytes(value []byte) error {
	if value == nil {
		_, err := fmt.Fprintln(c.stderr, "the value is null")
		return err
	}
	if c.raw != nil {
		_, err := c.raw.Write(value)
		return err
	}
	_, err := c.stdout.Write(value)
	return err
}

// linked fetches from the bucket what a letter was too large for.
func linked(ctx context.Context, cfg *config.Config, l *deadletter.Letter) (*deadletter.Letter, error) {
	store, err := open.Store(ctx, cfg)
	if err != nil {
		return nil, fail.Dependency(err)
	}
	if closer, ok := store.(io.Closer); ok {
		defer func() { _ = closer.Close() }() // it was only read
	}
	if l.Link.Bytes > largestObject {
		return nil, fail.Found(fmt.Errorf("the dead letter links %d bytes, more than any record has", l.Link.Bytes))
	}
	body, err := store.Get(ctx, l.Link.Key, 0, l.Link.Bytes)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fail.Found(fmt.Errorf("the value of the record is not in the bucket any more: %s", l.Link.Key))
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("read %s: %w", l.Link.Key, err))
	}
	defer func() { _ = body.Close() }() // read only
	object, err := io.ReadAll(io.LimitReader(body, l.Link.Bytes+1))
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("read %s: %w", l.Link.Key, err))
	}
	whole, err := deadletter.Whole(*l, object)
	if err != nil {
		return nil, fail.Found(fmt.Errorf("%s: %w", l.Link.Key, err))
	}
	return &whole, nil
}
