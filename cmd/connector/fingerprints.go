package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/terminal"
	"sluice/sink/opslog"
)

func (c *cli) fingerprintsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fingerprints",
		Short: "Show or reset the fingerprints that find duplicates",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.fingerprintsStatsCommand(), c.fingerprintsResetCommand())
	return cmd
}

func (c *cli) fingerprintsStatsCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show the fingerprint windows from the tables",
		Long: `Reads the identities of the rows in each window from the tables, like a member
that takes over the partitions now; no running connector is needed. The
fingerprints of running members are in their metrics sluice_fingerprint*.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			var forgotten *opslog.State
			return c.eachTable(ctx, func(a *admin.Access, o *admin.Table) (tableResult, error) {
				if forgotten == nil {
					s, err := admin.Operations(ctx, a)
					if err != nil {
						return tableResult{}, err
					}
					forgotten = s
				}
				w, err := admin.Fingerprints(ctx, o, forgotten)
				return tableResult{w, func(out io.Writer, wide bool) error { return printWindows(out, wide, w) }, false}, err
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long the command may take")
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.listFlag(cmd)
	return cmd
}

// printWindows prints the windows of a table, and the memory that they need.
func printWindows(out io.Writer, wide bool, w *admin.WindowReport) error {
	if _, err := terminal.Printf(out, "%s: identity %s\n", w.URL, w.Identity); err != nil || len(w.Partitions) == 0 {
		return err
	}
	type window = admin.PartitionWindow
	err := printList(out, wide, w.Partitions,
		column[window]{title: "PARTITION", cell: func(p window) string { return cellPartition(p.Topic, p.Partition) }},
		column[window]{title: "FINGERPRINTS", cell: func(p window) string { return cellNumber(&p.Entries) }},
		column[window]{title: "ROWS WITHOUT IDENTITY", cell: func(p window) string { return cellNumber(&p.None) }},
		column[window]{title: "FROM", cell: func(p window) string { return cellTime(p.From) }},
		column[window]{title: "NEWEST", cell: func(p window) string { return cellTime(p.Newest) }},
		column[window]{title: "RESET BELOW", cell: func(p window) string { return cellNumber(&p.Reset) }})
	if err != nil {
		return err
	}
	limit := ""
	if w.Limit > 0 {
		limit = " of " + config.RoundSize(w.Limit)
	}
	_, err = terminal.Printf(out, "%s of memory%s, read in %.1fs\n", config.RoundSize(w.Bytes+1<<20-1), limit, w.Seconds)
	if err == nil && w.Forgotten > 0 {
		_, err = terminal.Printf(out, "%d fingerprints do not fit: the oldest duplicates would become rows; raise memory.limit, or declare identity.rate\n", w.Forgotten)
	}
	return err
}
