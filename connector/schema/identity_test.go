package schema_test

import (
	"testing"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

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
	checkHold(t, without.Fits(with), hold.SchemaConflict, "ADD COLUMNS (_kafka_fingerprint string)")
}
