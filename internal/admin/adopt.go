package admin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/internal/fail"
)

// AdoptRequest names the program whose positions a topic continues from.
type AdoptRequest struct {
	Topic      string
	From       string // where the positions come from: "group", "kdi" or "spark"
	Group      string // the consumer group; "" for that of kafka.group
	AppID      string // the app_id of kafka-delta-ingest, or the txnAppId of a Spark query
	Checkpoint string // the checkpoint of a Spark query: a folder or a URL
}

// adoptedPositions has, by partition, the next offset that another program would read.
type adoptedPositions struct {
	next  map[int32]int64
	from  map[string]int64 // the other program's txns in the table, by appId; -1 for a missing one
	what  string           // where the positions come from, for the note of each move: "committed by group g"
	notes []string
}

func (a *adoptedPositions) note(format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

func (f *AdoptRequest) check() error {
	usage := func(format string, args ...any) error { return fail.Usage(fmt.Errorf(format, args...)) }
	switch {
	case f.From != "group" && f.From != "kdi" && f.From != "spark":
		return usage("--from %q is unknown: write group, kdi or spark", f.From)
	case f.From != "group" && f.Group != "":
		return usage("--group has no effect with --from %s", f.From)
	case f.From == "group" && f.AppID != "":
		return usage("--app-id has no effect with --from group")
	case f.From != "spark" && f.Checkpoint != "":
		return usage("--checkpoint has no effect with --from %s", f.From)
	case f.From == "spark" && f.Checkpoint == "":
		return usage("--from spark needs --checkpoint, the folder with offsets and commits")
	}
	return nil
}

// PlanAdopt plans the first positions of a topic, from the positions at which another program stopped. It refuses if
// the table has positions of this pipeline for the topic.
func PlanAdopt(ctx context.Context, a *Access, f AdoptRequest) (*MovePlan, error) {
	return sorted(f.plan(ctx, a))
}

func (f *AdoptRequest) plan(ctx context.Context, access *Access) (*MovePlan, error) {
	topic := f.Topic
	if err := f.check(); err != nil {
		return nil, err
	}
	view, err := access.inspectTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	defer view.end()
	l := view.inspections[0]
	switch detail := plan.Replaced(l.snapshot, l.pipeline); {
	case detail != "":
		return nil, refused("table_replaced: %s: accept it with offsets start, or use another table", detail)
	case l.started():
		return nil, refused("the table has positions of this pipeline for topic %s already: offsets set moves them", topic)
	}
	var a *adoptedPositions
	switch f.From {
	case "group":
		a, err = f.fromGroup(view, l)
	case "kdi":
		a, err = f.fromIngest(l)
	default:
		a, err = f.fromSpark(ctx, l)
	}
	if err != nil {
		return nil, err
	}
	made := newPlan("offsets adopt", l)
	made.Accept, made.Notes, made.others = true, a.notes, a.from
	if view.tableHold != nil {
		made.note("the topic would be held: %s: %s", view.tableHold.Reason, view.tableHold.Detail)
	}
	return made, made.adopt(l, a)
}

// fromGroup returns the committed offsets of a consumer group. Like positions, they are the next offsets to read.
func (f *AdoptRequest) fromGroup(view *topicsView, l *inspection) (*adoptedPositions, error) {
	k := l.table.config.Kafka
	name := f.Group
	if name == "" {
		name = k.Group
	}
	group := kafka.NewGroup(view.client, kafka.GroupConfig{Group: name, Session: k.Session}, slog.New(slog.DiscardHandler), nil)
	var offsets map[int32]connector.GroupOffset
	err := view.retry(func(ctx context.Context) (err error) { offsets, err = group.Offsets(ctx, l.topic.Name); return err })
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	if len(offsets) == 0 {
		return nil, refused("group %s has no committed offset for topic %s", name, l.topic.Name)
	}
	a := &adoptedPositions{next: map[int32]int64{}, what: "committed by group " + name}
	for id, o := range offsets {
		a.next[id] = o.Next
	}
	a.note("a group's offsets say what it has read, not what is in a table: they are exact only if the program wrote first and committed after, and is stopped")
	return a, nil
}

// fromIngest returns the positions of kafka-delta-ingest. That program keeps one txn for each partition of its topic.
// Its appId is <app_id>-<partition> (txn_app_id_for_partition in src/delta_helpers.rs), its version the offset of the
// last written record: after an assignment the program seeks there and skips all offsets up to it
// (should_process_offset in src/lib.rs). Its seek_offsets set the version in the same way (src/offsets.rs). So the next
// offset is version + 1.
func (f *AdoptRequest) fromIngest(l *inspection) (*adoptedPositions, error) {
	found := map[string]map[int32]int64{} // the positions found, by app_id and partition
	for appID, version := range l.snapshot.Positions {
		at := strings.LastIndexByte(appID, '-')
		if at < 1 {
			continue
		}
		id, err := strconv.ParseInt(appID[at+1:], 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != appID[at+1:] || version < 0 {
			continue
		}
		if _, err := idempotency.ParseAppID(appID); err == nil {
			continue
		}
		if found[appID[:at]] == nil {
			found[appID[:at]] = map[int32]int64{}
		}
		found[appID[:at]][int32(id)] = version + 1
	}
	names := slices.Sorted(maps.Keys(found))
	name := f.AppID
	switch {
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "" && len(names) > 1:
		return nil, fail.Usage(fmt.Errorf("the table has positions of several app ids: write --app-id with one of %s", strings.Join(names, ", ")))
	}
	if found[name] == nil {
		return nil, refused("the table has no txn of kafka-delta-ingest, whose appId is <app_id>-<partition>, for app id %q", name)
	}
	from := map[string]int64{}
	for _, p := range l.partitions() {
		from[fmt.Sprintf("%s-%d", name, p.ID)] = -1
	}
	for id, next := range found[name] {
		from[fmt.Sprintf("%s-%d", name, id)] = next - 1
	}
	return &adoptedPositions{next: found[name], from: from, what: "after the last record of kafka-delta-ingest's " + name}, nil
}

// adopt adds the first position of each partition of the topic to the plan. If a has no position for a partition, the
// partition begins at the start of its log.
func (p *MovePlan) adopt(l *inspection, a *adoptedPositions) error {
	for _, id := range slices.Sorted(maps.Keys(a.next)) {
		if _, ok := l.partition(id); !ok {
			return refused("there is a position for partition %d (%s), and topic %s has none of this number: it is of another topic", id, a.what, l.topic.Name)
		}
	}
	for _, of := range l.partitions() {
		b, there := l.bounds[of]
		next, known := a.next[of.ID]
		switch {
		case !there:
			return fail.Dependency(fmt.Errorf("kafka: the ends of %v are not known", of))
		case !known:
			p.move(l, of, b.LogStart, "no position, so it begins at its earliest offset")
		case next > b.HighWatermark:
			return refused("%v would begin at %d (%s), and its log ends at %d: it is a position of another topic or cluster", of, next, a.what, b.HighWatermark)
		case next < b.LogStart:
			p.move(l, of, next, "%s; its log starts at %d, so that it is held (behind_log_start) until the %d offsets before are given up", a.what, b.LogStart, b.LogStart-next)
		default:
			p.move(l, of, next, "%s", a.what)
		}
	}
	return nil
}
