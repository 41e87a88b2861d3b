//go:build lab && long

package deltacheck_test

// shortCases is the number of random tables, and readers are those that read them.
const shortCases = 200

func readers() []string {
	return []string{"datafusion", "pyarrow", "polars", "duckdb", "spark", "kernel"}
}
