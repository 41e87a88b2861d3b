package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// Table is a table that is open for reading, with the topics that feed it.
type Table struct {
	config *config.Config
	topics []string
	table  config.Topic   // the settings that all its topics share
	store  objstore.Store // nil if the local directory of the table does not exist
	// properties are those that the table has, as of the newest snapshot.
	properties map[string]string
	access     *Access // gets the progress of long reads; nil if there is none

	URL   string
	Later bool // true if the table may be missing because the first dead letter, or the canary, will create it
}

// OpenTables opens the tables of the configuration for reading, or the one that a topic feeds. It creates nothing, not
// even a local directory. The caller calls end after the last use of the tables.
func OpenTables(ctx context.Context, a *Access, topic string) (all []*Table, end func(), err error) {
	names, err := a.topics(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	if all, end, err = openAll(ctx, a.Config, names); err != nil {
		return nil, nil, err
	}
	for _, o := range all {
		o.access = a
	}
	return all, end, nil
}

// passed calls the function Progress of the operator's [Access].
func (o *Table) passed(done, of int64) {
	if o.access != nil {
		o.access.passed(done, of)
	}
}

// openAll opens the tables of topics; see [OpenTables].
func openAll(ctx context.Context, cfg *config.Config, names []string) (all []*Table, end func(), err error) {
	byPath := map[string]*Table{}
	for _, name := range names {
		topic, _, err := cfg.Route(name)
		if err != nil {
			return nil, nil, fail.Usage(fmt.Errorf("topic %s can have no table: %w", name, err))
		}
		o := byPath[topic.Table]
		if o == nil {
			o = &Table{config: cfg, table: topic, URL: cfg.TableURL(topic), Later: true}
			byPath[topic.Table] = o
			all = append(all, o)
		}
		o.topics = append(o.topics, name)
		o.Later = o.Later && cfg.ComesLater(name)
	}
	end = func() {}
	for _, o := range all {
		if u, err := url.Parse(o.URL); err == nil && u.Scheme == "file" {
			if _, err := os.Stat(filepath.FromSlash(u.Path)); errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		store, err := open.Store(ctx, cfg)
		if err != nil {
			return nil, nil, fail.Dependency(err)
		}
		for _, o := range all { // tables whose own directory is missing are also opened; they are empty
			o.store = objstore.Sub(store, o.table.Table)
		}
		if c, ok := store.(io.Closer); ok {
			end = func() { _ = c.Close() } // read only
		}
		break
	}
	return all, end, nil
}

// topics returns the named topic or, for "", all topics: those with an entry, their dead-letter topics, and those that
// match a pattern now, for which it asks Kafka.
func (a *Access) topics(ctx context.Context, topic string) ([]string, error) {
	cfg := a.Config
	if topic != "" {
		if _, meant, _ := cfg.Route(topic); !meant {
			return nil, fail.Usage(fmt.Errorf("--topic %s is not in topics: write one of %s", topic, strings.Join(cfg.Meant(), ", ")))
		}
		return []string{topic}, nil
	}
	listed := slices.Sorted(slices.Values(slices.Concat(cfg.TopicNames(), cfg.LaterTopics())))
	if len(cfg.Patterns) == 0 {
		return listed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listing)
	defer cancel()
	queries, err := newKafkaQueries(ctx, cfg)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer queries.close()
	var names []string
	err = queries.retry(func(ctx context.Context) (err error) { names, err = queries.group.Topics(ctx); return err })
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: which topics match (name one with --topic to do without): %w", err))
	}
	names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, listed))))
	if len(names) == 0 {
		return nil, fail.Found(errors.New("no topic matches a pattern now"))
	}
	return names, nil
}

// listing is the time limit of the request for the topics that match a pattern.
const listing = 15 * time.Second

// Absent says what creates the table, which does not exist yet. It is "" for a table that should exist.
func (o *Table) Absent() string {
	if _, canary := o.config.Canary(o.topics[0]); canary {
		return "the canary of a running member creates it: start a member, or see canary in /health if one runs"
	}
	if o.Later {
		return "the first dead letter creates it"
	}
	return ""
}

// Failed adds to an error of reading the table its kind and the URL of the table, unless it has a kind already.
func (o *Table) Failed(err error) error {
	if fail.Of(err) != 0 {
		return err
	}
	if errors.Is(err, deltalog.ErrNoTable) {
		err := fmt.Errorf("there is no table at %s", o.URL)
		if absent := o.Absent(); absent != "" {
			err = fmt.Errorf("%w: %s", err, absent)
		}
		return fail.Found(err)
	}
	if errors.Is(err, deltalog.ErrCorrupt) {
		return fail.Found(fmt.Errorf("table %s: %w", o.URL, err))
	}
	return fail.Dependency(fmt.Errorf("table %s: %w", o.URL, err))
}

