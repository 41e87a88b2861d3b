package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
)

func (c *cli) offsetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offsets",
		Short: "Look at positions, and move them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var timeout time.Duration
	show := &cobra.Command{
		Use:   "show",
		Short: "Show position, group offset, log ends, lag and hold of each partition",
		Long: `Shows for each partition the position in the table, the group's offset (a hint
that lags behind), where the log starts and ends, and the lag. A partition that
a connector would hold is shown with the reason and with what ends it: as far as
the table and Kafka show it, and the member at health.listen of this
configuration, if one answers there. Exit code 1 if a partition is held.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.showOffsets(ctx)
		},
	}
	show.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "how long to wait for Kafka and the store")
	c.configFlag(show)
	c.topicFlag(show)
	c.outputFlag(show)
	cmd.AddCommand(show, c.offsetsSetCommand(), c.offsetsStartCommand(), c.offsetsAdoptCommand(), c.offsetsAcceptGapCommand(), c.offsetsSkipCommand())
	return cmd
}

// partitionOffsets is where a partition stands. What is unknown is nil.
type partitionOffsets struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Position  *int64     `json:"position"` // in the table
	Group     *int64     `json:"group_offset"`
	LogStart  *int64     `json:"log_start"`
	End       *int64     `json:"last_stable_offset"`
	Lag       *int64     `json:"lag"`
	Hold      *shownHold `json:"hold"`
	Note      string     `json:"note,omitempty"` // of a topic that is not there yet
}

// shownHold is why a partition stands still.
type shownHold struct {
	Reason hold.Reason `json:"reason"`
	Detail string      `json:"detail"`
	EndsBy string      `json:"ends_by"`
}

func showHold(reason hold.Reason, detail string) *shownHold {
	return &shownHold{reason, detail, reason.EndsBy()}
}

func (c *cli) showOffsets(ctx context.Context) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	lines, err := Positions(ctx, a, c.topic)
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, lines)
	} else {
		err = printOffsets(c.stdout, lines)
	}
	if err == nil && slices.ContainsFunc(lines, func(l partitionOffsets) bool { return l.Hold != nil }) {
		err = fail.Found(nil)
	}
	return err
}

// Positions returns where the partitions of the topics stand, or of the one that is named, and why they are held, if they
// are.
func Positions(ctx context.Context, a *Access, topic string) ([]partitionOffsets, error) {
	all, end, err := OpenTables(ctx, a, topic)
	if err != nil {
		return nil, err
	}
	defer end()
	ask, err := newQuestions(ctx, a.Config)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer ask.close()
	var lines []partitionOffsets
	for _, o := range all {
		snapshot, standing, err := o.snapshot(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range o.topics {
			of, err := ask.lines(ctx, o, name, snapshot)
			if err != nil {
				return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
			}
			for i := range of {
				if of[i].Hold == nil {
					of[i].Hold = standing
				}
			}
			lines = append(lines, of...)
		}
	}
	reported := heldByMember(ctx, a.Config)
	for i := range lines {
		if h := reported.of(lines[i].Topic, lines[i].Partition); h != nil && lines[i].Note == "" && (lines[i].Hold == nil || hides(h.Reason, lines[i].Hold.Reason)) {
			lines[i].Hold = showHold(h.Reason, h.Detail)
		}
	}
	slices.SortStableFunc(lines, func(a, b partitionOffsets) int { return strings.Compare(a.Topic, b.Topic) })
	return lines, nil
}

// snapshot reads what the table says of progress, and what would hold all of its partitions. A table that does not exist
// yet is an empty one.
func (o *opened) snapshot(ctx context.Context) (*connector.Snapshot, *shownHold, error) {
	s := &connector.Snapshot{Positions: map[string]int64{}}
	if o.store == nil {
		return s, nil, nil
	}
	info, err := delta.Inspect(ctx, o.store)
	if errors.Is(err, deltalog.ErrNoTable) {
		return s, nil, nil
	}
	if err != nil {
		return nil, nil, o.failed(err)
	}
	s.TableID, s.Version, s.Positions = info.ID, info.Version, info.Positions
	if info.Schema != nil {
		s.Schema = info.Schema
	}
	refusal := info.Refusal
	if refusal == nil && info.Schema != nil {
		refusal = o.fits(info.Schema)
	}
	if held, ok := errors.AsType[*hold.Error](refusal); ok {
		return s, showHold(held.Reason, held.Why()), nil
	}
	return s, nil, nil
}

// fits says whether the table has the columns that the configuration asks for.
func (o *opened) fits(table *schema.Schema) error {
	if err := table.HasKafkaColumns(); err != nil {
		return err
	}
	configured, err := o.table.Columns()
	if err != nil {
		return err
	}
	return table.Fits(configured.WithKafkaColumns())
}

// questions are what commands ask Kafka, each repeated until there is an answer or ctx ends.
type questions struct {
	ask    func(func(context.Context) error) error
	client *kafka.Client
	log    *kafka.Log
	group  *kafka.Group
}

func newQuestions(ctx context.Context, c *config.Config) (*questions, error) {
	k, quiet := c.Kafka, slog.New(slog.DiscardHandler) // what goes wrong comes back as an error
	client, err := open.Kafka(c, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return &questions{
		ask:    lookup.Patience(ctx, reliability.NewGuard("kafka", c.Guard(), quiet, nil)),
		client: client,
		log:    kafka.NewLog(client, kafka.LogConfig{Memory: c.Budget.Pools().Fetch}, quiet, prometheus.NewRegistry()), // nobody asks for these metrics
		group: kafka.NewGroup(client, kafka.GroupConfig{
			Group: k.Group, Optional: c.LaterTopics, Session: k.Session, Matches: func(topic string) bool { _, meant, err := c.Route(topic); return meant && err == nil },
			Beyond: c.Beyond,
		}, quiet, nil),
	}, nil
}

func (q *questions) close() { q.client.Close() }

// lines asks Kafka for what it knows of a topic and holds it against the table.
func (q *questions) lines(ctx context.Context, o *opened, name string, s *connector.Snapshot) ([]partitionOffsets, error) {
	l, err := q.look(ctx, o, name, s)
	if notYet(o.config, name, s, err) {
		return []partitionOffsets{{Topic: name, Partition: -1, Note: "the topic comes with the first dead letter"}}, nil
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return knownLines(o, name, s, showHold(held.Reason, held.Why())), nil
	}
	if err != nil {
		return nil, err
	}
	var lines []partitionOffsets
	for _, p := range l.partitions() {
		line := partitionOffsets{Topic: p.Topic, Partition: p.ID}
		position := l.position(p)
		if position >= 0 {
			line.Position = &position
		}
		if g, ok := l.group[p.ID]; ok {
			line.Group = &g.Next
		}
		if b, ok := l.bounds[p]; ok {
			line.LogStart, line.End = &b.LogStart, &b.LastStable
			if lag := max(0, b.LastStable-position); position >= 0 {
				line.Lag = &lag
			}
		}
		if h := l.hold(p); h != nil {
			line.Hold = showHold(h.Reason, h.Detail)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// notYet tells whether an error says no more than that nothing became a dead letter yet: the topic of the letters is not
// there, and the table has never heard of it.
func notYet(c *config.Config, topic string, s *connector.Snapshot, err error) bool {
	if lookup.ReasonOf(err) != hold.TopicMissing || !c.ComesLater(topic) {
		return false
	}
	for appID := range s.Positions {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.TableID == "" && id.Partition.Topic == topic {
			return false
		}
	}
	return true
}

// epochOf returns the leader epoch that the group keeps beside its offset, if that offset is next, else -1.
func epochOf(offsets map[int32]connector.GroupOffset, id int32, next int64) int32 {
	if g, ok := offsets[id]; ok && g.Next == next {
		return g.Epoch
	}
	return -1
}

// knownLines are the partitions that the table knows of a topic that cannot be asked about.
func knownLines(o *opened, topic string, s *connector.Snapshot, h *shownHold) []partitionOffsets {
	positions := map[int32]int64{}
	for appID, next := range s.Positions {
		id, err := idempotency.ParseAppID(appID)
		if err == nil && id.TableID == "" && id.Pipeline == o.config.Pipeline && id.Partition.Topic == topic {
			positions[id.Partition.ID] = next
		}
	}
	if len(positions) == 0 {
		return []partitionOffsets{{Topic: topic, Partition: -1, Hold: h}}
	}
	var lines []partitionOffsets
	for _, id := range slices.Sorted(maps.Keys(positions)) {
		next := positions[id]
		lines = append(lines, partitionOffsets{Topic: topic, Partition: id, Position: &next, Hold: h})
	}
	return lines
}

func printOffsets(w io.Writer, lines []partitionOffsets) error {
	tw := newColumns(w)
	show := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatInt(*n, 10)
	}
	_, _ = fmt.Fprintln(tw, "PARTITION\tPOSITION\tGROUP OFFSET\tLOG START\tLAST STABLE\tLAG\tHOLD") // Flush has the error
	for _, l := range lines {
		name, h := l.Topic, "-"
		if l.Partition >= 0 {
			name += ":" + strconv.Itoa(int(l.Partition))
		}
		if l.Hold != nil {
			h = string(l.Hold.Reason)
		}
		_, _ = printf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, show(l.Position), show(l.Group), show(l.LogStart), show(l.End), show(l.Lag), h)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, l := range lines {
		if l.Note == "" {
			continue
		}
		if _, err := printf(w, "\n%s: %s\n", l.Topic, l.Note); err != nil {
			return err
		}
	}
	// Partitions that are held for the same reason are explained once.
	explained := map[shownHold]bool{}
	for _, l := range lines {
		if l.Hold == nil || explained[*l.Hold] {
			continue
		}
		explained[*l.Hold] = true
		if _, err := printf(w, "\n%s: %s\n  %s\n", l.Hold.Reason, l.Hold.Detail, ending(l.Hold.EndsBy)); err != nil {
			return err
		}
	}
	return nil
}
