package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"sluice/connector/decode"
	"sluice/connector/schema"
)

const columnOptionsExample = "{sold_at: epoch_ms, payload: raw}"

// columnOptions returns a value that accepts a mapping of columns to the words of their options.
func columnOptions(p *decode.ColumnOptions) value {
	return value{
		allowed: "{column: words}, words of " + strings.Join(decode.OptionWords(), ", "),
		pairs:   true,
		set: func(texts []string) error {
			options, err := parseColumnOptions(texts)
			if err == nil {
				*p = options
			}
			return err
		},
		node: func() *yaml.Node {
			n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
			for _, path := range slices.Sorted(maps.Keys(*p)) {
				n.Content = append(n.Content, scalar("!!str", path), scalar("!!str", (*p)[path].String()))
			}
			return n
		},
	}
}

// parseColumnOptions parses "path: words" texts. One empty text, or none, means no options.
func parseColumnOptions(texts []string) (decode.ColumnOptions, error) {
	if len(texts) == 0 || texts[0] == "" {
		return nil, nil
	}
	options := decode.ColumnOptions{}
	for _, text := range texts {
		path, words, pair := strings.Cut(text, ": ")
		if !pair {
			return nil, errors.New("is not a mapping: write columns with their words, such as " + columnOptionsExample)
		}
		o, err := decode.ParseColumnOption(words)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", path, err)
		}
		at, err := schema.ParsePath(path)
		if err != nil {
			return nil, err
		}
		if path = schema.JoinPath(at); options[path] != (decode.ColumnOption{}) {
			return nil, fmt.Errorf("column %s comes twice: write all words of a column in one entry", path)
		}
		options[path] = o
	}
	return options, nil
}

// checkColumnOptions reports options that do not fit the schema. An option in defaults may name a column that the
// schema of a topic lacks, unless the schema stands in defaults, too.
func (l *loader) checkColumnOptions(name string, t *Topic) {
	at, schemaAt := l.set(name, "column_options"), l.set(name, "schema")
	if l.failed(at) || l.failed(schemaAt) || len(t.ColumnOptions) == 0 {
		return
	}
	columns, err := t.declared()
	if err != nil {
		return // the schema has a problem of its own
	}
	unknown, err := t.ColumnOptions.Check(columns)
	switch {
	case err != nil:
		l.report(l.at(at), "topic %s: %v: write words for its type, or remove it", name, err)
	case len(unknown) > 0 && (!strings.HasPrefix(at, "defaults.") || strings.HasPrefix(schemaAt, "defaults.")):
		l.report(l.at(at), "column %s is not in the schema: declare it there, or write a column, or column.field for a field of a struct, and backticks around a name that has a dot", unknown[0])
	}
}
