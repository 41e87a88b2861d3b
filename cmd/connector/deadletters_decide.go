package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/api"
	"sluice/internal/fail"
)

func (c *cli) deadLettersDiscardCommand() *cobra.Command {
	return c.letterDecision(&cobra.Command{
		Use:   "discard {TOPIC:PARTITION@OFFSET... | --topic TOPIC} --reason TEXT",
		Short: "Discard dead letters: their records never become rows",
		Long: `Writes to the operations log that the records of dead letters are given up: they
do not count as unresolved any more, and no replay takes them. The dead letters
stay in their topic and in the letter table. deadletters reopen takes it back.

Name single records, or select dead letters with --topic and the other flags. It
is refused for dead letters that were replayed, or that a running replay may
still make rows of. No running connector is needed.`,
		Example: `  connector deadletters discard orders:3@1207 --reason "a test order"
  connector deadletters discard --topic orders --code syntax --until 2026-01-31T08:00:00Z --reason "the bad deploy"`,
	}, admin.PlanDiscard)
}

func (c *cli) deadLettersAcknowledgeCommand() *cobra.Command {
	return c.letterDecision(&cobra.Command{
		Use:     "acknowledge {TOPIC:PARTITION@OFFSET... | --topic TOPIC} --reason TEXT",
		Aliases: []string{"ack"},
		Short:   "Acknowledge dead letters: they stay, and their alarm ends",
		Long: `Writes to the operations log that you have taken note of dead letters: they
do not count as unresolved any more, so alerts about them end. They can still be
replayed or discarded. deadletters reopen takes it back.

Name single records, or select dead letters with --topic and the other flags.`,
		Example: `  connector deadletters acknowledge orders:3@1207 --reason "the customer was called"`,
	}, admin.PlanAcknowledge)
}

func (c *cli) deadLettersReopenCommand() *cobra.Command {
	return c.letterDecision(&cobra.Command{
		Use:   "reopen {TOPIC:PARTITION@OFFSET... | --topic TOPIC} --reason TEXT",
		Short: "Take back that dead letters were discarded or acknowledged",
		Long: `Writes to the operations log that dead letters are not discarded or acknowledged
any more: they count as unresolved again, and a replay takes them.

Name single records, or select dead letters with --topic and the other flags.`,
		Example: `  connector deadletters reopen --topic orders --state discarded --reason "discarded by mistake"`,
	}, admin.PlanReopen)
}

// letterDecision adds flags and steps to a command that records a decision about dead letters. plan makes the decision
// from the flags.
func (c *cli) letterDecision(cmd *cobra.Command, plan func(context.Context, *admin.Access, admin.LetterSelection) (*admin.Decision, error)) *cobra.Command {
	var q letterSelection
	ch := c.changeFlags(cmd)
	selectFlags(cmd, &q)
	cmd.Flags().StringVar(&q.Topic, "topic", "", "all dead letters of this topic, or of this dead-letter topic, that the other flags select")
	cmd.Flags().StringVar(&q.topicID, "topic-id", "", "id of the records' topic, if it was created again")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	c.serverFlags(cmd, "config", "operator")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if (len(args) > 0) == (q.Topic != "") {
			return fail.Usage(errors.New("write TOPIC:PARTITION@OFFSET as deadletters list shows it, or --topic"))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := q.parse(args); err != nil {
			return err
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		if c.remote() {
			return c.decideAt(cmd.Context(), ch, func(ctx context.Context, client *api.Client, request api.Change) (*api.Decided, error) {
				return client.DecideLetters(ctx, "deadletters/"+cmd.Name(), q.letters(), request)
			})
		}
		return c.decide(cmd.Context(), q.Within, ch, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) {
			return plan(ctx, a, q.LetterSelection)
		})
	}
	return cmd
}
