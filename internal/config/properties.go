package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"sluice/sink/delta/properties"
)

// maxComment is the length, in characters, of the longest table_comment. Catalogs have limits of this size.
const maxComment = 4_000

func tableComment(s string) error {
	if n := utf8.RuneCountInString(s); n > maxComment || !utf8.ValidString(s) {
		return fmt.Errorf("has %d characters: write at most %d, in UTF-8", n, maxComment)
	}
	return nil
}

// propertiesOf returns the value of a key that takes table properties as a mapping.
func propertiesOf(p *map[string]string) value {
	return value{
		allowed: "mapping of properties",
		pairs:   true,
		set: func(texts []string) error {
			all := make(map[string]string, len(texts))
			for _, pair := range texts {
				key, text, isPair := strings.Cut(pair, ": ")
				if !isPair {
					return fmt.Errorf("%q is not a mapping: write {delta.appendOnly: \"true\"}", pair)
				}
				if err := properties.Check(key, text); err != nil {
					return err
				}
				all[key] = text
			}
			*p = all
			return nil
		},
		node: func() *yaml.Node {
			n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
			for _, key := range slices.Sorted(maps.Keys(*p)) {
				n.Content = append(n.Content, scalar("!!str", key), scalar("!!str", (*p)[key]))
			}
			return n
		},
	}
}