// Inspection describes a table from its log.
type Inspection struct {
	URL              string            `json:"url"`
	ID               string            `json:"id"`
	Name             string            `json:"name,omitempty"`
	Created          *time.Time        `json:"created,omitempty"`
	Version          int64             `json:"version"`
	Checkpoint       int64             `json:"checkpoint"` // the version of the newest checkpoint; -1 if there is none
	Reader           int32             `json:"min_reader_version"`
	Writer           int32             `json:"min_writer_version"`
	Features         []string          `json:"features,omitempty"`
	Files            int64             `json:"files"`
	Bytes            int64             `json:"bytes"`
	Rows             int64             `json:"rows"`
	FilesWithoutRows int64             `json:"files_without_row_count,omitempty"`
	Schema           string            `json:"schema"` // the schema as DDL
	Columns          []string          `json:"-"`      // the DDL of each column, which Schema has in one text
	Renamed          []schema.Renamed  `json:"renamed,omitempty"`
	PartitionColumns []string          `json:"partition_columns,omitempty"`
	Properties       map[string]string `json:"properties,omitempty"`
	Positions        []TablePosition   `json:"positions"`
	// Ignored has the record fields without a column, from the commits since version IgnoredSince.
	Ignored      []connector.IgnoredFields `json:"ignored_fields,omitempty"`
	IgnoredSince int64                     `json:"ignored_fields_since"`
	Refusal      string                    `json:"refusal,omitempty"` // why this version of Sluice must not write the table; "" if it may
}

// TablePosition is one txn of the table. A txn of another program has only an app id and a version.
type TablePosition struct {
	AppID     string `json:"app_id"`
	Pipeline  string `json:"pipeline,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Version   int64  `json:"version"` // the next offset to read, for a partition
	// LeaderEpoch is the leader epoch of the last record batch before the position: -1 if unknown, nil if the table has
	// none.
	LeaderEpoch *int64 `json:"leader_epoch,omitempty"`
}

// Inspect reads the log of a table. The error is [deltalog.ErrNoTable] if the table does not exist.
func Inspect(ctx context.Context, o *Table) (*Inspection, error) {
	if o.store == nil {
		return nil, deltalog.ErrNoTable
	}
	info, err := delta.Inspect(ctx, o.store)
	if err != nil {
		return nil, err
	}
	i := &Inspection{
		URL: o.URL, ID: info.ID, Name: info.Name, Version: info.Version, Checkpoint: info.Checkpoint,
		Reader: info.Protocol.MinReaderVersion, Writer: info.Protocol.MinWriterVersion,
		Files: info.Files, Bytes: info.Bytes, Rows: info.Rows, FilesWithoutRows: info.FilesWithoutRows,
		PartitionColumns: info.PartitionColumns, Properties: info.Properties, Positions: []TablePosition{},
	}
	if i.Ignored, i.IgnoredSince, err = delta.IgnoredFields(ctx, o.store, info.Version); err != nil {
		return nil, err
	}
	i.Features = slices.Compact(slices.Sorted(slices.Values(slices.Concat(info.Protocol.ReaderFeatures, info.Protocol.WriterFeatures))))
	if !info.Created.IsZero() {
		i.Created = &info.Created
	}
	if info.Schema != nil {
		i.Schema, i.Renamed = info.Schema.DDL(), info.Schema.Renamed()
		for _, column := range info.Schema.Fields() {
			i.Columns = append(i.Columns, column.DDL())
		}
	}
	if info.Refusal != nil {
		i.Refusal = info.Refusal.Error()
	}
	for _, t := range info.Txns {
		if _, beside := idempotency.EpochOf(t.AppID); beside {
			continue // these txns are shown with the position
		}
		p := TablePosition{AppID: t.AppID, Version: t.Version}
		if id, err := idempotency.ParseAppID(t.AppID); err == nil {
			p.Pipeline = id.Pipeline
			if id.TableID == "" {
				p.Topic, p.Partition = id.Partition.Topic, &id.Partition.ID
				if epoch, kept := info.Positions[id.Partition.EpochAppID(id.Pipeline)]; kept {
					p.LeaderEpoch = &epoch
				}
			}
		}
		i.Positions = append(i.Positions, p)
	}
	return i, nil
}
