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
				return tableResult{v, func(w io.Writer, wide bool) error { return printVerification(w, wide, v, withTopic) }, len(v.Findings) > 0}, nil
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for each response of Kafka, with --kafka")
	cmd.Flags().BoolVar(&withTopic, "kafka", false, "also compare the rows with the records of the topics")
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.listFlag(cmd)
	return cmd
}

// printVerification prints the result of a verification. withTopics is the flag --kafka.
func printVerification(w io.Writer, wide bool, v *admin.Verification, withTopics bool) error {
	if err := printPartitions(w, wide, v); err != nil {
		return err
	}
	compared := comparedPartitions(v) > 0
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

// printPartitions prints the partitions of a verification. Columns without a value in any partition are wide.
func printPartitions(w io.Writer, wide bool, v *admin.Verification) error {
	type partition = admin.VerifiedPartition
	none := func(has func(partition) bool) bool { return !slices.ContainsFunc(v.Partitions, has) }
	noLetters := none(func(p partition) bool { return p.Letters > 0 })
	noTwins := none(func(p partition) bool { return p.Twins > 0 })
	notCompared := none(func(p partition) bool { return p.Compared != nil })
	ofTopic := func(text func(k *admin.Comparison) string) func(partition) string {
		return func(p partition) string {
			if p.Compared == nil {
				return "-"
			}
			return text(p.Compared)
		}
	}
	return printList(w, wide, v.Partitions,
		column[partition]{title: "PARTITION", cell: func(p partition) string { return cellPartition(p.Topic, p.Partition) }},
		column[partition]{title: "OFFSETS COVERED", cell: func(p partition) string { return covered(p.Ranges) }},
		column[partition]{title: "POSITION", cell: func(p partition) string { return cellNumber(p.Position) }},
		column[partition]{title: "ROWS COMMITTED", cell: func(p partition) string { return cellNumber(&p.Committed) }},
		column[partition]{title: "ROWS", cell: func(p partition) string { return cellNumber(&p.Rows) }},
		column[partition]{title: "DEAD LETTERS", wide: noLetters, cell: func(p partition) string { return cellNumber(&p.Letters) }},
		column[partition]{title: "DUPLICATES", wide: noTwins, cell: func(p partition) string { return cellNumber(&p.Twins) }},
		column[partition]{title: "RECORDS COMPARED", wide: notCompared, cell: ofTopic(func(k *admin.Comparison) string {
			return fmt.Sprintf("%d in [%d, %d)", k.Records, k.From, k.Next)
		})},
		column[partition]{title: "TOMBSTONES", wide: notCompared, cell: ofTopic(func(k *admin.Comparison) string { return fmt.Sprint(k.Tombstones) })},
		column[partition]{title: "HEALTH", wide: notCompared, cell: ofTopic(func(k *admin.Comparison) string { return fmt.Sprint(k.HealthRecords) })},
		column[partition]{title: "REPLAYED", wide: true, cell: func(p partition) string { return cellNumber(&p.Replayed) }},
		column[partition]{title: "TXN", wide: true, cell: func(p partition) string { return p.AppID }})
}

// covered formats ranges of offsets.
func covered(ranges []admin.Interval) string {
	if len(ranges) == 0 {
		return "none"
	}
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = fmt.Sprintf("[%d, %d)", r.From, r.Next)
	}
	return strings.Join(texts, " ")
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
