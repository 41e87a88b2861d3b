package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
)

// letterSelection has the flags that select dead letters.
type letterSelection struct {
	admin.LetterSelection

	topicID, since, until, states string
}

// selectFlags adds the flags that select dead letters of a topic.
func selectFlags(cmd *cobra.Command, q *letterSelection) {
	cmd.Flags().StringVar(&q.Reason, "code", "", "only dead letters with this reason code")
	cmd.Flags().StringVar(&q.since, "since", "", "only dead letters since a time, or of a duration back, such as 24h")
	cmd.Flags().StringVar(&q.until, "until", "", "only dead letters before a time, or before a duration back")
	cmd.Flags().StringVar(&q.states, "state", "", "only dead letters in these states, such as parked,unresolved")
	cmd.Flags().DurationVar(&q.Within, "timeout", time.Minute, "how long to wait for each response of Kafka and for the store")
}

// parse completes the selection. records are the arguments TOPIC:PARTITION@OFFSET, which select single dead letters.
func (q *letterSelection) parse(records []string) (err error) {
	now := time.Now()
	if q.Since, err = parseSince(q.since, now); err != nil {
		return fail.Usage(fmt.Errorf("--since: %w", err))
	}
	if q.Until, err = parseSince(q.until, now); err != nil {
		return fail.Usage(fmt.Errorf("--until: %w", err))
	}
	if q.States, err = parseStates(q.states); err != nil {
		return fail.Usage(fmt.Errorf("--state: %w", err))
	}
	if len(records) == 0 {
		return nil
	}
	if q.Topic != "" || q.Reason != "" || q.since != "" || q.until != "" || q.states != "" {
		return fail.Usage(errors.New("records are named one by one: leave out --topic, --code, --since, --until and --state"))
	}
	for _, text := range records {
		place, offset, err := parseRecord(text)
		if err != nil {
			return err
		}
		q.Records = append(q.Records, admin.RecordPlace{Topic: place.Topic, TopicID: q.topicID, Partition: place.Partition, Offset: offset})
	}
	return nil
}

// parseStates parses states separated by commas, or "all". An empty text means nil.
func parseStates(text string) (states []admin.LetterState, err error) {
	switch text {
	case "":
		return nil, nil
	case "all":
		return admin.LetterStates(), nil
	}
	for word := range strings.SplitSeq(text, ",") {
		state := admin.LetterState(strings.TrimSpace(word))
		if !slices.Contains(admin.LetterStates(), state) {
			return nil, fmt.Errorf("%q is none of all, %s", word, joinStates(admin.LetterStates()))
		}
		states = append(states, state)
	}
	return states, nil
}

func joinStates(states []admin.LetterState) string {
	var words []string
	for _, s := range states {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}
