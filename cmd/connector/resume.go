package main

import (
	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) resumeCommand() *cobra.Command {
	return c.pausingCommand(&cobra.Command{
		Use:   "resume {TOPIC[:PARTITION]... | --all} --reason TEXT",
		Short: "End pauses of topics or partitions",
		Long: `Writes to the operations log that pauses are over; no running connector is
needed. Members hear of it within ten seconds and read on from the positions in
the tables. A topic is resumed with all of its partitions, --all ends every
pause. What was paused as a whole is resumed as a whole: else exit code 4 says
what to write.`,
	}, true, admin.PlanResume)
}
