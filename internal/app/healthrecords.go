package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/connector/kafka/dial"
	"sluice/internal/config"
)

// secretEvery is the pause between two reads of a secret file.
const secretEvery = 5 * time.Second

// heldSecret is the content of a secret file. While the file cannot be used, for example because another process is
// writing it, the last usable content stays in force.
type heldSecret struct {
	path  string
	value atomic.Pointer[string]

	mu     sync.Mutex // held during refresh, so that only one runs
	broken string     // the text of the error that was logged last; an equal one is not logged again
}

// get returns the secret. Any goroutine may call it.
func (h *heldSecret) get() string {
	if v := h.value.Load(); v != nil {
		return *v
	}
	return ""
}

// refresh reads the file again. It returns an error only if the file has never been usable; later errors are logged.
func (h *heldSecret) refresh(ctx context.Context, logger *slog.Logger) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, err := dial.ReadSecret(h.path)
	before := h.value.Load()
	switch {
	case err != nil && before == nil:
		return fmt.Errorf("health_records.secret_file: %w", err)
	case err != nil:
		if h.broken != err.Error() {
			h.broken = err.Error()
			logger.WarnContext(ctx, "failed to read a changed secret file; keeping the last secret", "file", h.path, "err", err)
		}
		return nil
	case before != nil && *before != now:
		logger.InfoContext(ctx, "secret file changed; using the new secret", "file", h.path)
	}
	h.broken = ""
	h.value.Store(&now)
	return nil
}

// heldSecrets holds the secrets of the health-check records, by file.
type heldSecrets map[string]*heldSecret

// openSecrets reads the secret files that the configured topics and patterns name.
func openSecrets(ctx context.Context, c *config.Config, logger *slog.Logger) (heldSecrets, error) {
	all := heldSecrets{}
	add := func(t *config.Topic) error {
		path := t.HealthRecords.SecretFile
		if path == "" || all[path] != nil {
			return nil
		}
		all[path] = &heldSecret{path: path}
		return all[path].refresh(ctx, logger)
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
func (s heldSecrets) watch(ctx context.Context, logger *slog.Logger) {
	turn := time.NewTicker(secretEvery)
	defer turn.Stop()
	for {
		select {
		case <-turn.C:
		case <-ctx.Done():
			return
		}
		for _, h := range s {
			_ = h.refresh(ctx, logger) // cannot fail, because openSecrets found the file usable
		}
	}
}

// of returns how the pipeline treats the health-check records of a topic. It drops no record of a dead-letter topic: a
// dead letter has the headers of its record, so it can have that of a health-check record.
func (s heldSecrets) of(t config.Topic) connector.HealthRecords {
	h := connector.HealthRecords{Drop: t.HealthRecords.Drop && t.Format != "dead_letter"}
	if held := s[t.HealthRecords.SecretFile]; held != nil {
		h.Secret = held.get
	}
	return h
}
