package admin

import (
	"context"
	"errors"

	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/reliability/hold"
)

// letters checks the dead-letter topics of the topics in names. If several topics share a dead-letter topic, it is
// checked once.
func (k *checks) letters(ctx context.Context, queries *kafkaQueries, names []string) {
	seen := map[string]bool{}
	for _, name := range names {
		t, meant, err := k.config.Route(name)
		if err != nil || !meant || !t.WritesLetters() {
			continue
		}
		to, err := t.LetterTopic(name)
		if err != nil {
			k.failed("dead letters", name, err)
			continue
		}
		if seen[to.Name] {
			continue
		}
		seen[to.Name] = true
		if queries == nil {
			k.add(StatusSkipped, "dead letters", to.Name, "", "no broker is reachable")
			continue
		}
		k.letterTopic(ctx, queries, to, name)
	}
}

func (k *checks) letterTopic(ctx context.Context, queries *kafkaQueries, to kafka.LetterTopic, source string) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	var s kafka.LetterTopicState
	err := k.retrying(ctx)(func(ctx context.Context) (err error) {
		s, err = queries.client.LetterTopicState(ctx, to, source)
		return err
	})
	if err != nil {
		k.failed("dead letters", to.Name, err)
		return
	}
	if err := errors.Join(s.CreateErr, s.WriteErr); err != nil {
		detail := err.Error()
		if held, ok := errors.AsType[*hold.Error](err); ok {
			detail = held.Detail
		}
		k.add(StatusProblem, "dead letters", to.Name, "a bad record would stall its table until then", "%s", detail)
		return
	}
	switch kept := s.Settings.RetentionTime; {
	case s.Partitions == 0:
		k.add(StatusOK, "dead letters", to.Name, "", "does not exist yet: it is created with the first dead letter")
	case s.SettingsErr != nil:
		what, _ := explainError(s.SettingsErr)
		k.add(StatusWarning, "dead letters", to.Name, "allow DescribeConfigs on it: how large dead letters may be and how long they stay is guessed", "%s", what)
	case s.Settings.Delete && kept >= 0 && (to.Retention < 0 || kept < to.Retention):
		wanted := "for ever"
		if to.Retention >= 0 {
			wanted = config.FormatDays(to.Retention)
		}
		k.add(StatusWarning, "dead letters", to.Name, "raise its retention.ms", "dead letters are kept for %s; the configuration wants %s", config.FormatDays(kept), wanted)
	default:
		k.add(StatusOK, "dead letters", to.Name, "", "%s, %s, dead letters of up to %s", Counting(int64(s.Partitions), "partition"), retention(s.Settings), config.FormatSize(s.Settings.MaxBatch))
	}
}
