package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// Verification is the result of verifying a table.
type Verification struct {
	URL        string              `json:"url"`
	Version    int64               `json:"version"`
	Oldest     int64               `json:"oldest_version"` // the oldest version whose log entry exists
	Rows       int64               `json:"rows"`
	Partitions []VerifiedPartition `json:"partitions"`
	Findings   []VerifyFinding     `json:"findings"`
	// Notes are facts that weaken the proof without contradicting it.
	Notes []string `json:"notes"`

	altered bool // true if other programs added or removed files
}

// VerifiedPartition has the offsets of one partition that the commits cover.
type VerifiedPartition struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	AppID     string     `json:"app_id"`
	Ranges    []Interval `json:"ranges"`
	Position  *int64     `json:"position"` // null if the table has no txn for it
	Committed int64      `json:"rows_committed"`
	Letters   int64      `json:"letters"`            // dead letters in the ranges of the commits
	Replayed  int64      `json:"replayed,omitempty"` // the number of Letters of which replays made rows
	Twins     int64      `json:"duplicates"`         // duplicates in the ranges of the commits
	// Rows are the rows in the table: of its topic id if each row has one, else of all topic ids. Other pipelines may
	// have written some of them.
	Rows int64 `json:"rows"`
	// Compared is the comparison with the topic; null if the operator did not ask for it with --kafka.
	Compared *Comparison `json:"compared,omitempty"`
}

// Verify checks that a table has each record exactly once according to its log. If withTopics, it also compares the
// rows with the records of the topics. Each request to Kafka may take as long as within.
func Verify(ctx context.Context, o *Table, withTopics bool, within time.Duration) (*Verification, error) {
	v, checks, err := verifyLog(ctx, o)
	if err == nil && withTopics {
		err = v.compareTopics(ctx, o, checks, within)
	}
	return v, err
}

