package delta

import (
	"strings"
	"testing"

	"sluice/connector/schema"
	"sluice/sink/delta/datafile"
)

// TestStatistics: table properties and excluded paths decide which leaves have which statistics. Leaves are counted in
// the order of the table's schema, also those of types that this version does not write, but not partition columns.
func TestStatistics(t *testing.T) {
	columns, err := schema.FromDelta([]byte(`{"type":"struct","fields":[` +
		`{"name":"p","type":"string","nullable":true,"metadata":{}},` +
		`{"name":"a","type":"long","nullable":true,"metadata":{}},` +
		`{"name":"v","type":"variant","nullable":true,"metadata":{}},` +
		`{"name":"s","type":{"type":"struct","fields":[` +
		`{"name":"x","type":"long","nullable":true,"metadata":{}},` +
		`{"name":"l","type":{"type":"array","elementType":{"type":"struct","fields":[{"name":"e","type":"long","nullable":true,"metadata":{}},{"name":"f","type":"long","nullable":true,"metadata":{}}]},"containsNull":true},"nullable":true,"metadata":{}},` +
		`{"name":"y.z","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},` +
		`{"name":"b","type":"long","nullable":true,"metadata":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	columns = columns.WithPartitions([]string{"p"})
	const num, list = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
	for name, c := range map[string]struct {
		properties map[string]string
		excluded   [][]string
		want       string // the leaves in the log, then those in the footer only
	}{
		"by default":           {nil, nil, "a s.x s.l s.y.z b |"},
		"all":                  {map[string]string{num: "-1"}, nil, "a s.x s.l s.y.z b |"},
		"none":                 {map[string]string{num: "0"}, nil, "| a s.x s.l s.y.z b"},
		"the first four":       {map[string]string{num: "4"}, nil, "a s.x s.l | s.y.z b"},
		"no number":            {map[string]string{num: "many"}, nil, "a s.x s.l s.y.z b |"},
		"named":                {map[string]string{list: "S, nothing", num: "1"}, nil, "s.x s.l s.y.z | a b"},
		"fields":               {map[string]string{list: "s.`y.z`,b"}, nil, "s.y.z b | a s.x s.l"},
		"an empty list":        {map[string]string{list: " ", num: "9"}, nil, "| a s.x s.l s.y.z b"},
		"a list with an error": {map[string]string{list: "a,,b"}, nil, "| a s.x s.l s.y.z b"},
		"excluded":             {nil, [][]string{{"a"}, {"s", "y.z"}}, "s.x s.l b |"},
		"an excluded struct":   {map[string]string{list: "s,a"}, [][]string{{"s"}}, "a | b"},
		"not by case":          {nil, [][]string{{"A"}}, "a s.x s.l s.y.z b |"},
	} {
		of := statistics(columns, c.properties, c.excluded)
		var log, footer string
		for _, path := range [][]string{{"a"}, {"s", "x"}, {"s", "l"}, {"s", "y.z"}, {"b"}} {
			switch text := strings.Join(path, ".") + " "; of(path) {
			case datafile.InLogAndFooter:
				log += text
			case datafile.InFooter:
				footer += text
			case datafile.NoBounds:
			}
		}
		if got := strings.TrimSpace(log + "| " + footer); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
