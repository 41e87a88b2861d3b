package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// The values of --output. Only commands that print a list have the value outputWide.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
)

// outputFlag adds --output to a command that prints no list.
func (c *cli) outputFlag(cmd *cobra.Command) {
	c.formFlag(cmd, outputTable, outputJSON)
}

// listFlag adds --output to a command that prints a list. With wide the list has more columns, and no value is cut.
func (c *cli) listFlag(cmd *cobra.Command) {
	c.formFlag(cmd, outputTable, outputWide, outputJSON)
}

func (c *cli) formFlag(cmd *cobra.Command, forms ...string) {
	last := len(forms) - 1
	names := strings.Join(forms[:last], ", ") + " or " + forms[last]
	cmd.Flags().StringVarP(&c.output, "output", "o", outputTable, names)
	complete(cmd, "output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(forms, c.output) {
			return fail.Usage(fmt.Errorf("--output %q is unknown: write %s", c.output, names))
		}
		return nil
	}
}

// print prints value in the form that --output names: as JSON, or by people, which prints it for people.
func (c *cli) print(value any, people func(w io.Writer, wide bool) error) error {
	if c.output == outputJSON {
		return writeJSON(c.stdout, value)
	}
	return people(c.stdout, c.output == outputWide)
}

// column is a column of a list whose rows are of type T.
type column[T any] struct {
	title string
	cell  func(T) string
	wide  bool // true if only --output wide shows the column
}

// printList prints a title line and a line for each row. Unless wide is true, it leaves out the columns that only
// --output wide shows, and cuts the longest values if w is a terminal with fewer columns.
func printList[T any](w io.Writer, wide bool, rows []T, columns ...column[T]) error {
	if !wide {
		columns = slices.DeleteFunc(columns, func(c column[T]) bool { return c.wide })
	}
	tw := terminal.NewColumns(w, wide)
	cells := make([]any, len(columns))
	format := strings.TrimSuffix(strings.Repeat("%s\t", len(columns)), "\t") + "\n"
	for i, c := range columns {
		cells[i] = c.title
	}
	_, _ = terminal.Printf(tw, format, cells...) // Flush returns the error
	for _, row := range rows {
		for i, c := range columns {
			cells[i] = c.cell(row)
		}
		_, _ = terminal.Printf(tw, format, cells...)
	}
	return tw.Flush()
}

// The functions below format cells. A missing value is a dash.

func cellTime(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

func cellNumber(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// cellLine returns a text of several lines as one line.
func cellLine(text string) string {
	if text == "" {
		return "-"
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// cellPartition returns a topic and a partition, or only the topic if the partition is negative.
func cellPartition(topic string, partition int32) string {
	if partition < 0 {
		return topic
	}
	return topic + ":" + strconv.Itoa(int(partition))
}
