package main

import (
	"errors"
	"fmt"
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

// parse completes the selection from flags that need parsing, and from records: arguments TOPIC:PARTITION@OFFSET, each
// of which selects one dead letter. With records it refuses flags that select dead letters.
func (q *letterSelection) parse(records []string) (err error) {
	now := time.Now()
	if q.Since, err = admin.ParseSince(q.since, now); err != nil {
		return fail.Usage(fmt.Errorf("--since: %w", err))
	}
	if q.Until, err = admin.ParseSince(q.until, now); err != nil {
		return fail.Usage(fmt.Errorf("--until: %w", err))
	}
	if q.States, err = admin.ParseLetterStates(q.states); err != nil {
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
