package health

import (
	"maps"
	"slices"
	"strconv"
)

// Ends says what ends a hold of this reason: by itself, or the command that does. An unknown reason gets an empty text.
func Ends(reason string) string { return ends[reason] }

// Reasons returns the reasons of all holds, sorted.
func Reasons() []string { return slices.Sorted(maps.Keys(ends)) }

// Command returns the command line that ends a hold, "" if the hold ends by itself or otherwise. partition is -1 for a whole
// topic, topic "" for everything, offset -1 if unknown. The line runs as it is: the code of the hold is the reason that the
// operations log keeps, unless the operator writes a better one.
func Command(reason, topic string, partition int32, offset int64) string {
	arguments := arguments(reason, topic, partition, offset)
	if arguments == "" {
		return ""
	}
	return "connector " + arguments + " --reason " + reason
}

func arguments(reason, topic string, partition int32, offset int64) string {
	target := topic
	if partition >= 0 {
		target += ":" + strconv.Itoa(int(partition))
	}
	switch reason {
	case "behind_log_start", "ahead_of_log_end", "truncated":
		return "offsets accept-gap " + target
	case "topic_recreated", "cluster_changed", "unknown_history", "table_replaced":
		return "offsets start " + topic
	case "poison", "corrupt_batch", "oversize":
		if offset < 0 || partition < 0 {
			return ""
		}
		skip := "offsets skip " + target + "@" + strconv.FormatInt(offset, 10)
		if reason == "oversize" {
			skip += " --batch"
		}
		return skip
	case "flood":
		return "deadletters allow " + topic
	case "paused":
		if topic == "" {
			return "resume --all"
		}
		return "resume " + target
	}
	return ""
}

var ends = map[string]string{
	"behind_log_start": "an operator: Kafka deleted records before they were read, and they are lost: connector offsets accept-gap. Before the " +
		"topic's START: correct start_at",
	"ahead_of_log_end": "an operator: the log ends before the position, so it is not the log that was read; look first, then connector offsets " +
		"accept-gap or offsets set. Before the topic's START: correct start_at",
	"truncated":       "an operator: the broker lost records that the table has: connector offsets accept-gap reads on where the log parts from what was read",
	"topic_missing":   "by itself once the topic exists; else correct the name in topics",
	"too_many_topics": "an operator: raise max_topics of the pattern, or name topics that are not meant under its deny, and restart the members",
	"topic_recreated": "an operator: the topic was deleted and created again: connector offsets start reads the new one into the same table, " +
		"offsets adopt takes positions from elsewhere",
	"cluster_changed": "an operator: correct kafka.brokers; if the cluster is meant, connector offsets start, or offsets adopt for positions from elsewhere",
	"unknown_history": "an operator: the topic was read before, and the table does not say how far; correct " +
		"pipeline, kafka.group or the table, or connector offsets adopt or offsets start (and offsets set, while the topic is paused)",
	"table_replaced": "an operator: the table was created anew at the same place; restore it, use another table, or accept it: connector offsets " +
		"start with --at earliest, or --at position if its rows were copied. Looked at each minute",
	"table_unsupported": "an operator: take the feature or property named in the detail off the table, or use another table. Looked at each minute",
	"schema_conflict":   "an operator: do what the detail says, or go on in a new table: docs/schema.md. Checked each minute; connector holds recheck checks at once",
	"contested":         "by itself once no other writer moves the position any more: look for a second connector of the same pipeline",
	"commit_undecided":  "by itself once the store answers whether the commit took effect",
	"poison":            "an operator: correct the schema in config.yaml if the record is right, else connector offsets skip",
	"corrupt_batch":     "an operator: look at the broker's disk and replicas; connector offsets skip leaves the record batch out",
	"oversize":          "an operator: give the process more memory; connector offsets skip --batch leaves the record batch out",
	"store_down":        "by itself once the store answers",
	"store_denied":      "by itself once the store's permissions are right: keys and bucket policy. Looked at each minute",
	"kafka_down":        "by itself once Kafka answers",
	"flood": "an operator: too many records of the topic are bad to be set aside unseen; correct the schema or the producer, else connector " +
		"deadletters allow lets them become dead letters",
	"dead_letters_unavailable": "by itself once the dead-letter topic takes records: it must exist, let us write, and have room for them. Looked at each minute",
	"fingerprints_unavailable": "by itself once the Postgres database of fingerprints answers and lets us. Looked at each minute",
	"paused":                   "an operator: connector resume, with the topic or partition",
	"operations_log":           "an operator: put the entry that connector audit verify names back as it was; until then nobody knows what is paused",
	"kafka_denied": "by itself once Kafka lets us: the certificate, password or token that the detail names is right, or we may Read and Describe " +
		"the topic and Read the group. Looked at each minute",
}
