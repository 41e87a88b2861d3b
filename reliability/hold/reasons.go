package hold

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
)

// Dependency is what a hold waits for outside of the process, by the name of the guard around it. It is "" for a reason
// about records, positions or the configuration.
type Dependency string

// The dependencies.
const (
	Kafka        Dependency = "kafka" // each broker also has a guard of its own, named like "kafka broker 1"
	Store        Dependency = "store"
	DeadLetters  Dependency = "dead_letters"
	Fingerprints Dependency = "postgres"
	Operations   Dependency = "operations_log"
)

// rule has the facts about one reason. All parts of the connector use them.
type rule struct {
	level   slog.Level          // of the log line: ERROR needs a person to act, WARN ends by itself, INFO was requested by an operator
	command func(target) string // returns the arguments of the command that ends the hold; nil if no command does
	ends    string              // what ends the hold, for operators; begins with "by itself" or "an operator"

	dependency   Dependency // the dependency whose failure the reason means, "" for none
	endsByRecord bool       // true if only reading a record ends the hold, because no check can see that the cause is gone
}

// rules is the table of reasons. The reader, health, commands and alerts use it; tests compare docs/operations.md with
// it.
var rules = map[Reason]rule{
	BehindLogStart: {level: slog.LevelError, command: acceptGap, ends: "an operator: Kafka deleted records before they were read, and they are lost: connector offsets accept-gap. Before the " +
		"topic's initial commit: correct start_at"},
	AheadOfLogEnd: {level: slog.LevelError, command: acceptGap, ends: "an operator: the log ends before the position, so it is not the log that was read; look first, then connector offsets " +
		"accept-gap or offsets set. Before the topic's initial commit: correct start_at"},
	Truncated:     {level: slog.LevelError, command: acceptGap, ends: "an operator: the broker lost records that the table has: connector offsets accept-gap reads on where the log parts from what was read"},
	TopicMissing:  {level: slog.LevelWarn, ends: "by itself once the topic exists; else correct the name in topics"},
	TooManyTopics: {level: slog.LevelError, ends: "an operator: raise max_topics of the pattern, or name topics that are not meant under its deny, and restart the members"},
	TopicRecreated: {level: slog.LevelError, command: start, ends: "an operator: the topic was deleted and created again: connector offsets start reads the new one into the same table, " +
		"offsets adopt takes positions from elsewhere"},
	ClusterChanged: {level: slog.LevelError, command: start, ends: "an operator: correct kafka.brokers; if the cluster is meant, connector offsets " +
		"start, or offsets adopt for positions from elsewhere"},
	UnknownHistory: {level: slog.LevelError, command: start, ends: "an operator: the topic was read before, and the table does not say how far; correct " +
		"pipeline, kafka.group or the table, or connector offsets adopt or offsets start (and offsets set, while the topic is paused)"},
	TableReplaced: {level: slog.LevelError, command: start, ends: "an operator: the table was created again at the same place; restore it, use another " +
		"table, or accept it: connector offsets " +
		"start with --at earliest, or --at position if its rows were copied. Checked every minute"},
	TableUnsupported: {level: slog.LevelError, ends: "an operator: remove the feature or property named in the detail from the table, or " +
		"use another table. Checked every minute"},
	SchemaConflict: {level: slog.LevelError, ends: "an operator: do what the detail says, or continue in a new table: docs/schema.md. " +
		"Checked every minute; connector holds recheck checks at once"},
	Contested: {level: slog.LevelWarn, ends: "by itself once no other writer moves the position any more: find the second " +
		"connector of the same pipeline"},
	CommitUndecided: {level: slog.LevelWarn, dependency: Store, ends: "by itself once the store answers whether the commit took effect"},
	Poison: {level: slog.LevelError, command: skip, ends: "an operator: correct the schema in config.yaml if the record is right, else " +
		"connector offsets skip"},
	CorruptBatch: {level: slog.LevelError, command: skip, endsByRecord: true, ends: "an operator: check the broker's disk and replicas; " +
		"connector offsets skip leaves the record batch out"},
	Oversize: {level: slog.LevelError, command: skipBatch, endsByRecord: true, ends: "an operator: give the process more memory; " +
		"connector offsets skip --batch leaves the record batch out"},
	StoreDown: {level: slog.LevelWarn, dependency: Store, ends: "by itself once the store answers"},
	StoreDenied: {level: slog.LevelError, dependency: Store, ends: "by itself once the store's permissions are right: keys and bucket policy. " +
		"Checked every minute"},
	KafkaDown: {level: slog.LevelWarn, dependency: Kafka, ends: "by itself once Kafka answers"},
	Flood: {level: slog.LevelError, command: allow, ends: "an operator: too many records of the topic are bad; correct the schema or the producer, " +
		"else connector " +
		"deadletters allow lets them become dead letters"},
	DeadLettersUnavailable: {level: slog.LevelWarn, dependency: DeadLetters, ends: "by itself once the dead-letter topic takes records: it must exist, allow the connector to write, and have room. " +
		"Checked every minute"},
	FingerprintsUnavailable: {level: slog.LevelWarn, dependency: Fingerprints, ends: "by itself once the Postgres database of fingerprints answers and accepts the connector's role. " +
		"Checked every minute"},
	Paused:        {level: slog.LevelInfo, command: resume, ends: "an operator: connector resume, with the topic or partition"},
	OperationsLog: {level: slog.LevelError, dependency: Operations, ends: "an operator: put the entry that connector audit verify names back as it was; until then pauses are unknown"},
	KafkaDenied: {level: slog.LevelError, dependency: Kafka, ends: "by itself once Kafka accepts the connector: the certificate, password or token that the " +
		"detail names is right, or its user may Read and Describe the topic and Read the group. Checked every minute"},
	KafkaIncompatible: {level: slog.LevelError, dependency: Kafka, ends: "by itself once the address that the detail names is that of a Kafka broker of version 2.8 or newer: " +
		"correct kafka.brokers and advertised.listeners, or upgrade the broker. Checked every minute"},
}

