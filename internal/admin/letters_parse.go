package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ParseSince parses a time, or a duration back from now. An empty text is the zero time.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q: write a duration back such as 24h, or a time such as 2026-01-31T08:00:00Z", text)
	}
	return t, nil
}

// ParseLetterStates parses states separated by commas, or "all". An empty text means nil.
func ParseLetterStates(text string) (states []LetterState, err error) {
	switch text {
	case "":
		return nil, nil
	case "all":
		return LetterStates(), nil
	}
	for word := range strings.SplitSeq(text, ",") {
		state := LetterState(strings.TrimSpace(word))
		if !slices.Contains(LetterStates(), state) {
			return nil, fmt.Errorf("%q is none of all, %s", word, listStates(LetterStates()))
		}
		states = append(states, state)
	}
	return states, nil
}
