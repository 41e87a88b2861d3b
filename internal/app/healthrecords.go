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

// secretEvery is how soon a changed file of a secret is noticed.
const secretEvery = 5 * time.Second

// heldSecret is what a file of a secret holds. What was usable last stays in force while the file is broken, as it is for
// a moment in which another process writes a new one.
type heldSecret struct {
	path  string
	value atomic.Pointer[string]

	mu     sync.Mutex // one reads the file at a time
	broken string     // what was last said about it
}

// get returns the secret. Any goroutine may ask.
func (h *heldSecret) get() string {
	if v := h.value.Load(); v != nil {
		return *v
	}
	return ""
}

// refresh reads the file again. The error is of a file that never was usable.
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
			logger.WarnContext(ctx, "the changed file of a secret cannot be used, what it held before stays in force", "file", h.path, "err", err)
		}
		return nil
	case before != nil && *before != now:
		logger.InfoContext(ctx, "the file of a secret changed, the new one is in force", "file", h.path)
	}
	h.broken = ""
	h.value.Store(&now)
	return nil
}

// heldSecrets are the secrets of a configuration's health-check records, by file.
type heldSecrets map[string]*heldSecret

// openSecrets reads the secret of each entry of topics that has one.
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

// watch looks at the files until ctx ends.
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
			_ = h.refresh(ctx, logger) // it was usable when it was opened
		}
	}
}

// of says what becomes of a topic's health-check records. Dead letters keep the headers of their records and are never
// dropped: one that was not dropped at its source must not vanish here.
func (s heldSecrets) of(t config.Topic) connector.HealthRecords {
	h := connector.HealthRecords{Drop: t.HealthRecords.Drop && t.Format != "dead_letter"}
	if held := s[t.HealthRecords.SecretFile]; held != nil {
		h.Secret = held.get
	}
	return h
}
