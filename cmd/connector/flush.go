package main

import (
	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) flushCommand() *cobra.Command {
	return c.pausingCommand(&cobra.Command{
		Use:   "flush {TOPIC... | --all} --reason TEXT",
		Short: "Make members commit what they have read now",
		Long: `Writes a request to the operations log; no running connector is needed. Members
follow within ten seconds: they seal the open batch of each table that the
topics feed, and commit it, instead of waiting for commit.every. A batch has all
partitions of a table, and all topics that feed it. Members read on meanwhile.

A table whose last batch is still on its way is flushed after it. Where nothing
waits, nothing happens. GET flush of the ops API shows what a member did.`,
		Example: `  connector flush orders --reason "the report needs them now"
  connector flush --all --reason "before the maintenance of the bucket"`,
	}, false, admin.PlanFlush)
}
