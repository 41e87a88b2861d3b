package app

import (
	"context"
	"fmt"

	"sluice/internal/config"
	"sluice/reliability/origin"
	"sluice/secure/reload"
)

// openOrigins reads the keys that sign and verify the origins of records which a replay produces to their topic.
// Without ops.replay_secret_file, s.originKeys stays nil, and members treat a record with an origin as an ordinary
// one.
func (s *Member) openOrigins(ctx context.Context) (err error) {
	path := s.config.Ops.ReplaySecretFile
	if path == "" {
		return nil
	}
	s.originKeys, err = reload.Open(ctx, path, config.ReadOriginKeys, func(ctx context.Context, before, now *origin.Keys) {
		if before != nil && !before.Equal(*now) {
			s.logger.InfoContext(ctx, "ops.replay_secret_file changed; using the new keys", "file", path, "keys", now.Len())
		}
	}, s.logger)
	if err != nil {
		return fmt.Errorf("ops.replay_secret_file: %w", err)
	}
	return nil
}

// originsOf returns the function that returns the current keys for the origins in a topic; see
// [connector.TopicConfig]. It returns nil if there are no keys, and for a dead-letter topic, to which no replay
// produces records.
func (s *Member) originsOf(topic config.Topic) func() origin.Keys {
	if s.originKeys == nil || topic.IsLetters() {
		return nil
	}
	return func() origin.Keys { return *s.originKeys.Value() }
}
