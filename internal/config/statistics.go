package config

import (
	"strings"

	"sluice/connector/schema"
)

// Statistics is the section statistics of a topic.
type Statistics struct {
	Exclude []string // paths of columns and fields, as schema.ParsePath reads them
}

func (s *Statistics) keys() []key {
	return []key{
		{"statistics.exclude", listOrNone(&s.Exclude, "columns, or fields such as shipping.city", func(text string) error {
			_, err := schema.ParsePath(text)
			return err
		}), ""},
	}
}

// NoStatistics returns the paths of the columns and fields without statistics.
func (t *Topic) NoStatistics() (paths [][]string) {
	for _, text := range t.Statistics.Exclude {
		if path, err := schema.ParsePath(text); err == nil { // the loader has checked them
			paths = append(paths, path)
		}
	}
	return paths
}

// NoStatisticsIn returns the paths without statistics in a table, for commands that write to it. A table that a pattern
// may name also has those of the pattern: a path that the table lacks has no effect.
func (c *Config) NoStatisticsIn(table string) (paths [][]string) {
	for _, name := range c.TopicNames() {
		if t := c.Topics[name]; t.Table == table {
			paths = append(paths, t.NoStatistics()...)
		}
	}
	for _, p := range c.Patterns {
		before, after, _ := strings.Cut(p.Table, TopicPlaceholder)
		if strings.HasPrefix(table, before) && strings.HasSuffix(table, after) {
			paths = append(paths, p.NoStatistics()...)
		}
	}
	return paths
}

// checkStatistics reports an excluded column that the schema does not have, or whose statistics the connector needs.
func (l *loader) checkStatistics(name string, t *Topic) {
	at := l.set(name, "statistics.exclude")
	if l.failed(at) || l.failed(l.set(name, "schema")) {
		return
	}
	columns, err := t.Columns()
	if err != nil {
		return // the schema has a problem of its own
	}
	for _, path := range t.NoStatistics() {
		switch _, ok := columns.WithKafkaColumns().Find(path); {
		case schema.IsKafkaColumn(path[0]):
			l.report(l.at(at), "%s cannot be excluded: members find rows by its statistics after a restart: remove it", path[0])
		case !ok && t.Unknown() == unknownAdd: // it may come with a record
			continue
		case !ok:
			l.report(l.at(at), "%s is not in the schema: write a column of the schema, or field.of.a.struct; an array has no statistics of its elements",
				schema.JoinPath(path))
		default:
			continue
		}
		return
	}
}
