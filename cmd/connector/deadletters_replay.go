package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/api"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// letterReplay has the flags of the commands that replay dead letters.
type letterReplay struct {
	letterSelection

	change    *change
	rate      float64
	mode      string
	valueFile string
}

const replayText = `
The records get their rows beside live traffic: with their own offsets and
timestamps, in commits of their own, each record once, also after kill -9 and
with several replays at once. A row that a record already has is not repeated.
Rows of a replay come after those of newer records of the same key;
_kafka_offset has the order.

Records that still cannot become rows stay dead letters. After three failed
replays a dead letter is parked: only --state parked, or its name, replays it
again. To correct the cause, change the configuration first; members must have
the same one. The command needs no running connector. If it is interrupted, run
it again: it continues.

--mode topic produces the records to the partitions they came from instead, with
their keys, values and headers and a signed header sluice-origin, for other
readers of the topic. The rows then have new offsets and timestamps, each record
still once. It needs running members and, in their configuration and that of the
command, ops.replay_secret_file. It waits until members have made the rows.`

func (c *cli) deadLettersReplayCommand() *cobra.Command {
	o := &letterReplay{}
	cmd := &cobra.Command{
		Use:   "replay TOPIC:PARTITION@OFFSET... --reason TEXT",
		Short: "Make rows of the records of dead letters",
		Long:  "Reads the records of dead letters again and adds their rows to the table.\n" + replayText,
		Example: `  connector deadletters replay orders:3@1207 --reason "column qty is a string now"
  connector deadletters replay orders:3@1207 --value-file corrected.json --reason "corrected by hand"`,
		Args: cobra.MinimumNArgs(1),
	}
	c.replayFlags(cmd, o)
	cmd.Flags().DurationVar(&o.Within, "timeout", time.Minute, "how long to wait for each response of Kafka and for the store")
	cmd.Flags().StringVar(&o.valueFile, "value-file", "", "replay the record with the value in this file; the dead letter keeps its own")
	cmd.Flags().StringVar(&o.topicID, "topic-id", "", "id of the records' topic, if it was created again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.replay(cmd.Context(), o, args) }
	return cmd
}

func (c *cli) deadLettersReplayAllCommand() *cobra.Command {
	o := &letterReplay{}
	cmd := &cobra.Command{
		Use:   "replay-all [TOPIC] --reason TEXT",
		Short: "Make rows of the records of all selected dead letters",
		Long: `Reads the records of all unresolved dead letters again, of one topic or of all,
and adds their rows to the tables. --dry-run decodes the records with the
present schema and shows, for each reason, how many become rows.
` + replayText,
		Example: `  connector deadletters replay-all orders --dry-run
  connector deadletters replay-all orders --code type_mismatch --rate 500 --reason "column qty is a string now"`,
		Args: cobra.MaximumNArgs(1),
	}
	c.replayFlags(cmd, o)
	selectFlags(cmd, &o.letterSelection)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			o.Topic = args[0]
		}
		return c.replay(cmd.Context(), o, nil)
	}
	return cmd
}

func (c *cli) replayFlags(cmd *cobra.Command, o *letterReplay) {
	o.change = c.changeFlags(cmd)
	cmd.Flags().StringVar(&o.mode, "mode", "direct", "how to make the rows: direct, or topic to produce the records to their topic again")
	cmd.Flags().Float64Var(&o.rate, "rate", admin.DefaultReplayRate, "the most dead letters per second, 0 for no limit")
	c.configFlag(cmd)
	c.listFlag(cmd)
	c.serverFlags(cmd, "config", "operator")
	cmd.Long += "\nThe replay is a job of that member: it continues if the command is interrupted."
}

// replay plans a replay, shows the plan, asks, and carries it out.
func (c *cli) replay(ctx context.Context, o *letterReplay, records []string) error {
	if err := o.parse(records); err != nil {
		return err
	}
	if o.rate < 0 {
		return fail.Usage(fmt.Errorf("--rate %v: write 0 or more", o.rate))
	}
	mode, ok := admin.ParseReplayMode(o.mode)
	if !ok {
		return fail.Usage(fmt.Errorf("--mode %q: write direct or topic", o.mode))
	}
	if err := c.checkChange(o.change); err != nil {
		return err
	}
	q := admin.ReplayQuery{LetterSelection: o.LetterSelection, Rate: o.rate, Mode: mode}
	if o.valueFile != "" {
		value, err := os.ReadFile(o.valueFile)
		if err != nil {
			return fail.Usage(fmt.Errorf("--value-file: %w", err))
		}
		q.Value = append([]byte{}, value...) // with an empty file the value is empty, not missing
	}
	if c.remote() {
		return c.replayAt(ctx, o.change, api.Replaying{Letters: o.letters(), Value: q.Value, Rate: o.rate, Mode: o.mode})
	}
	a, err := c.access()
	if err != nil {
		return err
	}
	a.ReadOnly = o.change.dryRun
	defer a.Close()
	end := c.watch(a, "reading dead letters")
	p, err := admin.PlanReplay(ctx, a, q)
	end()
	if errors.Is(err, admin.ErrNothingToDo) {
		return errors.Join(c.printNotes(p.Notes), c.nothingToDo(err))
	}
	if err != nil {
		return err
	}
	do, err := c.confirmReplay(ctx, o.change, p)
	if !do {
		return err
	}
	progress, end := c.replayProgress()
	result, err := admin.Replay(ctx, a, p, o.change.by(), progress)
	end()
	return errors.Join(c.showReplay(result), replayOutcome(result, err))
}

