package properties_test

import (
	"testing"
	"time"

	"sluice/sink/delta/properties"
)

func TestParseInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"interval 1 week": 7 * 24 * time.Hour, "INTERVAL 30 DAYS": 720 * time.Hour, "2 days 12 hours": 60 * time.Hour,
		"interval 0 seconds": 0, "interval 99999999999 weeks": 1<<63 - 1,
	} {
		if got, err := properties.ParseInterval(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "interval", "week", "interval 1", "interval 1 month", "interval -1 days", "interval one day", "7"} {
		if d, err := properties.ParseInterval(text); err == nil {
			t.Errorf("%q: %v", text, d)
		}
	}
}