// verifyLog compares one version of the table with the table's log. It returns the rows of each partition, for a
// comparison with the topic. An error is one of the store or of the log, not a finding.
func verifyLog(ctx context.Context, o *Table) (*Verification, map[source]*rowCheck, error) {
	if o.store == nil {
		return nil, nil, deltalog.ErrNoTable
	}
	state, err := deltalog.Load(ctx, o.store)
	if err != nil {
		return nil, nil, err
	}
	v := &Verification{URL: o.URL, Version: state.Version, Oldest: -1, Partitions: []VerifiedPartition{}, Findings: []VerifyFinding{}, Notes: []string{}}
	ranges, err := v.readHistory(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	checks, err := v.readRows(ctx, o, state, ranges)
	if err != nil {
		return nil, nil, err
	}
	for _, at := range slices.SortedFunc(maps.Keys(ranges), compareChains) {
		in := ranges[at]
		p := VerifiedPartition{Topic: at.Topic, Partition: at.Partition, AppID: at.appID, Ranges: in.intervals, Committed: in.rows, Letters: in.letters, Replayed: in.replays, Twins: in.twins, Rows: checks[at.source].rowsOf(at.topicID())}
		if p.Ranges == nil {
			p.Ranges = []Interval{}
		}
		if t, ok := state.Txns[at.appID]; ok {
			p.Position = &t.Version
		}
		v.Partitions = append(v.Partitions, p)
		v.Findings = append(v.Findings, in.findings...)
		v.Findings = append(v.Findings, position(at, in, p.Position)...)
	}
	v.Findings = append(v.Findings, v.bare(state, ranges)...)
	for _, at := range slices.SortedFunc(maps.Keys(checks), compareSources) {
		v.Findings = append(v.Findings, checks[at].findings(at, v.altered)...)
	}
	return v, checks, nil
}

func compareChains(a, b chain) int {
	if c := compareSources(a.source, b.source); c != 0 {
		return c
	}
	return strings.Compare(a.appID, b.appID)
}

// readHistory reads the offset ranges of all commits up to the verified version, and notes moves by operators and
// commits of other programs.
func (v *Verification) readHistory(ctx context.Context, o *Table) (coverage, error) {
	ranges := coverage{}
	var foreign int
	for e, err := range delta.History(ctx, o.store) {
		if err != nil {
			return nil, err
		}
		if e.Version > v.Version { // this version was committed after the verification began
			break
		}
		if v.Oldest < 0 {
			v.Oldest = e.Version
		}
		if e.Ranges == nil && (e.Files > 0 || e.Removed > 0) {
			foreign++
		}
		for _, r := range e.Ranges {
			ranges.add(e.Version, chain{source{r.Topic, r.Partition}, appIDOf(e.Txns, r)}, r, e.Moved != nil)
			if e.Moved != nil {
				v.noteMoved(e, r)
			}
		}
		for _, r := range e.Replayed {
			ranges.addReplayed(r, o.config.Pipeline)
		}
	}
	if v.altered = foreign > 0; v.altered {
		v.note("%d commits of other programs changed rows: rows that are missing are not counted as findings", foreign)
	}
	if v.Oldest > 0 {
		v.note("the log begins at version %d: the offsets of earlier commits are unknown", v.Oldest)
	}
	return ranges, nil
}

// noteMoved notes a position that an operator moved.
func (v *Verification) noteMoved(e delta.Entry, r connector.Range) {
	what := "it began there"
	switch {
	case r.From >= 0 && r.Next > r.From:
		what = fmt.Sprintf("offsets [%d, %d) were left out", r.From, r.Next)
	case r.From >= 0:
		what = fmt.Sprintf("offsets [%d, %d) were read again", r.Next, r.From)
	}
	v.note("%s:%d: version %d moved the position to %d, %s: %s by %s, %q",
		r.Topic, r.Partition, e.Version, r.Next, what, e.Moved.Command, e.Moved.Operator, e.Moved.Reason)
}

func (v *Verification) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// appIDOf returns the appId of the txn with which a commit set the position of a range.
func appIDOf(txns []deltalog.Txn, r connector.Range) (appID string) {
	for _, t := range txns {
		id, err := idempotency.ParseAppID(t.AppID)
		if err != nil || id.TableID != "" || id.Partition.Topic != r.Topic || id.Partition.ID != r.Partition {
			continue
		}
		if appID = t.AppID; t.Version == r.Next {
			break
		}
	}
	return appID
}

// readRows checks the rows of each partition against its commits, and also the rows of partitions without commits. It
// adds findings about missing data files.
func (v *Verification) readRows(ctx context.Context, o *Table, state *deltalog.State, ranges coverage) (map[source]*rowCheck, error) {
	checks := map[source]*rowCheck{}
	for at, in := range ranges {
		check := checks[at.source]
		if check == nil {
			check = &rowCheck{ids: map[string][]*covered{}}
			checks[at.source] = check
		}
		check.chains = append(check.chains, in)
		check.ids[at.topicID()] = append(check.ids[at.topicID()], in)
	}
	for appID, txn := range state.Txns { // of topics whose commits the log no longer has
		id, err := idempotency.ParseAppID(appID)
		if err != nil || id.TableID != "" || v.Oldest == 0 {
			continue
		}
		at := chain{source{id.Partition.Topic, id.Partition.ID}, appID}
		if check := checks[at.source]; check != nil && ranges[at] == nil {
			check.ids[at.topicID()] = append(check.ids[at.topicID()], &covered{next: txn.Version})
		}
	}
	var others, committed int64
	for _, in := range ranges {
		committed += in.rows
	}
	for f, err := range deltalog.Files(ctx, o.store, state) {
		if err != nil {
			return nil, err
		}
		var check *rowCheck // the check of the row before; rows of a partition are adjacent, so it is usually the right one
		var at source
		for row, err := range delta.Offsets(ctx, o.store, f) {
			if errors.Is(err, objstore.ErrNotFound) {
				v.Findings = append(v.Findings, VerifyFinding{Kind: "file", Detail: f.Path + " is in the table and does not exist"})
				break
			}
			if err != nil {
				return nil, err
			}
			v.Rows++
			o.passed(v.Rows, committed)
			if !row.FromKafka {
				others++
				continue
			}
			if here := (source{row.Topic, row.Partition}); check == nil || here != at {
				at = here
				if check = checks[at]; check == nil {
					check = &rowCheck{}
					checks[at] = check
				}
			}
			check.addRow(row.TopicID, row.Offset)
		}
	}
	if others > 0 {
		v.note("%d rows have no Kafka coordinates: another program wrote them", others)
	}
	return checks, nil
}

// position returns a finding if the position of a partition in the table is not the end of the partition's last commit.
func position(at chain, in *covered, position *int64) []VerifyFinding {
	switch {
	case position == nil:
		return []VerifyFinding{{at.Topic, at.Partition, "position", fmt.Sprintf("commits cover offsets up to %d, but the table has no position", in.next)}}
	case *position != in.next:
		return []VerifyFinding{{at.Topic, at.Partition, "position", fmt.Sprintf("the table's position is %d, the last commit ended at %d", *position, in.next)}}
	}
	return nil
}

// bare returns a finding for each position in the table that no commit has set. It returns none if the first entries of
// the log were cleaned up.
func (v *Verification) bare(state *deltalog.State, ranges coverage) []VerifyFinding {
	var all []VerifyFinding
	for _, appID := range slices.Sorted(maps.Keys(state.Txns)) {
		id, err := idempotency.ParseAppID(appID)
		if err != nil || id.TableID != "" || v.Oldest != 0 {
			continue
		}
		at := chain{source{id.Partition.Topic, id.Partition.ID}, appID}
		if ranges[at] == nil {
			all = append(all, VerifyFinding{
				at.Topic, at.Partition, "position", fmt.Sprintf("the table's position is %d, and no commit says how it came there", state.Txns[appID].Version),
			})
		}
	}
	return all
}
