package config

import (
	"fmt"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/connector/schema"
)

// This file has what a table gets beside the columns of the value: metadata columns, tombstones as rows.

// metadataColumns are the columns with the origin of a row that each table has; in the table they are _kafka_topic and
// so on.
var metadataColumns = [...]string{"topic", "partition", "offset", "timestamp"}

// topicIDColumn is the optional column that new tables have unless metadata_columns leaves it out.
const topicIDColumn = "topic_id"

// tombstonesRow is the value of the key tombstones with which tombstones become rows.
const tombstonesRow = "row"

// allMetadataColumns returns the words that metadata_columns takes.
func allMetadataColumns() []string { return append(metadataColumns[:], schema.MetadataWords()...) }

func metadataColumn(s string) error {
	if all := allMetadataColumns(); !slices.Contains(all, s) {
		return fmt.Errorf("%q is unknown: write %s", s, oneOf(all))
	}
	return nil
}

// checkMetadataColumns reports a column that is missing, and a column that is given in two forms.
func (l *loader) checkMetadataColumns(name string, t *Topic) {
	at := l.set(name, "metadata_columns")
	if l.failed(at) {
		return
	}
	for _, column := range metadataColumns {
		if !slices.Contains(t.MetadataColumns, column) {
			l.report(l.at(at), "lacks %s, without which rows cannot be told apart: write [%s, …]; only %s may be left out",
				column, strings.Join(metadataColumns[:], ", "), oneOf(schema.MetadataWords()))
			return
		}
	}
	given := map[string]string{}
	for _, word := range t.MetadataColumns {
		column := schema.MetadataColumn(word)
		if other, twice := given[column]; column != "" && twice {
			l.report(l.at(at), "has %s and %s, which are forms of the same column %s: remove one of them", other, word, column)
			return
		}
		given[column] = word
	}
}

// checkTombstones checks tombstones: row. The columns of the value are null in the row of a tombstone.
func (l *loader) checkTombstones(name string, t *Topic) {
	at := l.set(name, "tombstones")
	if t.Refusals().Tombstones != connector.TombstoneRows || l.failed(at) || l.failed(l.set(name, "schema")) || l.failed(l.set(name, "metadata_columns")) {
		return
	}
	columns, err := t.Columns()
	if err != nil {
		return // the schema has a problem of its own
	}
	for _, f := range columns.Fields() {
		if !f.Nullable {
			l.report(l.at(at), "row makes rows whose columns are null, and column %s of schema is not null: remove the not null, or write skip or dead_letter", f.Name)
			return
		}
	}
	if !slices.ContainsFunc(t.MetadataColumns, func(word string) bool { return schema.MetadataColumn(word) == schema.KafkaKey }) {
		l.warning(l.at(at), "row without the column key: the rows do not say what was deleted: add key or key:text to metadata_columns")
	}
}

// checkReservedNames warns of fields whose names are reserved for columns: an operator may believe that a column for
// coordinates has to be declared.
func (l *loader) checkReservedNames(at string, columns *schema.Schema) {
	for _, r := range columns.Renamed() {
		if column := "_" + r.Field; r.Column == column && !strings.Contains(r.Column, ".") && schema.IsKafkaColumn(strings.ToLower(r.Field)) {
			l.warning(l.at(at), "column %s is added by itself; this entry means a field of that name in the value, which gets the column %s: remove the entry unless the records have the field",
				strings.ToLower(r.Field), r.Column)
		}
	}
}
