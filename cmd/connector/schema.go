package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) schemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Propose schemas for topics",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.schemaProposeCommand())
	return cmd
}

// maxProposalRecords bounds the records that the command reads.
const maxProposalRecords = 1_000_000

func (c *cli) schemaProposeCommand() *cobra.Command {
	q := admin.SchemaQuery{}
	cmd := &cobra.Command{
		Use:   "propose TOPIC",
		Short: "Derive the columns of a table from the newest records of a topic",
		Long: `Reads the newest records of a topic and prints columns that hold all of their
values, as text for the key schema or a file that it names. A comment behind
each column says in how many records the field has a value, and of which kinds
its values are. Fields whose values no type holds together are marked.

The topic need not be in the configuration. The command changes nothing: it
joins no group and commits no offsets. It prints no values of records unless
--values is given; records may hold personal or secret data.`,
		Example: `  connector schema propose orders > orders.ddl
  connector schema propose orders --records 100000 --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Records < 1 || q.Records > maxProposalRecords {
				return fail.Usage(fmt.Errorf("--records %d: write a number from 1 to %d", q.Records, maxProposalRecords))
			}
			q.Topic = args[0]
			a, err := c.access()
			if err != nil {
				return err
			}
			end := c.watch(a, "reading "+q.Topic)
			p, err := admin.ProposeSchema(cmd.Context(), a, q)
			end()
			if err != nil {
				return err
			}
			if c.output == "json" {
				err = writeJSON(c.stdout, p)
			} else {
				_, err = io.WriteString(c.stdout, p.Text())
			}
			if err != nil {
				return err
			}
			return c.warnOfProposal(c.stderr, p)
		},
	}
	cmd.Flags().IntVar(&q.Records, "records", 1000, "how many of the newest records to read")
	cmd.Flags().BoolVar(&q.Values, "values", false, "show the beginning of one value of each field")
	cmd.Flags().DurationVar(&q.Within, "timeout", 30*time.Second, "how long each request to Kafka may take")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// warnOfProposal prints what a reader of the columns must decide. The error has the exit code 1 if there are no records
// or if values conflict.
func (c *cli) warnOfProposal(w io.Writer, p *admin.SchemaProposal) error {
	if p.Records == 0 {
		return fail.Found(fmt.Errorf("topic %s: there is no record from which columns can be derived", p.Topic))
	}
	conflicts := 0
	for _, f := range p.Columns {
		conflicts += len(f.Conflicts)
	}
	if p.More > 0 {
		if _, err := terminal.Printf(w, "%d values have other fields: there are too many different ones\n", p.More); err != nil {
			return err
		}
	}
	if conflicts == 0 {
		return nil
	}
	return fail.Found(fmt.Errorf("%s of several kinds (CONFLICT): in the proposed string column only strings become rows, records with another value become dead letters; correct the producer, declare the column as the kind that is right, or give it the option raw in column_options, which keeps the text of any value",
		admin.Counting(int64(conflicts), "place")))
}
