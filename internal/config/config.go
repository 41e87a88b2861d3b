// Package config loads config.yaml and the environment, checks them, fills in defaults, and prints the configuration in
// force. It opens no connections.
package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/health"
	"sluice/reliability"
)

// Config is the content of config.yaml: one field for each section, with the same name. The shipped config.yaml
// documents every key.
type Config struct {
	Pipeline string
	Log      Log
	Memory   Memory
	TempDir  string // the directory for temporary files; "" for that of the system
	Kafka    Kafka
	Storage  Storage
	Queue    Queue
	Retry    Retry
	Breaker  Breaker
	// Fingerprints configures where the fingerprints of all topics with an identity are stored.
	Fingerprints Fingerprints
	// Defaults has the values that a topic inherits if it does not set them.
	Defaults Topic
	// Topics has the complete topics by name: values from Defaults are filled in, and so is {topic} in Table.
	Topics map[string]Topic
	// Patterns are the entries of topics that have a pattern, in the order of the file.
	Patterns []*Pattern
	Health   Health
	Members  Members
	Ops      Ops
	Shutdown Shutdown

	file    string // the file that was read; "" if there was none
	origins map[string]Origin
	Budget  Budget // the division of memory.limit
}

// Log is the section log.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // auto, json or text
}

// Memory is the section memory.
type Memory struct {
	Limit int64 // the limit of the process, in bytes; 0 for auto
}

// Kafka is the section kafka.
type Kafka struct {
	Brokers              []string // host:port
	Group                string   // by default the name of the pipeline
	Rack                 string
	Session              time.Duration
	OffsetCommitInterval time.Duration
	Fetch                Fetch
	TLS                  TLS
	SASL                 SASL
}

// Fetch is the section kafka.fetch.
type Fetch struct {
	MaxBytes int64 // the largest size of one fetch response
	MaxWait  time.Duration
}

// Storage is the section storage.
type Storage struct {
	URL string // s3://bucket/prefix or file:///dir
	S3  S3
}

// S3 is the section storage.s3. Without keys, members use the default credential chain of AWS.
type S3 struct {
	Endpoint      string // "" for AWS
	Region        string // "" for the region of the default chain
	PathStyle     bool
	AccessKey     Secret
	AccessKeyFile string // read again for each refresh of the credentials
	SecretKey     Secret
	SecretKeyFile string
	Timeout       time.Duration // how long a request may make no progress
	CAFile        string        // a file with CA certificates; read at the start
	// InsecurePlaintext allows an endpoint without TLS.
	InsecurePlaintext bool
}

// Queue is the section queue. The unit is records.
type Queue struct {
	PauseAt  int
	ResumeAt int
	PerKey   int
}

// Retry is the section retry.
type Retry struct {
	Initial time.Duration
	Max     time.Duration
	Jitter  float64 // share of the pause: 0.25 is 25%
}

// Breaker is the section breaker.
type Breaker struct {
	Failures  int
	OpenFor   time.Duration
	Successes int
}

// Topic is the section defaults, and an entry of topics.
type Topic struct {
	Table           string // path of the table below storage.url
	Format          string
	Start           string // earliest, latest, timestamp or explicit
	StartAt         StartAt
	Schema          string // DDL text, as written or read from SchemaFile
	SchemaFile      string // the file from which Schema comes; "" if it is in config.yaml
	ColumnOptions   decode.ColumnOptions
	UnknownFields   string // as written: see Unknown
	NewColumns      schema.NewColumns
	Tombstones      string
	Keys            string
	MetadataColumns []string
	TableComment    string
	TableProperties map[string]string
	Commit          Commit
	RecordRetry     RecordRetry
	BadRecords      string
	DeadLetters     DeadLetters
	HealthRecords   HealthRecords
	Identity        Identity
	PartitionBy     []string // expressions that schema.ParseExpression reads
	Statistics      Statistics
	Lag             health.LagThresholds
}

// Commit is the section commit of a topic: the limits at which a batch is sealed.
type Commit struct {
	Every    time.Duration
	Rows     int64
	Bytes    int64 // bytes of column buffers in memory
	FileSize int64 // target size of Parquet files
}

// HealthRecords is the section health_records of a topic.
type HealthRecords struct {
	Drop       bool
	SecretFile string // read again when it changes; "" if no secret is required
}

// RecordRetry is the section record_retry of a topic.
type RecordRetry struct {
	Max      int
	Wait     time.Duration
	Backoff  string // exponential, linear or schedule
	Schedule []time.Duration
}

// Health is the section health.
type Health struct {
	Enabled bool // if false, there is neither a health server nor a lag watch
	Listen  string
	// LivenessFile is the file that a live process touches again and again; "" for none. See package liveness.
	LivenessFile string
	Lag          Lag
	Canary       Canary
}

