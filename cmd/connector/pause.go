package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

func (c *cli) pauseCommand() *cobra.Command {
	return c.pausingCommand(&cobra.Command{
		Use:   "pause {TOPIC[:PARTITION]... | --all} --reason TEXT",
		Short: "Pause topics or partitions",
		Long: `Writes a pause to the operations log; no running connector is needed. Members
follow within ten seconds: they stop fetching, commit what they have read, and
hold the partitions with the reason "paused". Positions stay. A pause outlives
restarts and ends with connector resume.

--all pauses all topics of the pipeline, including later ones. To pause a paused
topic again changes nothing.`,
	}, false, admin.PlanPause)
}

// pausingCommand adds flags and steps to the commands pause, resume and flush. With anyTopic it also accepts a topic
// that the configuration no longer has, because a pause stays in force when the topic's entry is removed.
func (c *cli) pausingCommand(cmd *cobra.Command, anyTopic bool, plan func(context.Context, *admin.Access, []opslog.Target) (*admin.Decision, error)) *cobra.Command {
	var all bool
	var timeout time.Duration
	ch := c.changeFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all topics of the pipeline")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	c.serverFlags(cmd, "config", "operator")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return fail.Usage(errors.New("write TOPIC or TOPIC:PARTITION, or --all"))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.remote() {
			if err := c.checkChange(ch); err != nil {
				return err
			}
			return c.decideTargetsAt(cmd.Context(), ch, cmd.Name(), args)
		}
		cfg, err := c.load()
		if err != nil {
			return err
		}
		targets, err := targetsOf(cfg, args, anyTopic)
		if err != nil {
			return fail.Usage(err)
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		return c.decide(cmd.Context(), timeout, ch, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) { return plan(ctx, a, targets) })
	}
	return cmd
}

// targetsOf parses the arguments as targets; without arguments the target is the whole pipeline. Unless anyTopic is
// set, it refuses topics that the configuration does not cover.
func targetsOf(cfg *config.Config, args []string, anyTopic bool) (targets []opslog.Target, err error) {
	var texts []string
	for _, arg := range args {
		t, err := parseTarget(cfg, arg)
		if err != nil {
			return nil, err
		}
		texts = append(texts, t.String())
	}
	return admin.ParseTargets(cfg, texts, anyTopic)
}
