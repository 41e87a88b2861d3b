package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) deadLettersShowCommand() *cobra.Command {
	var o letterView
	cmd := &cobra.Command{
		Use:   "show TOPIC:PARTITION@OFFSET",
		Short: "Show a dead letter",
		Long: `Prints a dead letter as JSON, version 1.0. The coordinates are those of the
record; the command searches the dead-letter topic for it. They may be those of
the dead letter itself, too: then TOPIC is the dead-letter topic.

With --value it writes only the bytes of the record's value, from the bucket if
the dead letter was too large for its topic. Both may hold personal or secret
data.`,
		Example: `  connector deadletters show orders:3@1207
  connector deadletters show orders-dlq:0@12 --value > record`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place, offset, err := parseRecord(args[0])
			if err != nil {
				return err
			}
			o.Topic, o.Partition, o.Offset = place.Topic, place.Partition, offset
			return c.showLetter(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.value, "value", false, "write only the value of the record")
	cmd.Flags().StringVar(&o.TopicID, "topic-id", "", "id of the record's topic, if it was created again")
	cmd.Flags().DurationVar(&o.Within, "timeout", time.Minute, "how long to wait for each response of Kafka")
	c.configFlag(cmd)
	c.serverFlags(cmd, "config", "value")
	return cmd
}

// letterView has the flags of deadletters show.
type letterView struct {
	admin.LetterSearch

	value bool
}

func (c *cli) showLetter(ctx context.Context, o letterView) error {
	if c.remote() {
		return c.showLetterAt(ctx, o.LetterSearch)
	}
	a, err := c.access()
	if err != nil {
		return err
	}
	letter, notes, err := admin.DeadLetter(ctx, a, o.LetterSearch)
	if err != nil {
		return err
	}
	if err := c.printNotes(notes); err != nil {
		return err
	}
	if o.value {
		if letter, err = admin.WholeLetter(ctx, a, letter); err != nil {
			return err
		}
		return c.writeBytes(letter.Value)
	}
	return c.printLetter(letter.JSON())
}

// showLetterAt shows a dead letter that a member finds.
func (c *cli) showLetterAt(ctx context.Context, o admin.LetterSearch) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	l, err := client.DeadLetter(ctx, o)
	if err != nil {
		return err
	}
	if err := c.printNotes(l.Notes); err != nil {
		return err
	}
	return c.printLetter(l.Letter)
}

// printLetter prints the JSON of a dead letter.
func (c *cli) printLetter(letter []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, letter, "", "  "); err != nil {
		return fmt.Errorf("format the dead letter: %w", err)
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(c.stdout)
	return err
}

// writeBytes writes the value of a record and nothing else. If stdout is a terminal, it escapes control sequences in
// the value.
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
