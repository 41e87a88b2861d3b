package delta_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// TestCreate_Properties: a new table has the configured comment and properties, in metaData and in commitInfo. A table
// that exists keeps its own.
func TestCreate_Properties(t *testing.T) {
	store := objstore.NewMem()
	with := func(comment string, properties map[string]string) func(*delta.Options) {
		return func(o *delta.Options) { o.Comment, o.Properties = comment, properties }
	}
	want := map[string]string{"delta.appendOnly": "true", "delta.checkpointInterval": "20", "owner": "sales & co"}
	load(t, open(t, store, with(`orders of "eu"`, want)))
	load(t, open(t, store, with("another", map[string]string{"owner": "other"})))
	s, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, s.Metadata.Configuration); d != "" || s.Metadata.Description != `orders of "eu"` || s.Version != 0 {
		t.Errorf("version %d, description %q, properties (-want +got):\n%s", s.Version, s.Metadata.Description, d)
	}
	if s.Protocol.MinReaderVersion != 1 || s.Protocol.MinWriterVersion != 2 {
		t.Errorf("protocol %+v", s.Protocol)
	}
	c, err := deltalog.ReadCommit(t.Context(), store, 0, deltalog.KindCommitInfo)
	if err != nil {
		t.Fatal(err)
	}
	parameters := c.Info().OperationParameters
	var noted map[string]string
	if err := json.Unmarshal([]byte(parameters["properties"]), &noted); err != nil || !cmp.Equal(want, noted) || parameters["description"] != `orders of "eu"` {
		t.Errorf("commitInfo has %v: %v", parameters, err)
	}
}

// TestCreate_RefusedProperty: no table is created with a property that this version refuses.
func TestCreate_RefusedProperty(t *testing.T) {
	for key, value := range map[string]string{"delta.enableDeletionVectors": "true", "delta.logRetentionDuration": "interval 1 minute"} {
		store := objstore.NewMem()
		_, err := open(t, store, func(o *delta.Options) { o.Properties = map[string]string{key: value} }).Load(t.Context())
		holds(t, err, hold.TableUnsupported, key)
		if _, err := deltalog.Load(t.Context(), store); err == nil {
			t.Errorf("%s: a table was created", key)
		}
	}
}
