package admin

import (
	"strings"

	"sluice/connector"
	"sluice/connector/schema"
)

// nullability warns of columns that are not null in the configuration but nullable in the table. Members follow the
// table, so a record without a value becomes a row with null.
func (k *checks) nullability(t *checkedTable, snapshot *connector.Snapshot) {
	table, ok := snapshot.Schema.(*schema.Schema)
	configured, err := t.table.Columns()
	if !ok || err != nil || t.table.IsLetters() { // no schema, or the fixed one of dead letters
		return
	}
	if loose := looser(table.Fields(), configured.Fields(), ""); len(loose) > 0 {
		k.add(StatusWarning, "table", t.URL, "set NOT NULL in the table, or remove not null from schema: see docs/schema.md",
			"not null in schema, but nullable in the table: %s. A record without a value becomes a row with null", strings.Join(loose, ", "))
	}
}

// topicIDs warns of a table without the column for topic ids that metadata_columns names: it is older than the column.
func (k *checks) topicIDs(t *checkedTable, snapshot *connector.Snapshot) {
	table, ok := snapshot.Schema.(*schema.Schema)
	if !ok || table.HasTopicID() || !t.table.HasTopicID() || t.table.IsLetters() {
		return
	}
	k.add(StatusWarning, "table", t.URL,
		"add it with ALTER TABLE … ADD COLUMNS ("+schema.KafkaTopicID+" string), or remove topic_id from metadata_columns: see docs/schema.md",
		"the table has no column %s: once the topic is created again, earlier dead letters cannot be replayed", schema.KafkaTopicID)
}

// looser returns the paths of fields that are nullable in the table but not null in the configuration. above is put
// before each path. It ignores fields that only the table or only the configuration has: [schema.Schema.Fits] checks
// those.
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
	for table.Element != nil && configured.Element != nil { // DDL cannot declare elements not null
		table, configured, path = *table.Element, *configured.Element, path+"[]"
	}
	return looser(table.Fields, configured.Fields, path+".")
}
