package config

// checkPartitions reports the first entry of partition_by that does not fit the schema.
func (l *loader) checkPartitions(name string, t *Topic) {
	at := l.set(name, "partition_by")
	if l.failed(at) || l.failed(l.set(name, "schema")) || len(t.PartitionBy) == 0 {
		return
	}
	columns, err := t.declared()
	if err != nil {
		return // the schema has a problem of its own
	}
	if _, err := columns.WithPartitionBy(t.PartitionBy); err != nil {
		l.report(l.at(at), "%v", err)
	}
}
