package story_test

import (
	"errors"
	"strings"
	"testing"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/test/model"
	"sluice/test/story"
)

// judge checks the versions of a run and its dead letters against the rules of the model. It returns the violations, a
// line each.
func judge(h *story.Harness, versions []model.Version) string {
	history := model.History{Versions: versions}
	if h.Letters != nil {
		for _, l := range h.Letters.All() {
			id := idempotency.TopicID{15: l.TopicID}
			at := model.Partition{Topic: l.Topic, TopicID: id.String(), Number: l.ID}
			history.Letters = append(history.Letters, model.Letter{Partition: at, Offset: l.Offset, Before: int64(l.Before)})
		}
	}
	for _, p := range h.Broker.Partitions(story.Topic) {
		s := model.Source{Partition: inModel(p), Start: model.AtStart, Position: model.AtStart, Records: map[int64]model.Kind{}}
		for offset, kind := range h.Broker.Kinds(story.Topic, p.ID) {
			s.Records[int64(offset)] = map[story.Kind]model.Kind{
				story.Row: model.Row, story.Tombstone: model.Dropped, story.Health: model.Dropped, story.Duplicate: model.Dropped, story.Poison: model.Poison, story.Control: model.Control,
				story.Breaks: model.Poison, story.Unfit: model.Poison,
				// Scenarios with the kinds Was and Becomes do not call judge, so any kind would do for them here.
				story.Was: model.Row, story.Becomes: model.Row,
			}[kind]
		}
		history.Sources = append(history.Sources, s)
	}
	return strings.Join(model.Judge(history), "\n")
}

func inModel(p connector.Partition) model.Partition {
	return model.Partition{Topic: p.Topic, TopicID: p.TopicID.String(), Number: p.ID}
}

// txns returns the positions that a version moves. From is that of the commit's range for the partition, or NotRecorded
// if the commit has no range for it.
func txns(all []connector.Txn, ranges []connector.Range) (moved []model.Txn) {
	for _, x := range all {
		id, err := idempotency.ParseAppID(x.AppID)
		if err != nil || id.TableID != "" {
			continue
		}
		t := model.Txn{Partition: inModel(id.Partition), From: model.NotRecorded, Next: x.Version}
		for _, r := range ranges {
			if r.Topic == id.Partition.Topic && r.Partition == id.Partition.ID {
				t.From = r.From
			}
		}
		moved = append(moved, t)
	}
	return moved
}

// versionsOf returns the in-memory log of the harness as versions of the model.
func versionsOf(h *story.Harness) (versions []model.Version) {
	for n, v := range h.Log.Versions() {
		m := model.Version{Number: int64(n), Table: v.Table, Member: v.Member, Operator: v.Commit.Operation == "forged"}
		m.Txns = txns(v.Commit.Txns, v.Commit.Ranges)
		for _, r := range v.Rows {
			id := idempotency.TopicID{15: r.TopicID}
			m.Rows = append(m.Rows, model.RowAt{Partition: model.Partition{Topic: r.Topic, TopicID: id.String(), Number: r.ID}, Offset: r.Offset})
		}
		versions = append(versions, m)
	}
	return versions
}

// versionsIn returns the Delta log in a store as versions of the model. The log must not have been cleaned up, because
// the model needs every version.
func versionsIn(t *testing.T, h *story.Harness, store objstore.Store) (versions []model.Version) {
	t.Helper()
	info, err := delta.Inspect(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	topicID := h.Broker.Partitions(story.Topic)[0].TopicID.String()
	rows := map[int64][]model.RowAt{}
	lost := map[int64]int{}
	for v, file := range addsByCommit(t, store) {
		for _, f := range file {
			for r, err := range delta.Offsets(t.Context(), store, f) {
				if errors.Is(err, objstore.ErrNotFound) {
					lost[v]++
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				rows[v] = append(rows[v], model.RowAt{Partition: model.Partition{Topic: r.Topic, TopicID: topicID, Number: r.Partition}, Offset: r.Offset})
			}
		}
	}
	for e, err := range delta.History(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		plain := make([]connector.Txn, len(e.Txns))
		for i, x := range e.Txns {
			plain[i] = connector.Txn{AppID: x.AppID, Version: x.Version}
		}
		versions = append(versions, model.Version{
			Number: e.Version, Table: info.ID, Member: e.Engine, Txns: txns(plain, e.Ranges), Rows: rows[e.Version], Unreadable: lost[e.Version],
		})
	}
	return versions
}

// addsByCommit returns the files that each version has added. It reads the commits, because a checkpoint does not say
// which version added a file.
func addsByCommit(t *testing.T, store objstore.Store) map[int64][]deltalog.File {
	t.Helper()
	files := map[int64][]deltalog.File{}
	for c, err := range deltalog.Commits(t.Context(), store, deltalog.KindAdd) {
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Actions {
			if add, ok := a.(deltalog.Add); ok {
				files[c.Version] = append(files[c.Version], deltalog.File{Add: add, Version: c.Version})
			}
		}
	}
	return files
}