// Reasons returns all reasons, sorted.
func Reasons() []Reason { return slices.Sorted(maps.Keys(rules)) }

// Level returns the level at which a hold is logged, ERROR for an unknown reason.
func (r Reason) Level() slog.Level {
	if rule, known := rules[r]; known {
		return rule.level
	}
	return slog.LevelError
}

// EndsBy returns what ends a hold, for operators; "" for an unknown reason.
func (r Reason) EndsBy() string { return rules[r].ends }

// Dependency returns the dependency whose failure causes the hold; "" for a reason that has nothing to do with a
// dependency, and for an unknown reason.
func (r Reason) Dependency() Dependency { return rules[r].dependency }

// EndsByRecord reports whether only reading a record ends the hold, because no check can see that its cause is gone.
func (r Reason) EndsByRecord() bool { return rules[r].endsByRecord }

// Command returns the command line that ends a hold, "" if no command does or if it needs a partition or an offset that
// is unknown. partition is -1 for a whole topic, topic is "" for all topics, and offset is -1 if unknown. The line can
// be run as it is. Its --reason, which the operations log keeps, is the code of the hold; operators may write a better
// one.
func (r Reason) Command(topic string, partition int32, offset int64) string {
	of := rules[r].command
	if of == nil {
		return ""
	}
	arguments := of(target{topic, partition, offset})
	if arguments == "" {
		return ""
	}
	return "connector " + arguments + " --reason " + string(r)
}

// target is what a command applies to.
type target struct {
	topic     string
	partition int32
	offset    int64
}

// String returns TOPIC or TOPIC:PARTITION.
func (t target) String() string {
	if t.partition < 0 {
		return t.topic
	}
	return t.topic + ":" + strconv.Itoa(int(t.partition))
}

func acceptGap(t target) string { return "offsets accept-gap " + t.String() }

func start(t target) string { return "offsets start " + t.topic }

func skip(t target) string {
	if t.offset < 0 || t.partition < 0 {
		return ""
	}
	return "offsets skip " + t.String() + "@" + strconv.FormatInt(t.offset, 10)
}

func skipBatch(t target) string {
	if command := skip(t); command != "" {
		return command + " --batch"
	}
	return ""
}

func allow(t target) string { return "deadletters allow " + t.topic }

func resume(t target) string {
	if t.topic == "" {
		return "resume --all"
	}
	return "resume " + t.String()
}
