package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/api"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) logLevelCommand() *cobra.Command {
	var (
		dryRun bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "loglevel [debug|info|warn|error] --server URL",
		Short: "Show or set the level of a running member's log",
		Long: `Shows the level of the log of a running member, or sets it until that process
ends. Setting needs the role admin and a reason, which the log of the member
keeps. Only a running member can do it, so the command always needs --server.`,
		Example: `  connector loglevel --server http://127.0.0.1:8090
  connector loglevel debug --server http://127.0.0.1:8090 --token-file token --reason "slow commits"`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"debug", "info", "warn", "error"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !c.remote() {
				return fail.Usage(errors.New("only a running member has a log: write --server URL, the address of its ops.listen"))
			}
			if len(args) > 0 && reason == "" && !dryRun {
				return fail.Usage(errors.New(`the reason is missing: write --reason "why"; the log of the member keeps it`))
			}
			return c.logLevel(cmd.Context(), args, api.Change{Reason: reason, DryRun: dryRun})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the level before and after, and change nothing")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason; the log of the member keeps it")
	cmd.Flags().Duration("timeout", 10*time.Second, "how long to wait for the member")
	c.outputFlag(cmd)
	c.serverFlags(cmd)
	return cmd
}

// logLevel shows the level, or sets it to the only argument.
func (c *cli) logLevel(ctx context.Context, args []string, ch api.Change) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var l *api.LogLevel
	if len(args) == 0 {
		l, err = client.LogLevel(ctx)
	} else {
		l, err = client.SetLogLevel(ctx, args[0], ch)
	}
	switch {
	case err != nil:
		return err
	case c.output == "json":
		return writeJSON(c.stdout, l)
	case l.Before == "":
		_, err = terminal.Printf(c.stdout, "%s\n", l.Level)
	default:
		_, err = terminal.Printf(c.stdout, "%s, before %s\n", l.Level, l.Before)
	}
	return err
}
