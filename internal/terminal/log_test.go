package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

func TestLog_Durations(t *testing.T) {
	for format, want := range map[string]string{"json": `"pause":"1.5s"`, "text": "pause=1.5s"} {
		var out bytes.Buffer
		logger, err := NewLogger(config.Log{Level: "info", Format: format}, &out)
		if err != nil {
			t.Fatal(err)
		}
		logger.Debug("hidden")
		logger.Info("shown", "pause", 1500*time.Millisecond)
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "hidden") {
			t.Errorf("%s: %s", format, got)
		}
	}
}
