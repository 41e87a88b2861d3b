package main

import (
	"context"
	"fmt"
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
				return tableResult{w, func(out io.Writer) error { return printWindows(out, w) }, false}, err
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long the command may take")
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// printWindows prints the windows of a table, and the memory that they need.
func printWindows(out io.Writer, w *admin.WindowReport) error {
	if _, err := terminal.Printf(out, "%s: identity %s\n", w.URL, w.Identity); err != nil || len(w.Partitions) == 0 {
		return err
	}
	tw := terminal.NewColumns(out)
	_, _ = fmt.Fprintln(tw, "PARTITION\tFINGERPRINTS\tROWS WITHOUT IDENTITY\tFROM\tNEWEST\tRESET BELOW") // Flush returns the error
	for _, p := range w.Partitions {
		show := func(at *time.Time) string {
			if at == nil {
				return "-"
			}
			return at.Format(time.RFC3339)
		}
		_, _ = terminal.Printf(tw, "%s:%d\t%d\t%d\t%s\t%s\t%d\n", p.Topic, p.Partition, p.Entries, p.None, show(p.From), show(p.Newest), p.Reset)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	limit := ""
	if w.Limit > 0 {
		limit = " of " + config.RoundSize(w.Limit)
	}
	_, err := terminal.Printf(out, "%s of memory%s, read in %.1fs\n", config.RoundSize(w.Bytes+1<<20-1), limit, w.Seconds)
	if err == nil && w.Forgotten > 0 {
		_, err = terminal.Printf(out, "%d fingerprints do not fit: the oldest duplicates would become rows; raise memory.limit, or declare identity.rate\n", w.Forgotten)
	}
	return err
}
