package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/terminal"
)

func (c *cli) verifyCommand() *cobra.Command {
	var (
		withTopic bool
		timeout   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify each table against its log",
		Long: `Reads the whole log and the offsets of all rows, and compares them: the offset
ranges in a partition's commits must reach the position without a gap or an
overlap, and each row's offset must lie in a range and occur once. This needs at
most one bit of memory for each offset.

With --kafka it also reads the topics, from their start to the positions: each
committed record with a value must have a row, and each row a record. There must
not be more health-check records, dead letters and duplicates without a row than
the commits say. Exit code 1 if there are findings. In JSON, several tables are
a list, a single one is an object.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.eachTable(cmd.Context(), func(_ *admin.Access, o *admin.Table) (tableResult, error) {
				v, err := admin.Verify(cmd.Context(), o, withTopic, timeout)
				if err != nil {
					return tableResult{}, err
				}
				return tableResult{v, func(w io.Writer) error { return printVerification(w, v, withTopic) }, len(v.Findings) > 0}, nil
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for each response of Kafka, with --kafka")
	cmd.Flags().BoolVar(&withTopic, "kafka", false, "also compare the rows with the records of the topics")
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// printVerification prints the result of a verification. withTopics is the flag --kafka.
func printVerification(w io.Writer, v *admin.Verification, withTopics bool) error {
	tw := terminal.NewColumns(w)
	compared := slices.ContainsFunc(v.Partitions, func(p admin.VerifiedPartition) bool { return p.Compared != nil })
	title := "PARTITION\tOFFSETS COVERED\tPOSITION\tROWS COMMITTED\tROWS"
	letters := slices.ContainsFunc(v.Partitions, func(p admin.VerifiedPartition) bool { return p.Letters > 0 })
	if letters {
		title += "\tDEAD LETTERS"
	}
	twins := slices.ContainsFunc(v.Partitions, func(p admin.VerifiedPartition) bool { return p.Twins > 0 })
	if twins {
		title += "\tDUPLICATES"
	}
	if compared {
		title += "\tRECORDS COMPARED\tTOMBSTONES\tHEALTH"
	}
	_, _ = fmt.Fprintln(tw, title) // Flush returns the error
	for _, p := range v.Partitions {
		var covered []string
		for _, r := range p.Ranges {
			covered = append(covered, fmt.Sprintf("[%d, %d)", r.From, r.Next))
		}
		if covered == nil {
			covered = []string{"none"}
		}
		position := "-"
		if p.Position != nil {
			position = fmt.Sprint(*p.Position)
		}
		_, _ = terminal.Printf(tw, "%s:%d\t%s\t%s\t%d\t%d", p.Topic, p.Partition, strings.Join(covered, " "), position, p.Committed, p.Rows)
		if letters {
			_, _ = terminal.Printf(tw, "\t%d", p.Letters)
		}
		if twins {
			_, _ = terminal.Printf(tw, "\t%d", p.Twins)
		}
		switch k := p.Compared; {
		case k != nil:
			_, _ = terminal.Printf(tw, "\t%d in [%d, %d)\t%d\t%d", k.Records, k.From, k.Next, k.Tombstones, k.HealthRecords)
		case compared:
			_, _ = fmt.Fprint(tw, "\t-\t-\t-")
		}
		_, _ = fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	if n := comparedPartitions(v); withTopics && n < len(v.Partitions) {
		_, _ = terminal.Printf(&b, "\nONLY %d of %d partitions were compared with Kafka: the notes say why\n", n, len(v.Partitions))
	}
	_, _ = terminal.Printf(&b, "\n%s: versions %d to %d, %d partitions, %d rows\n", v.URL, v.Oldest, v.Version, len(v.Partitions), v.Rows)
	for _, n := range v.Notes {
		_, _ = terminal.Printf(&b, "note: %s\n", n)
	}
	for _, f := range v.Findings {
		_, _ = terminal.Printf(&b, "%s\n", f)
	}
	if len(v.Findings) == 0 {
		b.WriteString("ok: no gap, no overlap, no duplicate")
		if compared && comparedPartitions(v) == len(v.Partitions) {
			b.WriteString("; the rows are those of the topic")
		}
		b.WriteString("\n")
	} else {
		_, _ = terminal.Printf(&b, "%d findings\n", len(v.Findings))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comparedPartitions returns the number of partitions that were compared with Kafka.
func comparedPartitions(v *admin.Verification) (n int) {
	for _, p := range v.Partitions {
		if p.Compared != nil {
			n++
		}
	}
	return n
}
