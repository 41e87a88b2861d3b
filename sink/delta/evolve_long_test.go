//go:build lab && long

package delta_test

import (
	"testing"

	"sluice/test/lab"
)

// TestEvolutionLab_Spark: Sluice, deltalake and Spark take turns in adding a column, for 30 steps. Four readers then see
// each row with the values that it was written with.
func TestEvolutionLab_Spark(t *testing.T) {
	spark := func(args ...string) ([]byte, error) {
		return lab.Spark(t.Context(), "oracle/evolve_spark.py", args...)
	}
	g := grow(t, 30,
		func(g *growing, step int) { g.other(step, "d", deltalake(g.T)) },
		func(g *growing, step int) { g.other(step, "p", spark) },
	)
	out, err := spark("--table", g.dir)
	g.check("spark", out, err)
}
