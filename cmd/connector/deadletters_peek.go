package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/sink/opslog"
)

func (c *cli) deadLettersPeekCommand() *cobra.Command {
	var raw bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "peek TOPIC:PARTITION@OFFSET",
		Short: "Show a record of a topic, and why it cannot become a row",
		Long: `Prints the record of a hold such as poison or flood as JSON: its key, value,
headers and timestamp, and why it cannot become a row of the current table.
holds and offsets show print the coordinates. The command changes nothing; the
record need not be a dead letter.

With --value it writes only the bytes of the record's value. Records may hold
personal or secret data.`,
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

func (c *cli) peek(ctx context.Context, place opslog.Target, offset int64, raw bool) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	r, err := admin.Peek(ctx, a, place, offset)
	if err != nil {
		return err
	}
	if raw {
		return c.writeBytes(r.Bytes)
	}
	return writeJSON(c.stdout, r)
}
