package admin

import (
	"errors"
	"fmt"
	"strings"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// ParseTargets parses TOPIC and TOPIC:PARTITION texts; without texts it returns the whole pipeline. Unless anyTopic is
// set, it refuses topics that the configuration does not cover. A resume sets anyTopic, because a topic stays paused
// after it was removed from the configuration. The errors have [fail.KindUsage].
func ParseTargets(cfg *config.Config, texts []string, anyTopic bool) (targets []opslog.Target, err error) {
	if len(texts) == 0 {
		return []opslog.Target{opslog.All()}, nil
	}
	for _, text := range texts {
		t, err := opslog.ParseTarget(text)
		if err != nil {
			return nil, fail.Usage(err)
		}
		if _, meant, _ := cfg.Route(t.Topic); !meant && !anyTopic {
			return nil, fail.Usage(NoTopic(cfg, t.Topic))
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// ErrNoTopic means that the configuration does not cover a topic.
var ErrNoTopic = errors.New("is not in topics")

// NoTopic is the error of a topic that the configuration does not cover. It wraps [ErrNoTopic].
func NoTopic(cfg *config.Config, topic string) error {
	return fmt.Errorf("topic %s %w: write one of %s", topic, ErrNoTopic, strings.Join(cfg.Meant(), ", "))
}

// MaxWords bounds the name of an operator and a reason, in bytes. The operations log keeps both.
const MaxWords = 1000

// Check completes and checks the operator and the reason of an action. The errors have [fail.KindUsage].
func (by *By) Check() error {
	by.Operator, by.Reason = strings.TrimSpace(by.Operator), strings.TrimSpace(by.Reason)
	switch {
	case by.Reason == "":
		return fail.Usage(errors.New("the reason is missing: say why; the operations log keeps it"))
	case len(by.Operator) > MaxWords || len(by.Reason) > MaxWords:
		return fail.Usage(fmt.Errorf("operator and reason may have %d bytes", MaxWords))
	}
	return nil
}
