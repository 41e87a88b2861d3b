package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
)

// Position is the position of a partition, and its log bounds in Kafka. Unknown values are nil.
type Position struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Position  *int64    `json:"position"` // the position in the table; null if it has none
	Group     *int64    `json:"group_offset"`
	LogStart  *int64    `json:"log_start"`
	End       *int64    `json:"last_stable_offset"`
	Lag       *int64    `json:"lag"`
	Hold      *HoldInfo `json:"hold"`
	Note      string    `json:"note,omitempty"` // a remark, for example that the topic does not exist yet
}

// HoldInfo is the hold of a partition.
type HoldInfo struct {
	Reason hold.Reason `json:"reason"`
	Detail string      `json:"detail"`
	EndsBy string      `json:"ends_by"`
}

func showHold(reason hold.Reason, detail string) *HoldInfo {
	return &HoldInfo{reason, detail, reason.EndsBy()}
}

// Positions returns the positions and holds of the partitions of a topic, or of all topics if it is "".
func Positions(ctx context.Context, a *Access, topic string) ([]Position, error) {
	all, end, err := OpenTables(ctx, a, topic)
	if err != nil {
		return nil, err
	}
	defer end()
	queries, err := newKafkaQueries(ctx, a.Config)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer queries.close()
	var lines []Position
	for _, o := range all {
		snapshot, standing, err := o.snapshot(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range o.topics {
			of, err := queries.positions(ctx, o, name, snapshot)
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
	slices.SortStableFunc(lines, func(a, b Position) int { return strings.Compare(a.Topic, b.Topic) })
	return lines, nil
}

// snapshot reads the positions and the schema of the table, and the hold of the whole table, if there is one. For a
// table that does not exist it returns an empty snapshot.
func (o *Table) snapshot(ctx context.Context) (*connector.Snapshot, *HoldInfo, error) {
	s := &connector.Snapshot{Positions: map[string]int64{}}
	if o.store == nil {
		return s, nil, nil
	}
	info, err := delta.Inspect(ctx, o.store)
	if errors.Is(err, deltalog.ErrNoTable) {
		return s, nil, nil
	}
	if err != nil {
		return nil, nil, o.Failed(err)
	}
	o.properties = info.Properties
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

// fits returns an error if the table's columns do not fit those that the configuration requires.
func (o *Table) fits(table *schema.Schema) error {
	if err := table.HasKafkaColumns(); err != nil {
		return err
	}
	configured, err := o.table.Columns()
	if err != nil {
		return err
	}
	_, err = table.ForRows(configured.WithKafkaColumns())
	return err
}

// positions returns the positions of a topic in the table with the state of its partitions in Kafka.
func (q *kafkaQueries) positions(ctx context.Context, o *Table, name string, s *connector.Snapshot) ([]Position, error) {
	l, err := q.inspect(ctx, o, name, s)
	if notYet(o.config, name, s, err) {
		return []Position{{Topic: name, Partition: -1, Note: "the topic comes with the first dead letter"}}, nil
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return knownLines(o, name, s, showHold(held.Reason, held.Why())), nil
	}
	if err != nil {
		return nil, err
	}
	var lines []Position
	for _, p := range l.partitions() {
		line := Position{Topic: p.Topic, Partition: p.ID}
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

// notYet reports whether err means only that there is no dead letter yet, because the dead-letter topic does not exist
// and its table has no position of it.
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

// epochOf returns the leader epoch of a partition's committed offset if that offset equals next; otherwise it returns
// -1.
func epochOf(offsets map[int32]connector.GroupOffset, id int32, next int64) int32 {
	if g, ok := offsets[id]; ok && g.Next == next {
		return g.Epoch
	}
	return -1
}

// knownLines returns a line for each position that the table has of a topic which Kafka does not have, all with the
// hold h. If there is no position, it returns one line for the topic.
func knownLines(o *Table, topic string, s *connector.Snapshot, h *HoldInfo) []Position {
	positions := map[int32]int64{}
	for appID, next := range s.Positions {
		id, err := idempotency.ParseAppID(appID)
		if err == nil && id.TableID == "" && id.Pipeline == o.config.Pipeline && id.Partition.Topic == topic {
			positions[id.Partition.ID] = next
		}
	}
	if len(positions) == 0 {
		return []Position{{Topic: topic, Partition: -1, Hold: h}}
	}
	var lines []Position
	for _, id := range slices.Sorted(maps.Keys(positions)) {
		next := positions[id]
		lines = append(lines, Position{Topic: topic, Partition: id, Position: &next, Hold: h})
	}
	return lines
}
