package admin

import (
	"testing"

	"sluice/reliability/hold"
)

// TestExplains: a hold reason with a dependency explains failures of that dependency, so [failing] leaves them out. The
// reasons in beside have a dependency but explain no failure of it.
func TestExplains(t *testing.T) {
	beside := map[hold.Reason]bool{ //nolint:exhaustive // all others explain failures
		hold.CommitUndecided: true, // it concerns one table; failures of the store may concern others, too
		hold.OperationsLog:   true, // it means that the log is damaged; that the log cannot be read is another failure
	}
	for _, reason := range hold.Reasons() {
		d := reason.Dependency()
		if want := d != "" && !beside[reason]; explains(reason, string(d)) != want {
			t.Errorf("%s explains failures of %q: %t, want %t", reason, d, !want, want)
		}
	}
	for reason, dependency := range map[hold.Reason]string{ //nolint:exhaustive // pairs that a rule alone does not show
		hold.KafkaDown: "dead_letters", hold.KafkaDenied: "dead_letters", // dead letters go to a topic in the same cluster
		// The operations log is a folder in the same store.
		hold.StoreDown: "operations_log", hold.StoreDenied: "operations_log",
	} {
		if !explains(reason, dependency) {
			t.Errorf("%s does not explain failures of %s", reason, dependency)
		}
	}
	if explains(hold.DeadLettersUnavailable, "kafka") || explains(hold.Poison, "") {
		t.Error("a hold explains failures of another dependency")
	}
}
