package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
	"sluice/sink/delta/deltalog"
)

// topicFlag adds --topic.
func (c *cli) topicFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.topic, "topic", "", "only this topic, or only its table (default all)")
}

func (c *cli) tableCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Inspect the tables and their schemas",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{
		Use:   "inspect",
		Short: "Show version, files, schema and positions of the tables",
		Long: `Reads the log of each configured table and shows its newest version, its size,
its schema, and the position of each partition. Exit code 1 if there is no
table, or if this version of connector must not write it. In JSON, several
tables are a list, a single one is an object.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.eachTable(cmd.Context(), func(_ *admin.Access, o *admin.Table) (tableResult, error) {
				i, err := admin.Inspect(cmd.Context(), o)
				if err != nil {
					return tableResult{}, err
				}
				return tableResult{i, func(w io.Writer, wide bool) error { return printInspection(w, wide, i) }, i.Refusal != ""}, nil
			})
		},
	}
	c.configFlag(show)
	c.topicFlag(show)
	c.listFlag(show)
	cmd.AddCommand(show, c.tableSchemaCommand())
	return cmd
}

// tableResult is what a command says about one table: value is printed as JSON, print prints for people.
type tableResult struct {
	value any
	print func(w io.Writer, wide bool) error
	wrong bool // true if the command must exit with code 1
}

// eachTable calls inspect for each table and prints the results. If inspect fails for a table, eachTable continues with
// the next table, and returns all errors at the end.
func (c *cli) eachTable(ctx context.Context, inspect func(*admin.Access, *admin.Table) (tableResult, error)) error {
	access, err := c.access()
	if err != nil {
		return err
	}
	all, end, err := admin.OpenTables(ctx, access, c.topic)
	if err != nil {
		return err
	}
	defer end()
	found := false
	var answers []any
	var failures []error
	for _, o := range all {
		end := c.watch(access, "reading "+o.URL)
		a, err := inspect(access, o)
		end()
		if o.Later && c.topic == "" && errors.Is(err, deltalog.ErrNoTable) {
			if _, err := terminal.Printf(c.stderr, "%s: there is no table yet: %s\n", o.URL, o.Absent()); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			failures = append(failures, o.Failed(err))
			continue
		}
		found, answers = found || a.wrong, append(answers, a.value)
		if c.output == "json" {
			continue
		}
		if len(answers) > 1 {
			if _, err := fmt.Fprintln(c.stdout); err != nil {
				return err
			}
		}
		if err := a.print(c.stdout, c.output == outputWide); err != nil {
			return err
		}
	}
	if c.output == "json" && len(answers) > 0 {
		var v any = answers
		if len(all) == 1 {
			v = answers[0]
		}
		if err := writeJSON(c.stdout, v); err != nil {
			return err
		}
	}
	if len(failures) > 0 {
		return fail.Join(failures)
	}
	if found {
		return fail.Found(nil)
	}
	return nil
}

// printInspection prints the description of a table. If wide is true, each column of the schema has a line.
func printInspection(w io.Writer, wide bool, i *admin.Inspection) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = terminal.Printf(tw, name+"\t"+format+"\n", args...) } // Flush returns the error
	row("table", "%s", i.URL)
	row("id", "%s", i.ID)
	if i.Created != nil {
		row("created", "%s", i.Created.Format(time.RFC3339))
	}
	checkpoint := "no checkpoint"
	if i.Checkpoint >= 0 {
		checkpoint = "checkpoint at " + strconv.FormatInt(i.Checkpoint, 10)
	}
	row("version", "%d, %s", i.Version, checkpoint)
	protocol := fmt.Sprintf("reader %d, writer %d", i.Reader, i.Writer)
	if len(i.Features) > 0 {
		protocol += ", features " + strings.Join(i.Features, ", ")
	}
	row("protocol", "%s", protocol)
	row("files", "%d, %d bytes", i.Files, i.Bytes)
	rows := strconv.FormatInt(i.Rows, 10)
	if i.FilesWithoutRows > 0 {
		rows += fmt.Sprintf(" and those of %d files that do not say how many they have", i.FilesWithoutRows)
	}
	row("rows", "%s", rows)
	if wide {
		for _, ddl := range i.Columns {
			row("column", "%s", ddl)
		}
	} else {
		row("schema", "%s", i.Schema)
	}
	for _, r := range i.Renamed {
		row("renamed", "column %s has the field %q", r.Column, r.Field)
	}
	if len(i.PartitionColumns) > 0 {
		row("partitioned by", "%s", strings.Join(i.PartitionColumns, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(i.Properties)) {
		row("property", "%s = %s", name, i.Properties[name])
	}
	for _, p := range i.Positions {
		switch {
		case p.LeaderEpoch != nil && *p.LeaderEpoch >= 0:
			row("position", "%s:%d next offset %d, leader epoch %d (pipeline %s)", p.Topic, *p.Partition, p.Version, *p.LeaderEpoch, p.Pipeline)
		case p.Partition != nil:
			row("position", "%s:%d next offset %d (pipeline %s)", p.Topic, *p.Partition, p.Version, p.Pipeline)
		case p.Pipeline != "":
			row("started by", "pipeline %s", p.Pipeline)
		default:
			row("txn", "%s version %d", p.AppID, p.Version)
		}
	}
	for _, f := range i.Ignored {
		more := ""
		if f.More {
			more = " and more"
		}
		row("ignored fields", "%s: %s%s (no column for them, since version %d)", f.Topic, strings.Join(f.Names, ", "), more, i.IgnoredSince)
	}
	if i.Refusal != "" {
		row("not writable", "%s", i.Refusal)
	}
	return tw.Flush()
}
