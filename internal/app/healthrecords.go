package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"sluice/connector"
	"sluice/connector/kafka/dial"
	"sluice/internal/config"
	"sluice/secure/reload"
)

// heldSecrets holds the secrets of the health-check records, by file.
type heldSecrets map[string]*reload.File[string]

// openSecret reads a secret file. The returned File rereads it while its Watch runs, and logs when the secret changes.
func openSecret(ctx context.Context, path string, logger *slog.Logger) (*reload.File[string], error) {
	read := func(path string) (*string, error) {
		secret, err := dial.ReadSecret(path)
		return &secret, err
	}
	return reload.Open(ctx, path, read, func(ctx context.Context, before, now *string) {
		if before != nil && *before != *now {
			logger.InfoContext(ctx, "secret file changed; using the new secret", "file", path)
		}
	}, logger)
}

// openSecrets reads the secret files that the configured topics and patterns name.
func openSecrets(ctx context.Context, c *config.Config, logger *slog.Logger) (heldSecrets, error) {
	all := heldSecrets{}
	add := func(t *config.Topic) error {
		path := t.HealthRecords.SecretFile
		if path == "" || all[path] != nil {
			return nil
		}
		f, err := openSecret(ctx, path, logger)
		if err != nil {
			return fmt.Errorf("health_records.secret_file: %w", err)
		}
		all[path] = f
		return nil
	}
	for _, name := range c.TopicNames() {
		t := c.Topics[name]
		if err := add(&t); err != nil {
			return nil, err
		}
	}
	for _, p := range c.Patterns {
		if err := add(&p.Topic); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// watch refreshes the secrets until ctx ends.
func (s heldSecrets) watch(ctx context.Context) {
	var watching sync.WaitGroup
	for _, f := range s {
		watching.Go(func() { f.Watch(ctx) })
	}
	watching.Wait()
}

// of returns how the pipeline treats the health-check records of a topic. It drops no record of a dead-letter topic: a
// dead letter has the headers of its record, so the header that marks a health-check record may be one of them.
func (s heldSecrets) of(t config.Topic) connector.HealthRecords {
	h := connector.HealthRecords{Drop: t.HealthRecords.Drop && !t.IsLetters()}
	if held := s[t.HealthRecords.SecretFile]; held != nil {
		h.Secret = func() string { return *held.Value() }
	}
	return h
}