// Shutdown is the section shutdown.
type Shutdown struct {
	Drain time.Duration
}

// Secret is a text that formatting and encoding hide. Convert it to string to use it.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the secret from JSON and log lines.
func (s Secret) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// Default returns the default configuration. Keys without a default (pipeline, kafka.brokers, storage.url, topics,
// schema) are empty.
func Default() *Config {
	return &Config{
		Log: Log{Level: "info", Format: "auto"},
		Kafka: Kafka{
			Session: 30 * time.Second, OffsetCommitInterval: 10 * time.Second,
			Fetch: Fetch{MaxBytes: 8 << 20, MaxWait: 500 * time.Millisecond},
			SASL:  SASL{Mechanism: "none"},
		},
		Storage:      Storage{S3: S3{Timeout: 30 * time.Second}},
		Queue:        Queue{PauseAt: 10_000, ResumeAt: 5_000, PerKey: 1_000},
		Retry:        Retry{Initial: time.Second, Max: 30 * time.Second, Jitter: 0.25},
		Fingerprints: Fingerprints{Store: "memory"},
		Breaker:      Breaker{Failures: 5, OpenFor: 60 * time.Second, Successes: 3},
		Defaults: Topic{
			Table: "{topic}", Format: decode.FormatJSON, Start: "earliest", UnknownFields: unknownAuto, NewColumns: schema.NewColumns{PerCommit: 100, PerHour: 500}, Tombstones: "skip", Keys: "any",
			MetadataColumns: append(slices.Clone(metadataColumns[:]), topicIDColumn), TableProperties: map[string]string{}, BadRecords: "dead_letter", DeadLetters: defaultDeadLetters(),
			HealthRecords: HealthRecords{Drop: true}, Identity: defaultIdentity(),
			Commit:      Commit{Every: 60 * time.Second, Rows: 1_000_000, Bytes: 128 << 20, FileSize: 128 << 20},
			RecordRetry: RecordRetry{Max: 3, Wait: time.Second, Backoff: string(reliability.Exponential)},
		},
		Topics:   map[string]Topic{},
		Health:   Health{Enabled: true, Listen: ":8080", Lag: DefaultLag(), Canary: Canary{Every: 60 * time.Second}},
		Members:  defaultMembers(),
		Ops:      Ops{Listen: defaultOpsListen},
		Shutdown: Shutdown{Drain: 20 * time.Second},
		origins:  map[string]Origin{},
		Budget:   defaultBudget(),
	}
}

// Guard returns the settings for all guards: retries and circuit breaker.
func (c *Config) Guard() reliability.Config {
	return reliability.Config{
		Backoff:   reliability.Backoff{Initial: c.Retry.Initial, Max: c.Retry.Max, Jitter: c.Retry.Jitter},
		Failures:  uint32(c.Breaker.Failures), //nolint:gosec // the loader bounds it
		OpenFor:   c.Breaker.OpenFor,
		Successes: uint32(c.Breaker.Successes), //nolint:gosec // the loader bounds it
	}
}

// TableURL returns the URL of a topic's table.
func (c *Config) TableURL(t Topic) string {
	return strings.TrimSuffix(c.Storage.URL, "/") + "/" + t.Table
}

// Refusals returns which records of a topic its settings refuse, and what becomes of its tombstones.
func (t *Topic) Refusals() connector.Refusals {
	r := connector.Refusals{NullKeys: t.Keys == "required"}
	switch {
	case t.Tombstones == tombstonesRow, t.IsLetters(): // the record of a dead letter may have been a tombstone
		r.Tombstones = connector.TombstoneRows
	case t.Tombstones == "dead_letter":
		r.Tombstones = connector.TombstonesRefused
	}
	return r
}

// Decoder returns the decoder for the format of the topic. It reuses column buffers from spare, or allocates each if
// spare is nil.
func (t *Topic) Decoder(spare decode.Spare) connector.Decoder {
	o := decode.Options{Columns: t.ColumnOptions, Identity: t.ProducerIdentity(), Spare: spare}
	switch t.Unknown() {
	case unknownDeadLetter:
		o.Strict = true
	case unknownRescue:
		o.Rescue = true
	case unknownAdd:
		o.NewColumns = &t.NewColumns
	}
	if declared, err := t.declared(); err == nil { // the loader has checked it
		o.Declared = declared
	}
	formats := decode.Formats()
	i := max(slices.IndexFunc(formats, func(f decode.Format) bool { return f.Name == t.Format }), 0) // the format exists, because the loader accepts only these names
	return formats[i].New(o)
}

// formatNames returns the values of the key format.
func formatNames() (names []string) {
	for _, f := range decode.Formats() {
		names = append(names, f.Name)
	}
	return names
}

