package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

// setup is one run of the command init.
type setup struct {
	admin.Setup
	topics  []string // flag --topic
	set     []string // flag --set
	file    string   // flag --output
	force   bool
	records int
	within  time.Duration
}

func (c *cli) initCommand() *cobra.Command {
	o := &setup{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a configuration for topics of a cluster",
		Long: `Connects to a broker and to a store, reads the newest records of topics, and
writes a configuration with their columns and a comment for each key. On a
terminal it shows what is there, and asks for what no flag says; elsewhere
--broker, --storage and --topic are needed.

It joins no group and commits no offsets. It puts and deletes a small object
below _sluice/selftest/, to test the store. It does not overwrite a file, unless
--force is given, and writes none if something fails.

--set takes the keys of the sections kafka and storage. A secret must be a
variable, or a file: --set 'kafka.sasl.password=${KAFKA_PASSWORD}' or --set
kafka.sasl.password_file=password. The file never has the secret itself. Keys of
S3 come from the default chain of AWS, such as AWS_ACCESS_KEY_ID, if none is set.`,
		Example: `  connector init
  connector init --broker kafka-1:9092 --storage s3://lake/tables --topic orders
  connector init --broker 127.0.0.1:9092 --storage s3://lake/tables --topic orders \
    --set storage.s3.endpoint=http://127.0.0.1:9000 --set storage.s3.region=us-east-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.init(cmd.Context(), o) },
	}
	cmd.Flags().StringSliceVar(&o.Brokers, "broker", nil, "a broker, host:port; several with commas")
	cmd.Flags().StringVar(&o.Storage, "storage", "", "the folder of the tables: s3://bucket/prefix or file:///dir")
	cmd.Flags().StringSliceVar(&o.topics, "topic", nil, "a topic; several with commas")
	cmd.Flags().StringVar(&o.Pipeline, "pipeline", "", "the name of the pipeline (default the topic, or the folder if there are several)")
	cmd.Flags().StringArrayVar(&o.set, "set", nil, "another key of kafka or storage, KEY=VALUE; may be repeated")
	cmd.Flags().StringVarP(&o.file, "output", "o", config.DefaultFile, "the file to write")
	cmd.Flags().BoolVar(&o.force, "force", false, "overwrite the file")
	cmd.Flags().IntVar(&o.records, "records", 1000, "how many of the newest records of each topic to read")
	cmd.Flags().DurationVar(&o.within, "timeout", 15*time.Second, "how long each request may take")
	return cmd
}

// init finds out what the flags do not say, and writes the file.
func (c *cli) init(ctx context.Context, o *setup) error {
	if err := o.check(c.terminal()); err != nil {
		return err
	}
	found, err := c.initBrokers(ctx, o)
	if err != nil {
		return err
	}
	tables, err := c.initStore(ctx, o)
	if err != nil {
		return err
	}
	if err := c.initTopics(ctx, o, found); err != nil {
		return err
	}
	if err := c.initPipeline(ctx, o); err != nil {
		return err
	}
	if err := c.initSchemas(ctx, o); err != nil {
		return err
	}
	cfg, err := c.writeDraft(o)
	if err != nil {
		return err
	}
	return c.sayNext(o, cfg, tables)
}

// check checks the flags before anything connects. asks is true if a person can answer questions.
func (o *setup) check(asks bool) error {
	if slices.Contains([]string{outputTable, outputWide, outputJSON}, o.file) {
		return fail.Usage(fmt.Errorf("--output %s: here it names the file to write", o.file))
	}
	if o.records < 1 || o.records > maxProposalRecords {
		return fail.Usage(fmt.Errorf("--records %d: write a number from 1 to %d", o.records, maxProposalRecords))
	}
	for _, text := range o.set {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fail.Usage(fmt.Errorf("--set %q: write KEY=VALUE, such as kafka.tls.enabled=true", text))
		}
		o.Keys = append(o.Keys, [2]string{key, value})
	}
	if !asks {
		var missing []string
		for flag, given := range map[string]bool{"--broker": len(o.Brokers) > 0, "--storage": o.Storage != "", "--topic": len(o.topics) > 0} {
			if !given {
				missing = append(missing, flag)
			}
		}
		slices.Sort(missing)
		if len(missing) > 0 && !slices.Equal(missing, []string{"--topic"}) { // without --topic an error can name the topics
			return fail.Usage(fmt.Errorf("there is no terminal for questions: write %s, too", strings.Join(missing, " and ")))
		}
	}
	if _, err := os.Lstat(o.file); !o.force && !errors.Is(err, fs.ErrNotExist) {
		return fail.Refused(fmt.Errorf("%s exists: name another file with --output, or overwrite it with --force", o.file))
	}
	return nil
}

// connection returns the configuration of the connections, as far as o has it. Problems are named by key.
func (c *cli) connection(o *setup) (*admin.Access, error) {
	s := o.Setup
	s.Topics = nil
	s.Pipeline = "init"
	if s.Storage == "" {
		s.Storage = "file:///unknown" // the caller does not open it
	}
	d, err := s.Draft()
	if err != nil {
		return nil, fail.Usage(err)
	}
	text, err := d.Text()
	if err != nil {
		return nil, err
	}
	cfg, problems := config.ParseConnection(o.file, text, c.env)
	if err := problemsOf(problems); err != nil {
		return nil, err
	}
	return &admin.Access{Config: cfg, Version: readBuild().Version}, nil
}

// problemsOf returns the problems of a draft as an error, nil if all are warnings.
func problemsOf(problems []config.Problem) error {
	var all []error
	for _, p := range problems {
		if !p.Warning {
			all = append(all, errors.New(p.What()))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fail.Usage(errors.Join(all...))
}

// initBrokers finds the topics of the cluster. On a terminal it asks for the brokers until they respond; after a failure
// it also asks for TLS and SASL.
func (c *cli) initBrokers(ctx context.Context, o *setup) ([]admin.FoundTopic, error) {
	asked := len(o.Brokers) == 0
	given := slices.Clone(o.Keys)
	for try := 0; ; try++ {
		if asked {
			otherwise := "127.0.0.1:9092"
			if try > 0 {
				otherwise = strings.Join(o.Brokers, ",")
			}
			text, err := c.ask(ctx, "Kafka broker, host:port", otherwise)
			if err != nil {
				return nil, err
			}
			o.Brokers, o.Keys = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), slices.Clone(given)
			if try > 0 {
				if err := c.askKafkaSecurity(ctx, o); err != nil {
					return nil, err
				}
			}
		}
		a, err := c.connection(o)
		var found []admin.FoundTopic
		if err == nil {
			end := c.watch(a, "connecting to Kafka")
			found, err = admin.FindTopics(ctx, a, o.within)
			end()
		}
		if err == nil {
			return found, c.sayTopics(found)
		}
		if err := c.askAgain(asked, err); err != nil {
			return nil, err
		}
	}
}

// initStore tests the store and returns its tables. On a terminal it asks for the store until it can be used.
func (c *cli) initStore(ctx context.Context, o *setup) ([]string, error) {
	asked := o.Storage == ""
	given := slices.Clone(o.Keys)
	for try := 0; ; try++ {
		if asked {
			if err := c.askStore(ctx, o, given); err != nil {
				return nil, err
			}
		}
		o.addPathStyle()
		a, err := c.connection(o)
		var tables []string
		more := false
		if err == nil {
			end := c.watch(a, "testing the store")
			tables, more, err = admin.FindTables(ctx, a, o.within)
			end()
		}
		if err == nil {
			text := "no table yet"
			if len(tables) > 0 {
				text = admin.Counting(int64(len(tables)), "table") + ": " + strings.Join(tables, ", ")
			}
			if more {
				text += ", and folders that were not looked into"
			}
			_, err = terminal.Printf(c.stdout, "%s: can be used; %s\n", o.Storage, text)
			return tables, err
		}
		if err := c.askAgain(asked, err); err != nil {
			return nil, err
		}
	}
}

// sayTopics prints the topics of the cluster.
func (c *cli) sayTopics(found []admin.FoundTopic) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(c.stdout, "the cluster has no topic that this user may see")
		return err
	}
	return printList(c.stdout, false, found,
		column[admin.FoundTopic]{title: "TOPIC", cell: func(t admin.FoundTopic) string { return t.Name }},
		column[admin.FoundTopic]{title: "PARTITIONS", cell: func(t admin.FoundTopic) string { return strconv.Itoa(t.Partitions) }},
		column[admin.FoundTopic]{title: "OFFSETS", cell: func(t admin.FoundTopic) string {
			if t.Offsets < 0 {
				return "-"
			}
			return strconv.FormatInt(t.Offsets, 10)
		}})
}

// initTopics asks which topics to move, if no flag names them.
func (c *cli) initTopics(ctx context.Context, o *setup, found []admin.FoundTopic) error {
	names := make([]string, len(found))
	for i, t := range found {
		names[i] = t.Name
	}
	for asked := len(o.topics) == 0; ; {
		if asked && !c.terminal() {
			return fail.Usage(fmt.Errorf("name the topics with --topic: the cluster has %s", someOf(names)))
		}
		if asked {
			otherwise := ""
			if len(names) == 1 {
				otherwise = names[0]
			}
			text, err := c.ask(ctx, "Topics, with commas", otherwise)
			if err != nil {
				return err
			}
			o.topics = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		}
		slices.Sort(o.topics)
		o.topics = slices.Compact(o.topics)
		missing := slices.DeleteFunc(slices.Clone(o.topics), func(name string) bool { return slices.Contains(names, name) })
		if len(missing) == 0 && len(o.topics) > 0 {
			return nil
		}
		err := fail.Found(fmt.Errorf("the cluster has no topic %s; it has %s", strings.Join(missing, ", "), someOf(names)))
		if err := c.askAgain(asked, err); err != nil {
			return err
		}
	}
}

// someOf lists names, and counts those beyond the first 20.
func someOf(names []string) string {
	const shown = 20
	switch {
	case len(names) == 0:
		return "none that this user may see"
	case len(names) <= shown:
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// initPipeline names the pipeline: after the topic, or after the folder of the file if there are several topics.
func (c *cli) initPipeline(ctx context.Context, o *setup) (err error) {
	if o.Pipeline != "" {
		return nil
	}
	name := o.topics[0]
	if len(o.topics) > 1 {
		if file, err := filepath.Abs(o.file); err == nil {
			name = strings.Map(func(r rune) rune {
				if r < 128 && config.Plain.MatchString(string(r)) && !strings.ContainsRune("/:@%+,=", r) {
					return r
				}
				return '-'
			}, filepath.Base(filepath.Dir(file)))
		}
	}
	if !c.terminal() {
		o.Pipeline = name
		return nil
	}
	o.Pipeline, err = c.ask(ctx, "Name of the pipeline", name)
	return err
}

// initSchemas reads records of each topic and derives its columns.
func (c *cli) initSchemas(ctx context.Context, o *setup) error {
	a, err := c.connection(o)
	if err != nil {
		return err
	}
	for _, topic := range o.topics {
		end := c.watch(a, "reading "+topic)
		p, err := admin.ProposeSchema(ctx, a, admin.SchemaQuery{Topic: topic, Records: o.records, Within: o.within})
		end()
		if err != nil {
			return err
		}
		columns, conflicts := 0, 0
		for _, f := range p.Columns {
			if f.DDL != "" {
				columns++
			}
			conflicts += len(f.Conflicts)
		}
		if columns == 0 {
			return fail.Found(fmt.Errorf("nothing was written: topic %s has no record from which columns can be derived: produce one, or leave the topic out", topic))
		}
		if _, err := terminal.Printf(c.stdout, "%s: %s from %s\n", topic, admin.Counting(int64(columns), "column"), admin.Counting(p.Records, "record")); err != nil {
			return err
		}
		if conflicts > 0 {
			if _, err := terminal.Printf(c.stderr, "%s: %s of several kinds: look for CONFLICT in the file\n", topic, admin.Counting(int64(conflicts), "place")); err != nil {
				return err
			}
		}
		o.Topics = append(o.Topics, p)
	}
	return nil
}

// writeDraft checks the configuration as connector validate does, and writes it.
func (c *cli) writeDraft(o *setup) (*config.Config, error) {
	d, err := o.Draft()
	if err != nil {
		return nil, fail.Usage(err)
	}
	text, err := d.Text()
	if err != nil {
		return nil, err
	}
	cfg, problems := config.Parse(o.file, text, c.env)
	if err := problemsOf(problems); err != nil {
		return nil, err
	}
	for _, p := range problems { // they are warnings
		if _, err := terminal.Printf(c.stderr, "%s\n", p); err != nil {
			return nil, err
		}
	}
	if err := o.write(text); err != nil {
		return nil, fail.Dependency(fmt.Errorf("write the configuration: %w", err))
	}
	return cfg, nil
}

// write writes the file as a whole. Without --force it fails if the file exists.
func (o *setup) write(text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(o.file), ".connector-init-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreMissing(os.Remove(f.Name()))) }()
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil { // it has no secrets
		return err
	}
	if o.force {
		return os.Rename(f.Name(), o.file)
	}
	return os.Link(f.Name(), o.file) // fails if another program has written the file meanwhile
}

// ignoreMissing returns nil if err says that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sayNext prints what was written and what to do next.
func (c *cli) sayNext(o *setup, cfg *config.Config, tables []string) error {
	var b strings.Builder
	_, _ = terminal.Printf(&b, "wrote %s\n", o.file)
	for _, topic := range o.topics {
		if slices.Contains(tables, topic) {
			_, _ = terminal.Printf(&b, "%s has a table already: %s\n", topic, cfg.Pasted("connector table schema diff --topic "+topic))
		}
	}
	b.WriteString("\nNext: read the file, then\n\n")
	for _, command := range []string{"connector validate", "connector check", "connector run"} {
		_, _ = terminal.Printf(&b, "  %s\n", cfg.Pasted(command))
	}
	_, err := c.stdout.Write([]byte(b.String()))
	return err
}
