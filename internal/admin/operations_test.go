package admin

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/fail"
	"sluice/sink/opslog"
)

func TestFailedOperation_UnknownOutcome(t *testing.T) {
	err := failedOperation(opslog.Entry{Seq: 7, ID: "some-id"}, fmt.Errorf("append: %w", opslog.ErrUndecided))
	if fail.Of(err) != fail.KindDependency || !strings.Contains(err.Error(), "look for seq 7, id some-id in connector audit list") {
		t.Error(err)
	}
}
