package main

import (
	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) resumeCommand() *cobra.Command {
	return c.pausingCommand(&cobra.Command{
		Use:   "resume {TOPIC[:PARTITION]... | --all} --reason TEXT",
		Short: "End pauses of topics or partitions",
		Long: `Writes the end of pauses to the operations log; no running connector is needed.
Members follow within ten seconds and continue from the positions in the tables.
A topic is resumed with all of its partitions; --all ends every pause. A topic
that was paused as a whole must be resumed as a whole: otherwise exit code 4,
with the command to write.`,
	}, true, admin.PlanResume)
}
