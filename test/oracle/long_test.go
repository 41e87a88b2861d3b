//go:build lab && long

package oracle_test

import (
	"context"
	"testing"

	"sluice/test/gen"
	"sluice/test/lab"
)

// checkWithMore compares the table with readers that only the long suite uses.
func checkWithMore(ctx context.Context, t *testing.T, ledger *gen.Ledger, table, endpoint string) {
	t.Helper()
	out, err := check(ctx, lab.Spark, ledger, table, endpoint, "--readers", "spark", "--predicates", "3",
		"--most", "40")
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the oracle refuses a good table: %v", err)
	}
}
