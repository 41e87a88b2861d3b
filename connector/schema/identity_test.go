package schema_test

import (
	"strings"
	"testing"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

func TestTopicIDColumn(t *testing.T) {
	const want = "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, _kafka_topic_id string, _kafka_fingerprint string, a int"
	s := parse(t, "a int").WithFingerprint().WithTopicID().WithKafkaColumns()
	for range 2 {
		var names []string
		for _, f := range s.Fields() {
			names = append(names, f.Name+" "+f.Type.String())
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s = s.WithTopicID().WithKafkaColumns()
	}
	without := parse(t, "a int").WithFingerprint().WithKafkaColumns()
	if !schema.IsKafkaColumn(schema.KafkaTopicID) || !s.HasTopicID() || without.HasTopicID() {
		t.Error("the column is not known as one of Kafka")
	}
	checkHold(t, s.HasKafkaColumns(), "", "")
	good := `{"name":"_kafka_topic","type":"string","nullable":true},{"name":"_kafka_partition","type":"integer","nullable":true},` +
		`{"name":"_kafka_offset","type":"long","nullable":true},{"name":"_kafka_timestamp","type":"timestamp","nullable":true}`
	checkHold(t, fromDelta(t, good+`,{"name":"_kafka_topic_id","type":"binary","nullable":true}`).HasKafkaColumns(),
		hold.SchemaConflict, "column _kafka_topic_id is")
	// Rows with topic ids need a table with the column.
	checkHold(t, s.Fits(without), "", "")
	checkHold(t, without.Fits(s), hold.SchemaConflict, "column _kafka_topic_id is not in the table any more")
}

func TestFingerprintColumn(t *testing.T) {
	const want = "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, _kafka_fingerprint string, a int"
	s := parse(t, "a int").WithFingerprint().WithKafkaColumns()
	for range 2 {
		var names string
		for i, f := range s.Fields() {
			if i > 0 {
				names += ", "
			}
			names += f.Name + " " + f.Type.String()
		}
		if names != want {
			t.Errorf("got  %s\nwant %s", names, want)
		}
		s = s.WithFingerprint().WithKafkaColumns()
	}
	if !schema.IsKafkaColumn(schema.KafkaFingerprint) {
		t.Error("records may fill it")
	}
	checkHold(t, s.HasKafkaColumns(), "", "")
	checkHold(t, parse(t, "a int").WithKafkaColumns().HasKafkaColumns(), "", "")
	good := `{"name":"_kafka_topic","type":"string","nullable":true},{"name":"_kafka_partition","type":"integer","nullable":true},` +
		`{"name":"_kafka_offset","type":"long","nullable":true},{"name":"_kafka_timestamp","type":"timestamp","nullable":true}`
	checkHold(t, fromDelta(t, good+`,{"name":"_kafka_fingerprint","type":"binary","nullable":true}`).HasKafkaColumns(),
		hold.SchemaConflict, "column _kafka_fingerprint is")
	// Rows with fingerprints fit only a table with the fingerprint column. Rows without fingerprints fit a table with
	// or without it.
	with, without := s, parse(t, "a int").WithKafkaColumns()
	checkHold(t, with.Fits(without), "", "")
	checkHold(t, without.Fits(with), hold.SchemaConflict, "column _kafka_fingerprint is not in the table any more")
}
