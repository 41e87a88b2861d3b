package admin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

func TestInstruction(t *testing.T) {
	for ends, want := range map[string]string{
		"by itself once Kafka answers":  "wait: it ends by itself once Kafka answers",
		"an operator: raise the memory": "raise the memory",
		"":                              "",
	} {
		if got := instruction(ends); got != want {
			t.Errorf("%q: %q", ends, got)
		}
	}
	for _, reason := range hold.Reasons() { // each text begins with "by itself " or "an operator: "
		if ends := reason.EndsBy(); instruction(ends) == ends {
			t.Errorf("%s: %s", reason, ends)
		}
	}
}

func TestLooser(t *testing.T) {
	ddl := func(text string) []schema.Field {
		s, err := schema.ParseDDL(text)
		if err != nil {
			t.Fatal(err)
		}
		return s.Fields()
	}
	got := looser(ddl("a int, b struct<c int, d int not null>, e array<array<struct<f int>>>, g int not null, only_here int"),
		ddl("a int not null, b struct<c int not null, d int>, e array<array<struct<f int not null>>>, g int not null, only_there int not null"), "")
	if d := cmp.Diff([]string{"a", "b.c", "e[][].f"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
