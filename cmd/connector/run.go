package main

import (
	"github.com/spf13/cobra"

	"sluice/internal/app"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) runCommand() *cobra.Command {
	var untilCurrent bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Move records until a signal to stop",
		Long: `Joins the consumer group and moves records into the tables until SIGTERM or
Ctrl-C; then it commits open batches within shutdown.drain and leaves the group.
A second signal ends it at once, which is safe: the tables keep the positions.

With --until-current it ends once the tables have all records up to the end
offsets of its start: exit code 0, or 1 if a partition is held.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			logger, err := terminal.NewLogger(cfg.Log, c.stderr)
			if err != nil {
				return fail.Usage(err)
			}
			return app.Run(cmd.Context(), cfg, app.Options{Version: readBuild().Version, UntilCurrent: untilCurrent, Stderr: c.stderr, Exit: func() { c.exit(exitFound) }}, logger)
		},
	}
	c.configFlag(cmd)
	cmd.Flags().BoolVar(&untilCurrent, "until-current", false, "end once the tables have all records up to the end offsets at the start")
	return cmd
}
