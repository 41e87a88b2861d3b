package main

import (
	"github.com/spf13/cobra"
)

func (c *cli) deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deadletters",
		Aliases: []string{"dlq"},
		Short:   "List, show, replay and discard dead letters; allow a flood of them",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.deadLettersListCommand(), c.deadLettersShowCommand(), c.deadLettersPeekCommand(), c.deadLettersExportCommand(), c.deadLettersReplayCommand(),
		c.deadLettersReplayAllCommand(), c.deadLettersDiscardCommand(), c.deadLettersAcknowledgeCommand(), c.deadLettersReopenCommand(), c.deadLettersAllowCommand())
	return cmd
}
