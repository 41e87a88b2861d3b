package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"sluice/sink/delta/schema"
)

// What topics that meet in one table must agree on.

// checkTables compares topics that feed one table, and refuses a table inside another one.
func (l *loader) checkTables(names []string) {
	first := map[string]string{} // the topic that is named first in the file, by table
	order := slices.Clone(names)
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(l.places["topics."+a], l.places["topics."+b]) })
	for _, name := range order {
		if l.failed(l.set(name, "table")) {
			continue
		}
		table := l.config.Topics[name].Table
		if other, shared := first[table]; shared {
			l.agree(other, name)
			continue
		}
		first[table] = name
		for _, path := range slices.Sorted(maps.Keys(first)) {
			outer, inner := path, table
			if len(outer) > len(inner) {
				outer, inner = inner, outer
			}
			if strings.HasPrefix(inner, outer+"/") {
				l.report(l.at(l.set(name, "table")), "the tables %q of topic %s and %q of topic %s lie one inside the other: give each its own folder",
					table, name, path, first[path])
			}
		}
	}
}

// agree reports what two topics that feed the same table say differently about it.
func (l *loader) agree(a, b string) {
	ta, tb := l.config.Topics[a], l.config.Topics[b]
	ka, kb := ta.keys(), tb.keys()
	for _, path := range tableScoped {
		i := slices.IndexFunc(ka, func(k key) bool { return k.path == path })
		if sameValue(ka[i], kb[i]) {
			continue
		}
		at, other := l.set(b, path), l.set(a, path)
		if l.failed(at) || l.failed(other) {
			continue
		}
		if !l.has("topics." + b + "." + path) {
			at, other = other, at
		}
		l.report(l.at(at), "topics %s and %s feed the table %q and must agree on %s, the other one is from %s: write the same for both, or another table",
			a, b, ta.Table, path, l.config.origins[other])
	}
}

// sameValue tells whether two keys mean the same. Schemas are compared by their columns, not by their spelling.
func sameValue(a, b key) bool {
	if a.path == "schema" {
		return ddlOf(a) == ddlOf(b)
	}
	return slices.EqualFunc(leaves(a.node()), leaves(b.node()), func(x, y *yaml.Node) bool { return x.Value == y.Value })
}

func leaves(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

func ddlOf(k key) string {
	text := k.node().Value
	if columns, err := schema.ParseDDL(text); err == nil {
		return columns.DDL()
	}
	return text
}
