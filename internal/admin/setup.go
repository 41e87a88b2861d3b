package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/connector/schema"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/sink/delta/objstore"
)

// FoundTopic is a topic of a cluster.
type FoundTopic struct {
	Name       string
	Partitions int
	Offsets    int64 // number of offsets between start and end of the log in all partitions; -1 if unknown
}

// FindTopics returns the topics of the cluster that this client may see, sorted by name, without Kafka's internal ones. It
// changes nothing. An error says what is wrong with the connection and what to do.
func FindTopics(ctx context.Context, a *Access, within time.Duration) ([]FoundTopic, error) {
	if err := probeBrokers(ctx, a.Config, within); err != nil {
		return nil, err
	}
	r, end, err := lookup.NewReader(ctx, a.Config, within)
	if err != nil {
		return nil, fail.Dependency(err)
	}
	defer end()
	var topics map[string]connector.Topic
	err = r.Ask(func(ctx context.Context) error {
		group := kafka.NewGroup(r.Client, kafka.GroupConfig{Matches: func(string) bool { return true }}, slog.New(slog.DiscardHandler), nil)
		names, err := group.Topics(ctx)
		if err == nil {
			topics, _, err = r.Client.Topics(ctx, names...)
		}
		return err
	})
	if err != nil {
		return nil, explained("kafka: list the topics", err)
	}
	found := make([]FoundTopic, 0, len(topics))
	for _, t := range topics {
		f := FoundTopic{Name: t.Name, Partitions: len(t.Partitions)}
		for _, p := range t.All() {
			b, err := r.Bounds(p)
			if err != nil {
				f.Offsets = -1
				break
			}
			f.Offsets += b.LastStable - b.LogStart
		}
		found = append(found, f)
	}
	slices.SortFunc(found, func(x, y FoundTopic) int { return cmp.Compare(x.Name, y.Name) })
	return found, nil
}

// probeBrokers returns an error unless at least one of the configured addresses responds as a broker.
func probeBrokers(ctx context.Context, c *config.Config, within time.Duration) error {
	client, err := open.Kafka(c, nil, nil, nil)
	if err != nil {
		return fail.Dependency(err)
	}
	defer client.Close()
	var failures []error
	for _, address := range c.Kafka.Brokers {
		probing, cancel := context.WithTimeout(ctx, within)
		_, err := client.Probe(probing, address)
		cancel()
		if err == nil {
			return nil
		}
		failures = append(failures, explained("broker "+address, err))
	}
	return fail.Join(failures)
}

// explained returns the error of a dependency: what failed, why, and what to do.
func explained(what string, err error) error {
	text, hint := explainError(err)
	if t, h := objstore.Explain(err); hint == "" && h != "" {
		text, hint = t, h
	}
	if hint == "" {
		return fail.Dependency(fmt.Errorf("%s: %s", what, text))
	}
	return fail.Dependency(fmt.Errorf("%s: %s: %s", what, text, hint))
}

// maxFoundTables bounds the folders that [FindTables] looks into.
const maxFoundTables = 200

// FindTables tests the store as a member does at its start, and returns the Delta tables that are folders directly below
// storage.url. more is true if there are more folders than it looked into. The test puts and deletes an object below
// _sluice. An error says what is wrong and what to do.
func FindTables(ctx context.Context, a *Access, within time.Duration) (tables []string, more bool, err error) {
	url := a.Config.Storage.URL
	if missingDirectory(url) { // connector run creates it
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	store, err := open.Store(ctx, a.Config)
	if err != nil {
		return nil, false, explained(url, err)
	}
	if c, ok := store.(io.Closer); ok {
		defer func() { _ = c.Close() }() // nothing uses the store any more
	}
	err = objstore.SelfTest(ctx, store)
	if errors.Is(err, objstore.ErrUnsafe) {
		return nil, false, fail.Refused(fmt.Errorf("%s: %w: use a store with conditional puts; connector run refuses this one", url, err))
	}
	if err == nil {
		tables, more, err = foldersWithLogs(ctx, store)
	}
	if err != nil {
		return nil, false, explained(url, err)
	}
	return tables, more, nil
}

// foldersWithLogs returns the folders directly in a store that have a Delta log. It lists only one key of each folder,
// and looks into maxFoundTables folders.
func foldersWithLogs(ctx context.Context, store objstore.Store) (tables []string, more bool, err error) {
	for after, folders := "", 0; ; folders++ {
		folder, err := firstFolder(ctx, store, after)
		if err != nil || folder == "" {
			return tables, false, err
		}
		if folders == maxFoundTables {
			return tables, true, nil
		}
		for _, err := range store.List(ctx, folder+"/_delta_log/", "") {
			if err != nil {
				return nil, false, err
			}
			tables = append(tables, folder)
			break
		}
		after = folder + "0" // the first key after all that begin with the folder and a slash, which sorts before 0
	}
}

// firstFolder returns the folder of the first key after another one that is in a folder, "" without such a key.
func firstFolder(ctx context.Context, store objstore.Store, after string) (string, error) {
	for info, err := range store.List(ctx, "", after) {
		if err != nil {
			return "", err
		}
		if folder, _, nested := strings.Cut(info.Key, "/"); nested {
			return folder, nil
		}
	}
	return "", nil
}

// Setup has what a new configuration says.
type Setup struct {
	Pipeline string
	Brokers  []string
	Storage  string      // storage.url
	Keys     [][2]string // more keys of the sections kafka and storage, with their texts
	Topics   []*SchemaProposal
}

// Draft returns the configuration: the keys that differ from their defaults, with comments. Without Topics it has only
// what a connection needs; see [config.ParseConnection].
func (s *Setup) Draft() (*config.Draft, error) {
	d := config.NewDraft(setupHead)
	if s.Pipeline != "" {
		d.Set("The name of this pipeline. Never change it while the tables exist: they keep the positions under it.", s.Pipeline, "pipeline")
	}
	if err := d.SetConnection("kafka.brokers", strings.Join(s.Brokers, ",")); err != nil {
		return nil, err
	}
	for _, section := range []string{"kafka.", "storage."} { // the keys of a section together
		if section == "storage." && s.Storage != "" {
			if err := d.SetConnection("storage.url", s.Storage); err != nil {
				return nil, err
			}
		}
		for _, k := range s.Keys {
			if other := strings.HasPrefix(k[0], "storage."); other != (section == "storage.") {
				continue
			}
			if err := d.SetConnection(k[0], k[1]); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range s.Topics {
		d.Set(fmt.Sprintf("The columns, from the newest %s: delete, rename or add some before the first run.", Counting(p.Records, "record")),
			config.Literal(p.Text()), "topics", p.Topic, "schema")
		if raw := p.rawColumns(); len(raw) > 0 {
			d.SetPairs("These fields have values of several kinds. The option raw keeps the JSON text of any value.", raw, "topics", p.Topic, "column_options")
		}
	}
	return d, nil
}

const setupHead = `# Written by connector init. It has only the keys that differ from their defaults, or have none.
# config.yaml in the sources, and docs/configuration.md, explain every key. connector validate checks this file.`

// rawColumns returns the paths of the columns whose values no type holds together, with the option that keeps the text of
// any value.
func (p *SchemaProposal) rawColumns() map[string]string {
	raw := map[string]string{}
	for _, c := range p.Columns {
		if !c.Raw || c.DDL == "" {
			continue
		}
		raw[schema.JoinPath([]string{c.Field})] = "raw"
	}
	return raw
}