// replayOutcome returns err if it is not nil. Otherwise it returns an error of [fail.KindFound] if some of the records
// still cannot become rows, and nil if there is none.
func replayOutcome(r *admin.ReplayResult, err error) error {
	if err == nil && len(r.Failed) > 0 {
		return fail.Found(nil)
	}
	return err
}

// replayProgress returns a function that shows the progress of a replay on a terminal. The caller calls end when the
// replay ends, before it prints anything.
func (c *cli) replayProgress() (show func(admin.ReplayProgress), end func()) {
	progress := terminal.NewProgress(c.stderr, "replaying")
	return func(p admin.ReplayProgress) {
		progress.Set(int64(p.Done), int64(p.Of), admin.Counting(p.Result.Rows, "row"))
	}, progress.Close
}

// confirmReplay asks for consent to a replay. See [cli.confirm].
func (c *cli) confirmReplay(ctx context.Context, ch *change, p *admin.ReplayPlan) (do bool, err error) {
	return c.confirm(ctx, ch, func(w io.Writer) error {
		if c.output == outputJSON {
			return writeJSON(w, p)
		}
		return printReplayPlan(w, c.output == outputWide, p)
	})
}

// printReplayPlan prints what a replay would do.
func printReplayPlan(w io.Writer, wide bool, p *admin.ReplayPlan) error {
	type outcome = admin.ReplayOutcome
	err := printList(w, wide, p.Outcomes,
		column[outcome]{title: "TOPIC", cell: func(o outcome) string { return o.Topic }},
		column[outcome]{title: "REASON", cell: func(o outcome) string { return o.Reason }},
		column[outcome]{title: "BECOME ROWS", cell: func(o outcome) string { return strconv.Itoa(o.Rows) }},
		column[outcome]{title: "FAIL AGAIN", cell: func(o outcome) string { return strconv.Itoa(o.Fails) }},
		column[outcome]{title: "WHY", cell: func(o outcome) string { return strings.ReplaceAll(o.Detail, "\n", " ") }})
	if err != nil {
		return err
	}
	var b strings.Builder
	_, _ = terminal.Printf(&b, "replay %s into %s\n", admin.Counting(int64(p.Count), "dead letter"), strings.Join(p.Tables, ", "))
	if p.Keyed > 0 {
		_, _ = terminal.Printf(&b, "note: the rows of %s come after those of newer records, maybe of the same key\n", admin.Counting(int64(p.Keyed), "record"))
	}
	for _, n := range p.Notes {
		_, _ = terminal.Printf(&b, "note: %s\n", n)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// showReplay prints the result of a replay.
func (c *cli) showReplay(r *admin.ReplayResult) error {
	if c.output == "json" {
		return writeJSON(c.stdout, r)
	}
	var b strings.Builder
	_, _ = terminal.Printf(&b, "%s replayed\n", admin.Counting(r.Rows, "dead letter"))
	for _, done := range r.Commits {
		_, _ = terminal.Printf(&b, "table %s version %d: %s\n", done.Table, done.Version, admin.Counting(done.Rows, "row"))
	}
	for _, code := range slices.Sorted(maps.Keys(r.Failed)) {
		first := r.First[code]
		_, _ = terminal.Printf(&b, "%s still cannot become rows: %s, first %s: %s\n", admin.Counting(int64(r.Failed[code]), "record"), code, first.Record, first.Detail)
	}
	if r.Parked > 0 {
		_, _ = terminal.Printf(&b, "parked now: %s; only --state parked, or the name, replays them again\n", admin.Counting(int64(r.Parked), "dead letter"))
	}
	for _, why := range slices.Sorted(maps.Keys(r.LeftOut)) {
		_, _ = terminal.Printf(&b, "left out: %d %s\n", r.LeftOut[why], why)
	}
	_, err := io.WriteString(c.stdout, b.String())
	return err
}
