package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/connector/schema"
)

// columns adds the finding that the table can be written, with what the next commit changes in its schema.
func (k *checks) columns(t *checkedTable, snapshot *connector.Snapshot) {
	table, ok := snapshot.Schema.(*schema.Schema)
	configured, err := t.table.Columns()
	var changes schema.Changes
	if ok && err == nil {
		if rows, err := table.ForRows(configured.WithKafkaColumns()); err == nil {
			changes = table.ChangesTo(rows)
		}
	}
	var next []string
	if added := changes.Columns(); len(added) > 0 {
		next = append(next, "adds "+strings.Join(added, ", "))
	}
	if len(changes.Relaxed) > 0 {
		next = append(next, "drops the NOT NULL of "+strings.Join(changes.Relaxed, ", "))
	}
	if len(next) == 0 {
		k.add(StatusOK, "table", t.URL, "", "version %d, has the columns of the schema and can be written", snapshot.Version)
		return
	}
	k.add(StatusOK, "table", t.URL, "", "version %d, can be written; the next commit with rows %s", snapshot.Version, strings.Join(next, ", and "))
}

// nullability warns of columns that are NOT NULL in the configuration but nullable in the table. Members follow the
// table, so a record without such a value becomes a row with null.
func (k *checks) nullability(t *checkedTable, snapshot *connector.Snapshot) {
	table, ok := snapshot.Schema.(*schema.Schema)
	configured, err := t.table.Columns()
	if !ok || err != nil || t.table.IsLetters() { // there is no schema, or it is the fixed schema of dead letters
		return
	}
	if loose := looser(table.Fields(), configured.Fields(), ""); len(loose) > 0 {
		k.add(StatusWarning, "table", t.URL, "set NOT NULL in the table, or remove not null from schema: see docs/schema.md",
			"not null in schema, but nullable in the table: %s. A record without a value becomes a row with null", strings.Join(loose, ", "))
	}
}

// topicIDs warns if metadata_columns names a column for topic ids and the table lacks it. Such a table was created
// before Sluice had this column.
func (k *checks) topicIDs(t *checkedTable, snapshot *connector.Snapshot) {
	table, ok := snapshot.Schema.(*schema.Schema)
	configured, err := t.table.Columns()
	if !ok || err != nil || table.HasTopicID() || !configured.HasTopicID() || t.table.IsLetters() {
		return
	}
	k.add(StatusWarning, "table", t.URL,
		"add it with connector table schema apply, or remove topic_id from metadata_columns: see docs/schema.md",
		"the table has no column %s: once the topic is created again, earlier dead letters cannot be replayed", schema.KafkaTopicID)
}

// properties warns of table_properties that the table does not have, or has with another value.
func (k *checks) properties(t *checkedTable) {
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(t.table.TableProperties)) {
		want := t.table.TableProperties[key]
		switch is, has := t.properties[key]; {
		case !has:
			differ = append(differ, fmt.Sprintf("%s is not set, %q in table_properties", key, want))
		case is != want:
			differ = append(differ, fmt.Sprintf("%s is %q, %q in table_properties", key, is, want))
		}
	}
	if len(differ) > 0 {
		k.add(StatusWarning, "table", t.URL, "set them with ALTER TABLE … SET TBLPROPERTIES, or change table_properties, which apply only when a table is created",
			"properties differ: %s", strings.Join(differ, "; "))
	}
}

// looser returns the paths of fields that are NOT NULL in the configuration but nullable in the table; each path begins
// with above. It ignores fields that only one of the two has, which [schema.Schema.Fits] checks.
func looser(table, configured []schema.Field, above string) (paths []string) {
	byName := map[string]schema.Field{}
	for _, f := range table {
		byName[f.Name] = f
	}
	for _, c := range configured {
		f, there := byName[c.Name]
		if !there {
			continue
		}
		path := above + c.Name
		if f.Nullable && !c.Nullable {
			paths = append(paths, path)
		}
		paths = append(paths, looserType(f.Type, c.Type, path)...)
	}
	return paths
}

func looserType(table, configured schema.Type, path string) []string {
	// DDL cannot declare list elements NOT NULL, so only the fields inside of elements are compared.
	for table.Element != nil && configured.Element != nil {
		table, configured, path = *table.Element, *configured.Element, path+"[]"
	}
	return looser(table.Fields, configured.Fields, path+".")
}
