package app

import (
	"context"
	"fmt"

	"sluice/internal/config"
	"sluice/reliability/origin"
	"sluice/secure/reload"
)

// openOrigins reads the keys of records that replays produce to their topic, and keeps them for watching. Without
// ops.replay_secret_file it does nothing: then no record has an origin that counts.
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

// originsOf returns the keys of a topic for [connector.TopicConfig]. Nothing replays dead letters of a dead-letter topic.
func (s *Member) originsOf(topic config.Topic) func() origin.Keys {
	if s.originKeys == nil || topic.IsLetters() {
		return nil
	}
	return func() origin.Keys { return *s.originKeys.Value() }
}
