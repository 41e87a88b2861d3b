package properties_test

import (
	"strings"
	"testing"

	"sluice/sink/delta/properties"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"owner", "sales", ""},
		{"parquet.anything", "", ""},
		{"delta.appendOnly", "true", ""},
		{"delta.appendOnly", "yes", "write true or false"},
		{"delta.appendonly", "true", "write delta.appendOnly"},
		{"DELTA.APPENDONLY", "true", "write delta.appendOnly"},
		{"delta.appendOny", "true", "is not a property that this version sets: write one of delta.appendOnly, delta.autoOptimize.autoCompact,"},
		{"delta.checkpointInterval", "10", ""},
		{"delta.checkpointInterval", "0", "write a whole number from 1 on"},
		{"delta.checkpointInterval", "010", "write a whole number from 1 on"},
		{"delta.dataSkippingNumIndexedCols", "-1", ""},
		{"delta.dataSkippingNumIndexedCols", "-2", "write a whole number from -1 on"},
		{"delta.logRetentionDuration", "interval 30 days", ""},
		{"delta.logRetentionDuration", "30 days", "write an interval such as interval 7 days"},
		{"delta.logRetentionDuration", "interval 59 minutes", "write 1 hour or more"},
		{"delta.setTransactionRetentionDuration", "interval 29 days", "write 30 days or more"},
		{"delta.setTransactionRetentionDuration", "interval 30 days", ""},
		{"delta.deletedFileRetentionDuration", "interval 0 seconds", ""},
		{"delta.enableDeletionVectors", "false", ""},
		{"delta.enableDeletionVectors", "true", "true needs a feature that this version does not write"},
		{"delta.enableChangeDataFeed", "true", "true needs a feature"},
		{"delta.minWriterVersion", "2", "would change the table's protocol"},
		{"delta.columnMapping.mode", "none", "would change the table's protocol"},
		{"delta.feature.deletionVectors", "supported", "would change the table's protocol"},
		{"delta.constraints.positive", "n > 0", "would change the table's protocol"},
		{"delta.coordinatedCommits.x", "y", "would change the table's protocol"},
		{"", "x", "is no name of a property"},
		{"a\nb", "x", "is no name of a property"},
	} {
		err := properties.Check(c.key, c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %q: got %v, want %q", c.key, c.value, err, c.want)
		}
	}
}