// laterFormats returns the names of formats that only a later version will read.
func laterFormats() []string {
	return slices.DeleteFunc([]string{"avro", "protobuf", "raw", "string", "csv"}, func(name string) bool {
		return slices.Contains(formatNames(), name)
	})
}

// key is one key of config.yaml with its value in a Config.
type key struct {
	path string // the path with dots, without the prefix of its scope
	value
	// missing is the hint for a missing key; "" if the key is optional.
	missing string
}

// keys returns all keys outside of defaults and topics, in the order of the file.
func (c *Config) keys() []key {
	k, s3 := &c.Kafka, &c.Storage.S3
	return slices.Concat([]key{
		{"pipeline", text(&c.Pipeline, pipelineName), "write the name of this pipeline, such as orders"},
		{"log.level", choice(&c.Log.Level, nil, "debug", "info", "warn", "error"), ""},
		{"log.format", choice(&c.Log.Format, nil, "auto", "json", "text"), ""},
		{"memory.limit", sizeOrAuto(&c.Memory.Limit, minMemory, 1<<50), ""},
		{"temp_dir", text(&c.TempDir, nil), ""},
		{"kafka.brokers", list(&k.Brokers, "host:port", brokerAddress), "write one or more of host:port, such as [kafka-1:9092]"},
		{"kafka.group", text(&k.Group, groupName), ""},
		{"kafka.rack", text(&k.Rack, nil), ""},
		{"kafka.session", duration(&k.Session, 6*time.Second, 30*time.Minute), ""},
		{"kafka.offset_commit_interval", duration(&k.OffsetCommitInterval, 100*time.Millisecond, time.Hour), ""},
		{"kafka.fetch.max_bytes", size(&k.Fetch.MaxBytes, 64<<10, 1<<30), ""},
		{"kafka.fetch.max_wait", duration(&k.Fetch.MaxWait, time.Millisecond, time.Minute), ""},
	}, k.TLS.keys(), k.SASL.keys(), []key{
		{"storage.url", text(&c.Storage.URL, storageURL), "write s3://bucket/prefix, or file:///dir"},
		{"storage.s3.endpoint", text(&s3.Endpoint, endpointURL), ""},
		{"storage.s3.region", text(&s3.Region, nil), ""},
		{"storage.s3.path_style", boolean(&s3.PathStyle), ""},
		{"storage.s3.ca_file", text(&s3.CAFile, nil), ""},
		{"storage.s3.insecure_plaintext", boolean(&s3.InsecurePlaintext), ""},
		{"storage.s3.timeout", duration(&s3.Timeout, time.Second, 10*time.Minute), ""},
		{"storage.s3.access_key", secret(&s3.AccessKey), ""},
		{"storage.s3.access_key_file", text(&s3.AccessKeyFile, nil), ""},
		{"storage.s3.secret_key", secret(&s3.SecretKey), ""},
		{"storage.s3.secret_key_file", text(&s3.SecretKeyFile, nil), ""},
		{"queue.pause_at", count(&c.Queue.PauseAt, 1, 100_000_000), ""},
		{"queue.resume_at", count(&c.Queue.ResumeAt, 0, 100_000_000), ""},
		{"queue.per_key", count(&c.Queue.PerKey, 1, 100_000_000), ""},
		{"retry.initial", duration(&c.Retry.Initial, time.Millisecond, time.Hour), ""},
		{"retry.max", duration(&c.Retry.Max, time.Millisecond, time.Hour), ""},
		{"retry.jitter", percent(&c.Retry.Jitter, 0, 1), ""},
		{"breaker.failures", count(&c.Breaker.Failures, 1, 1_000), ""},
		{"breaker.open_for", duration(&c.Breaker.OpenFor, 100*time.Millisecond, time.Hour), ""},
		{"breaker.successes", count(&c.Breaker.Successes, 1, 1_000), ""},
		{"fingerprints.store", choice(&c.Fingerprints.Store, nil, "memory", "postgres"), ""},
		{"fingerprints.url_file", text(&c.Fingerprints.URLFile, nil), ""},
		{"fingerprints.ca_file", text(&c.Fingerprints.CAFile, nil), ""},
		{"fingerprints.insecure_plaintext", boolean(&c.Fingerprints.InsecurePlaintext), ""},
		{"health.enabled", boolean(&c.Health.Enabled), ""},
		{"health.listen", text(&c.Health.Listen, listenAddress), ""},
		{"health.liveness_file", text(&c.Health.LivenessFile, livenessFile), ""},
	}, c.Health.Lag.keys(), c.Health.Canary.keys(), c.Members.keys(), c.Ops.keys(), []key{
		{"shutdown.drain", duration(&c.Shutdown.Drain, time.Second, 10*time.Minute), ""},
	})
}

