package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// opened is the table that a command reads.
type opened struct {
	config *Config
	topic  string
	table  TopicConfig
	url    string
	store  objstore.Store // nil if there is no place that could hold a table
}

// openTable opens the table of the configuration for reading. It makes nothing: a local directory that does not exist
// is no store. The caller closes it.
func (c *cli) openTable(ctx context.Context) (*opened, error) {
	config, err := c.load()
	if err != nil {
		return nil, err
	}
	o := &opened{config: config}
	o.topic, o.table = config.Topic()
	o.url = config.TableURL(o.table)
	if u, err := url.Parse(o.url); err == nil && u.Scheme == "file" {
		if _, err := os.Stat(filepath.FromSlash(u.Path)); errors.Is(err, fs.ErrNotExist) {
			return o, nil
		}
	}
	if o.store, err = openStore(ctx, config, o.table); err != nil {
		return nil, exitError{exitDependency, err}
	}
	return o, nil
}

func (o *opened) close() {
	if c, ok := o.store.(io.Closer); ok {
		_ = c.Close() // it was only read
	}
}

// failed is the error of a command that could not read the table.
func (o *opened) failed(err error) error {
	if errors.Is(err, deltalog.ErrNoTable) {
		return exitError{exitFound, fmt.Errorf("there is no table at %s", o.url)}
	}
	if errors.Is(err, deltalog.ErrCorrupt) {
		return exitError{exitFound, fmt.Errorf("table %s: %w", o.url, err)}
	}
	return exitError{exitDependency, fmt.Errorf("table %s: %w", o.url, err)}
}

func (c *cli) tableCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Look at the table",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	inspect := &cobra.Command{
		Use:   "inspect",
		Short: "Show version, files, schema and positions of the table",
		Long: `Reads the log of the configured table and shows its newest version, what it
holds, its schema, and the position of each partition. Exit code 1 if there is
no table, or if this version must not write it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := c.openTable(cmd.Context())
			if err != nil {
				return err
			}
			defer o.close()
			return c.inspect(cmd.Context(), o)
		},
	}
	c.configFlag(inspect)
	c.outputFlag(inspect)
	cmd.AddCommand(inspect)
	return cmd
}

// inspection is what table inspect prints.
type inspection struct {
	URL              string            `json:"url"`
	ID               string            `json:"id"`
	Name             string            `json:"name,omitempty"`
	Created          *time.Time        `json:"created,omitempty"`
	Version          int64             `json:"version"`
	Checkpoint       int64             `json:"checkpoint"` // -1 if there is none
	Reader           int32             `json:"min_reader_version"`
	Writer           int32             `json:"min_writer_version"`
	Features         []string          `json:"features,omitempty"`
	Files            int64             `json:"files"`
	Bytes            int64             `json:"bytes"`
	Rows             int64             `json:"rows"`
	FilesWithoutRows int64             `json:"files_without_row_count,omitempty"`
	Schema           string            `json:"schema"` // DDL
	PartitionColumns []string          `json:"partition_columns,omitempty"`
	Properties       map[string]string `json:"properties,omitempty"`
	Positions        []tablePosition   `json:"positions"`
	Refusal          string            `json:"refusal,omitempty"` // why this version must not write it
}

// tablePosition is one txn of the table. Other programs' have only an app id and a version.
type tablePosition struct {
	AppID     string `json:"app_id"`
	Pipeline  string `json:"pipeline,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Version   int64  `json:"version"` // the next offset to read, for a partition
}

func (c *cli) inspect(ctx context.Context, o *opened) error {
	if o.store == nil {
		return o.failed(deltalog.ErrNoTable)
	}
	info, err := delta.Inspect(ctx, o.store)
	if err != nil {
		return o.failed(err)
	}
	i := inspection{
		URL: o.url, ID: info.ID, Name: info.Name, Version: info.Version, Checkpoint: info.Checkpoint,
		Reader: info.Protocol.MinReaderVersion, Writer: info.Protocol.MinWriterVersion,
		Files: info.Files, Bytes: info.Bytes, Rows: info.Rows, FilesWithoutRows: info.FilesWithoutRows,
		PartitionColumns: info.PartitionColumns, Properties: info.Properties, Positions: []tablePosition{},
	}
	i.Features = slices.Compact(slices.Sorted(slices.Values(slices.Concat(info.Protocol.ReaderFeatures, info.Protocol.WriterFeatures))))
	if !info.Created.IsZero() {
		i.Created = &info.Created
	}
	if info.Schema != nil {
		i.Schema = info.Schema.DDL()
	}
	if info.Refusal != nil {
		i.Refusal = info.Refusal.Error()
	}
	for _, t := range info.Txns {
		p := tablePosition{AppID: t.AppID, Version: t.Version}
		if id, err := idempotency.ParseAppID(t.AppID); err == nil {
			p.Pipeline = id.Pipeline
			if id.TableID == "" {
				p.Topic, p.Partition = id.Partition.Topic, &id.Partition.ID
			}
		}
		i.Positions = append(i.Positions, p)
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, i)
	} else {
		err = i.print(c.stdout)
	}
	if err == nil && i.Refusal != "" {
		err = exit(exitFound)
	}
	return err
}

func (i *inspection) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(tw, name+"\t"+format+"\n", args...) } // Flush has the error
	row("table", "%s", i.URL)
	row("id", "%s", i.ID)
	if i.Created != nil {
		row("created", "%s", i.Created.Format(time.RFC3339))
	}
	checkpoint := "no checkpoint"
	if i.Checkpoint >= 0 {
		checkpoint = "checkpoint at " + strconv.FormatInt(i.Checkpoint, 10)
	}
	row("version", "%d, %s", i.Version, checkpoint)
	protocol := fmt.Sprintf("reader %d, writer %d", i.Reader, i.Writer)
	if len(i.Features) > 0 {
		protocol += ", features " + strings.Join(i.Features, ", ")
	}
	row("protocol", "%s", protocol)
	row("files", "%d, %d bytes", i.Files, i.Bytes)
	rows := strconv.FormatInt(i.Rows, 10)
	if i.FilesWithoutRows > 0 {
		rows += fmt.Sprintf(" and those of %d files that do not say how many they have", i.FilesWithoutRows)
	}
	row("rows", "%s", rows)
	row("schema", "%s", i.Schema)
	if len(i.PartitionColumns) > 0 {
		row("partitioned by", "%s", strings.Join(i.PartitionColumns, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(i.Properties)) {
		row("property", "%s = %s", name, i.Properties[name])
	}
	for _, p := range i.Positions {
		switch {
		case p.Partition != nil:
			row("position", "%s-%d next offset %d (pipeline %s)", p.Topic, *p.Partition, p.Version, p.Pipeline)
		case p.Pipeline != "":
			row("started by", "pipeline %s", p.Pipeline)
		default:
			row("txn", "%s version %d", p.AppID, p.Version)
		}
	}
	if i.Refusal != "" {
		row("not writable", "%s", i.Refusal)
	}
	return tw.Flush()
}
