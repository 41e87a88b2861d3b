package delta

import (
	"math"
	"slices"
	"strings"

	"sluice/connector/schema"
	"sluice/sink/delta/datafile"
)

// defaultIndexed is the number of leaves with statistics in the log if the table's properties say nothing.
const defaultIndexed = 32

// statistics returns which statistics the leaves of a table have. The properties of the table select the leaves with
// statistics in the log: delta.dataSkippingStatsColumns names them; without it, they are the first leaves, as many as
// delta.dataSkippingNumIndexedCols says. Partition columns do not count, because the log has their values. Leaves at or
// below an excluded path have no bounds at all.
func statistics(table *schema.Schema, properties map[string]string, excluded [][]string) func(path []string) datafile.Statistics {
	indexed := indexedBy(properties)
	of, n := map[string]datafile.Statistics{}, 0
	for leaf := range table.Leaves() {
		if slices.Contains(table.Partitions(), leaf.Path[0]) {
			continue
		}
		s := datafile.InFooter
		switch below := func(path []string) bool { return startsWith(leaf.Path, path) }; {
		case slices.ContainsFunc(excluded, below):
			s = datafile.NoBounds
		case indexed(leaf.Path, n):
			s = datafile.InLogAndFooter
		}
		of[pathKey(leaf.Path)] = s
		n++
	}
	return func(path []string) datafile.Statistics { return of[pathKey(path)] }
}

func pathKey(path []string) string { return strings.Join(path, "\x00") }

func startsWith(path, start []string) bool {
	return len(path) >= len(start) && slices.Equal(path[:len(start)], start)
}

// indexedBy returns whether the log has statistics of the n-th leaf, which has the given path. A list of columns that
// cannot be parsed selects none: a missing bound costs time, and a wrong one rows.
func indexedBy(properties map[string]string) func(path []string, n int) bool {
	if list, ok := properties["delta.dataSkippingStatsColumns"]; ok {
		named, err := schema.ParsePaths(list)
		if err != nil {
			named = nil
		}
		return func(path []string, _ int) bool {
			return slices.ContainsFunc(named, func(start []string) bool {
				return len(path) >= len(start) && slices.EqualFunc(path[:len(start)], start, strings.EqualFold)
			})
		}
	}
	limit, ok := intProperty(properties, "delta.dataSkippingNumIndexedCols", -1, math.MaxInt32)
	if !ok {
		limit = defaultIndexed
	}
	return func(_ []string, n int) bool { return limit < 0 || n < limit }
}
