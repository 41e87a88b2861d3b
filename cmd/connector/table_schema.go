package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/connector/schema"
	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) tableSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Compare the schema in the configuration with that of the table, and add columns",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.tableSchemaDiffCommand(), c.tableSchemaApplyCommand())
	return cmd
}

func (c *cli) tableSchemaDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show which columns the next commit adds to the tables",
		Long: `Compares the schema in the configuration with that of each table: which columns
the next commit with rows adds or makes nullable, which only table schema apply
adds, and what does not fit. Exit code 1 if a schema does not fit its table,
so that the topics are held, or if there is no table.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.eachTable(cmd.Context(), func(_ *admin.Access, o *admin.Table) (tableResult, error) {
				p, err := admin.PlanSchema(cmd.Context(), o)
				if err != nil {
					return tableResult{}, err
				}
				return tableResult{p, func(w io.Writer, _ bool) error { return printSchemaPlan(w, p) }, p.Conflict != ""}, nil
			})
		},
	}
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) tableSchemaApplyCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "apply TOPIC",
		Short: "Add the columns of the schema in the configuration to the table of a topic",
		Long: `Adds the columns that table schema diff shows to the table of a topic, in a
version without rows, and makes columns nullable that are NOT NULL in the table
only. It never changes a type and never drops a column. Members may run
meanwhile. Without it, the next commit with rows adds the columns, except the
topic id.`,
		Args: cobra.ExactArgs(1),
	}
	ch := c.changeFlags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the store in each step")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.checkChange(ch); err != nil {
			return err
		}
		return c.applySchema(cmd.Context(), args[0], ch, timeout)
	}
	return cmd
}

// applySchema plans the changes, shows them, asks, and makes them.
func (c *cli) applySchema(ctx context.Context, topic string, ch *change, timeout time.Duration) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tables, end, err := admin.OpenTables(looking, a, topic)
	if err != nil {
		return err
	}
	defer end()
	p, err := admin.PlanSchema(looking, tables[0])
	if err != nil {
		return tables[0].Failed(err)
	}
	show := func(w io.Writer) error {
		if c.output == "json" {
			return writeJSON(w, p)
		}
		return printSchemaPlan(w, p)
	}
	switch {
	case p.Conflict != "":
		return fail.Refused(fmt.Errorf("nothing was changed: %s", p.Conflict))
	case len(p.Next)+len(p.Apply) == 0:
		return c.nothingToDo(admin.ErrNothingToDo)
	}
	if do, err := c.confirm(ctx, ch, show); err != nil || !do {
		return err
	}
	err = admin.ApplySchema(ctx, a, p, ch.by(), timeout)
	if p.Unrecorded != nil {
		_, _ = terminal.Printf(c.stderr, "connector: the outcome is not in the operations log: %v\n", p.Unrecorded)
	}
	switch {
	case err != nil:
		return c.nothingToDo(err)
	case !ch.yes && c.output != "json": // otherwise confirm has not shown the plan
		return printSchemaOutcome(c.stdout, p)
	}
	return show(c.stdout)
}

// printSchemaPlan prints the comparison of the schemas. After the changes it also prints the outcome.
func printSchemaPlan(w io.Writer, p *admin.SchemaPlan) error {
	if _, err := terminal.Printf(w, "table %s, version %d\n", p.Table, p.Version); err != nil {
		return err
	}
	empty := true
	for _, part := range []struct {
		says  string
		lines []string
	}{
		{"the next commit with rows changes:", p.Next},
		{"only table schema apply changes:", p.Apply},
		{"in the table only, written all the same:", p.Undeclared},
		{"not null in schema, nullable in the table:", p.Looser},
	} {
		if len(part.lines) == 0 {
			continue
		}
		empty = false
		if _, err := terminal.Printf(w, "%s\n", part.says); err != nil {
			return err
		}
		for _, line := range part.lines {
			if _, err := terminal.Printf(w, "  %s\n", line); err != nil {
				return err
			}
		}
	}
	if err := printRenamed(w, p.Renamed); err != nil {
		return err
	}
	switch {
	case p.Conflict != "":
		_, err := terminal.Printf(w, "does not fit: %s\n", p.Conflict)
		return err
	case empty:
		_, err := fmt.Fprintln(w, "the schemas are the same")
		return err
	}
	return printSchemaOutcome(w, p)
}

// printRenamed prints the columns whose names are not those of the record's fields.
func printRenamed(w io.Writer, all []schema.Renamed) error {
	if len(all) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "filled from a field of another name:"); err != nil {
		return err
	}
	for _, r := range all {
		if _, err := terminal.Printf(w, "  %s from %q\n", r.Column, r.Field); err != nil {
			return err
		}
	}
	return nil
}

// printSchemaOutcome prints the version that has the changes, and nothing before there is one.
func printSchemaOutcome(w io.Writer, p *admin.SchemaPlan) error {
	if p.Committed == nil {
		return nil
	}
	_, err := terminal.Printf(w, "done: version %d of the table, operation %d; members follow with their next commit\n", *p.Committed, p.Operation)
	return err
}
