//go:build lab && long

package delta_test

import "testing"

// TestEvolution_Spark: Sluice, deltalake and Spark take turns in adding a column. Four readers see the rows of all.
func TestEvolution_Spark(t *testing.T) { grow(t, true) }
