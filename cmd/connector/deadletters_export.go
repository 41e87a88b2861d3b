package main

import (
	"bufio"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/terminal"
	"sluice/reliability/deadletter"
)

func (c *cli) deadLettersExportCommand() *cobra.Command {
	var q letterSelection
	cmd := &cobra.Command{
		Use:   "export [TOPIC]",
		Short: "Write dead letters with their records as JSON lines",
		Long: `Writes each selected dead letter as one line of JSON, version 1.0, with the key,
value and headers of its record, in the order of the dead-letter topics. Values
that are too large for the topic are read from the bucket. Records may hold
personal or secret data.`,
		Example: `  connector deadletters export orders --code type_mismatch > letters.jsonl`,
		Args:    cobra.MaximumNArgs(1),
	}
	selectFlags(cmd, &q)
	c.configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			q.Topic = args[0]
		}
		if err := q.parse(nil); err != nil {
			return err
		}
		a, err := c.access()
		if err != nil {
			return err
		}
		a.ReadOnly = true
		defer a.Close()
		w := bufio.NewWriterSize(c.stdout, 64<<10) // a line is about 1 KiB, and each write is a system call
		notes, err := admin.ExportLetters(cmd.Context(), a, q.LetterSelection, func(l *deadletter.Letter) error {
			_, err := w.Write(append(l.JSON(), '\n'))
			return err
		})
		if err := w.Flush(); err != nil {
			return err
		}
		for _, note := range notes {
			if _, err := terminal.Printf(c.stderr, "%s\n", note); err != nil {
				return err
			}
		}
		return err
	}
	return cmd
}
