package admin

import (
	"cmp"
	"context"
	"errors"
	"io"

	"sluice/connector"
	"sluice/internal/open"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// checkedTable is a table with its snapshot.
type checkedTable struct {
	*Table
	snapshot *connector.Snapshot
	known    bool // true if the table was read; if not, snapshot is empty
}

// storage runs the self-test of the store, and reports whether later checks can read from the store. They can also read
// from a store that is unsafe for commits. A local directory that does not exist yet counts as an empty store.
func (k *checks) storage(ctx context.Context) (usable bool) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	url := k.config.Storage.URL
	if missingDirectory(url) {
		k.add(StatusWarning, "storage", url, "nothing, if new tables belong there", "the directory does not exist; connector run creates it")
		return true
	}
	store, err := open.Store(ctx, k.config)
	if err != nil {
		k.storageFailed(url, err, "correct storage.url or storage.s3")
		return false
	}
	if c, ok := store.(io.Closer); ok {
		defer func() { _ = c.Close() }() // nothing uses the store any more
	}
	if err := objstore.SelfTest(ctx, store); err != nil {
		k.storageFailed(url, err, "check the log of the store, or of this host if it is a directory")
		return errors.Is(err, objstore.ErrUnsafe)
	}
	k.add(StatusOK, "storage", url, "", "puts if absent are exclusive; can be read, written and listed")
	return true
}

// storageFailed adds a finding about a store that cannot be used. The finding has the hint of the error, or the
// argument otherwise if the error has none.
func (k *checks) storageFailed(url string, err error, otherwise string) {
	text, hint := objstore.Explain(err)
	if errors.Is(err, objstore.ErrUnsafe) {
		k.add(StatusProblem, "storage", url, "use a store with conditional puts; connector run refuses this one", "%s", text)
		return
	}
	k.add(StatusFailed, "storage", url, cmp.Or(hint, otherwise), "%s", text)
}

// storeFailed adds a finding about an error. If the error is one of the store, the finding gets the store's hint.
func (k *checks) storeFailed(area, subject string, err error) {
	text, hint := objstore.Explain(err)
	if hint == "" {
		k.failed(area, subject, err)
		return
	}
	k.add(StatusFailed, area, subject, hint, "%s", text)
}

// tables reads and checks the tables that the topics in names feed. If the store is not usable, it reads none, and adds
// a finding with the status skipped for each. The caller calls end after its last use of the tables.
func (k *checks) tables(ctx context.Context, names []string, usable bool) (tables []*checkedTable, end func()) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	end = cancel
	empty := &connector.Snapshot{Positions: map[string]int64{}}
	var all []*Table
	if usable {
		var err error
		var closeAll func()
		if all, closeAll, err = openAll(ctx, k.config, names); err != nil {
			k.storeFailed("table", k.config.Storage.URL, err)
			return nil, end
		}
		end = func() { closeAll(); cancel() }
	} else {
		for _, name := range names {
			topic, _, _ := k.config.Route(name) // with a usable store, openAll would report this error
			all = append(all, &Table{config: k.config, topics: []string{name}, table: topic, URL: k.config.TableURL(topic)})
			k.add(StatusSkipped, "table", k.config.TableURL(topic), "", "the store cannot be used")
		}
	}
	for _, o := range all {
		t := &checkedTable{Table: o, snapshot: empty}
		tables = append(tables, t)
		if usable {
			k.table(ctx, t)
		}
	}
	return tables, end
}

func (k *checks) table(ctx context.Context, t *checkedTable) {
	snapshot, held, err := t.Table.snapshot(ctx)
	switch {
	case err != nil:
		k.storeFailed("table", t.URL, err)
		return
	case held != nil:
		k.add(StatusProblem, "table", t.URL, instruction(held.EndsBy), "%s: %s", held.Reason, held.Detail)
	case snapshot.TableID == "":
		k.add(StatusOK, "table", t.URL, "", "not there yet")
	default:
		k.columns(t, snapshot)
		k.nullability(t, snapshot)
		k.topicIDs(t, snapshot)
		k.properties(t)
	}
	t.snapshot, t.known = snapshot, true
}

// operations checks that the operations log can be read, and adds a finding for each pause.
func (k *checks) operations(ctx context.Context, usable bool) {
	const area = "operations log"
	if !usable {
		k.add(StatusSkipped, area, k.config.Pipeline, "", "the store cannot be used")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	o, err := openOperations(ctx, k.config, false)
	if err != nil {
		k.storeFailed(area, k.config.Pipeline, err)
		return
	}
	defer o.end()
	state, err := o.State(ctx)
	if broken := (*opslog.BrokenError)(nil); errors.As(err, &broken) {
		k.add(StatusProblem, area, k.config.Pipeline, instruction(hold.OperationsLog.EndsBy()), "%v", broken)
		return
	}
	if err != nil {
		k.storeFailed(area, k.config.Pipeline, err)
		return
	}
	entries := "entries"
	if state.Head().Seq == 1 {
		entries = "entry"
	}
	k.add(StatusOK, area, k.config.Pipeline, "", "%d %s", state.Head().Seq, entries)
	for _, p := range state.Pauses() {
		command := k.config.Pasted(hold.Paused.Command(p.Target.Topic, p.Target.Partition, -1))
		k.add(StatusWarning, area, p.Target.String(), "end the pause: "+command, "paused by %s: %s", p.Operator, p.Reason)
	}
}
