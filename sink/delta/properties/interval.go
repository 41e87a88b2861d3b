package properties

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var units = map[string]time.Duration{
	"nanosecond": time.Nanosecond, "microsecond": time.Microsecond, "millisecond": time.Millisecond,
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// ParseInterval parses the duration of a table property, such as "interval 1 week" or "interval 2 days 12 hours". A
// longer duration than a [time.Duration] can hold becomes the longest one. Any other text is an error.
func ParseInterval(text string) (time.Duration, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) > 0 && words[0] == "interval" {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, fmt.Errorf("interval %q is not numbers and units", text)
	}
	var sum time.Duration
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit := units[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || unit == 0 || n < 0 {
			return 0, fmt.Errorf("interval %q: %q", text, words[i]+" "+words[i+1])
		}
		if n > int64(math.MaxInt64-sum)/int64(unit) {
			return math.MaxInt64, nil // a longer interval than a time.Duration can hold counts as for ever
		}
		sum += time.Duration(n) * unit
	}
	return sum, nil
}
