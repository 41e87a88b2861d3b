package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNoStatisticsIn: a command that writes to a table leaves out the statistics that members leave out.
func TestNoStatisticsIn(t *testing.T) {
	c := Default()
	topic := func(table string, exclude ...string) Topic {
		return Topic{Table: table, Statistics: Statistics{Exclude: exclude}}
	}
	c.Topics = map[string]Topic{"a": topic("lake/a", "x", "s.`y.z`"), "b": topic("b", "w")}
	c.Patterns = []*Pattern{{Topic: topic("lake/{topic}", "p")}}
	for table, want := range map[string][][]string{
		"lake/a": {{"x"}, {"s", "y.z"}, {"p"}},
		"lake/q": {{"p"}},
		"b":      {{"w"}},
		"other":  nil,
	} {
		if d := cmp.Diff(want, c.NoStatisticsIn(table)); d != "" {
			t.Errorf("%s: %s", table, d)
		}
	}
}