// keys returns the keys of defaults and of each topic.
func (t *Topic) keys() []key {
	return slices.Concat([]key{
		{"table", text(&t.Table, nil), ""},
		{"format", choice(&t.Format, laterFormats(), formatNames()...), ""},
		{"start", choice(&t.Start, nil, "earliest", "latest", "timestamp", "explicit"), ""},
		{"start_at", startAt(&t.StartAt), ""},
		{"schema", text(&t.Schema, nil), ""},
		{"column_options", columnOptions(&t.ColumnOptions), ""},
		{"partition_by", listOrNone(&t.PartitionBy, "columns, date(column), hour(column) or bucket(16, column)", func(text string) error {
			_, err := schema.ParseExpression(text)
			return err
		}), ""},
		{"unknown_fields", choice(&t.UnknownFields, nil, unknownAuto, unknownAdd, unknownRescue, unknownIgnore, unknownDeadLetter), ""},
		{"new_columns.per_commit", count(&t.NewColumns.PerCommit, 0, schema.MaxColumns), ""},
		{"new_columns.per_hour", count(&t.NewColumns.PerHour, 0, schema.MaxColumns), ""},
		{"tombstones", choice(&t.Tombstones, nil, "skip", "dead_letter", tombstonesRow), ""},
		{"keys", choice(&t.Keys, nil, "any", "required"), ""},
		{"metadata_columns", list(&t.MetadataColumns, strings.Join(allMetadataColumns(), ", "), metadataColumn), ""},
		{"table_comment", text(&t.TableComment, tableComment), ""},
		{"table_properties", propertiesOf(&t.TableProperties), ""},
		{"commit.every", duration(&t.Commit.Every, 100*time.Millisecond, 24*time.Hour), ""},
		{"commit.rows", count(&t.Commit.Rows, 1, 1_000_000_000), ""},
		{"commit.bytes", size(&t.Commit.Bytes, 64<<10, 16<<30), ""},
		{"commit.file_size", size(&t.Commit.FileSize, 64<<10, 16<<30), ""},
		{"record_retry.max", count(&t.RecordRetry.Max, 0, 100), ""},
		{"record_retry.wait", duration(&t.RecordRetry.Wait, time.Millisecond, 24*time.Hour), ""},
		{"record_retry.backoff", choice(&t.RecordRetry.Backoff, nil, curves...), ""},
		{"record_retry.schedule", pauses(&t.RecordRetry.Schedule), ""},
		{"bad_records", choice(&t.BadRecords, nil, "dead_letter", "hold"), ""},
	}, t.Statistics.keys(), t.DeadLetters.keys(), t.Identity.keys(), []key{
		{"health_records.drop", boolean(&t.HealthRecords.Drop), ""},
		{"health_records.secret_file", text(&t.HealthRecords.SecretFile, nil), ""},
	}, thresholdKeys(&t.Lag))
}

// The values of unknown_fields.
const (
	unknownAuto       = "auto"
	unknownAdd        = "add"
	unknownRescue     = "rescue"
	unknownIgnore     = "ignore"
	unknownDeadLetter = "dead_letter"
)

// inferred is the value of schema for tables whose columns come from the records alone.
const inferred = "infer"

// Infers reports whether all columns of the topic's table come from its records.
func (t *Topic) Infers() bool {
	text := strings.TrimSpace(t.Schema)
	return (text == "" || text == inferred) && !t.IsLetters()
}

// Unknown returns what becomes of fields that the table has no column for: a value of unknown_fields, but not auto.
func (t *Topic) Unknown() string {
	switch {
	case t.UnknownFields != unknownAuto:
		return t.UnknownFields
	case t.Infers():
		return unknownAdd
	}
	return unknownIgnore
}

// Makes reports whether members add a column that the schema does not declare to the topic's table.
func (t *Topic) Makes(column schema.Field) bool {
	switch t.Unknown() {
	case unknownAdd:
		return column.Inferred() || column.Name == schema.Rescued
	case unknownRescue:
		return column.Name == schema.Rescued
	}
	return false
}

// declared returns the columns that the schema declares, none if they are inferred.
func (t *Topic) declared() (*schema.Schema, error) {
	if t.Infers() {
		return &schema.Schema{}, nil
	}
	return schema.ParseDDL(t.Schema)
}

// tableScoped has the keys of a topic that affect its table: topics that share a table must agree on them.
var tableScoped = [...]string{
	"format", "schema", "column_options", "unknown_fields", "new_columns.per_commit", "new_columns.per_hour", "metadata_columns", "table_comment", "table_properties", "identity.by", "identity.window", "identity.sweep", "commit.every", "commit.rows", "commit.bytes", "commit.file_size",
	"partition_by", "statistics.exclude",
	"record_retry.max", "record_retry.wait", "record_retry.backoff", "record_retry.schedule",
}

// TopicNames returns the names of the topics, sorted.
func (c *Config) TopicNames() []string { return slices.Sorted(maps.Keys(c.Topics)) }
