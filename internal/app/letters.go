package app

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"sluice/connector/kafka"
	"sluice/health/lettercount"
	"sluice/reliability"
	"sluice/reliability/deadletter"
	"sluice/sink/delta/objstore"
)

// letterWriter writes the dead letters of one table. It has a guard of its own, so that a dead-letter topic which
// refuses records stops only the tables that write to it.
type letterWriter struct {
	*kafka.DeadLetters
	guard *reliability.Guard
	rate  *lettercount.Rate
}

// Write implements [connector.DeadLetters]. It also counts the written dead letters for the rate that health shows.
func (w *letterWriter) Write(ctx context.Context, all []deadletter.Letter) error {
	err := w.DeadLetters.Write(ctx, all)
	if err == nil {
		w.rate.Add(time.Now(), len(all))
	}
	return err
}

func (s *Member) letterWriter(t *writtenTable, logger *slog.Logger) *letterWriter {
	guard := reliability.NewGuard("dead_letters", s.config.Guard(), logger, t.metrics)
	return &letterWriter{kafka.NewDeadLetters(s.client, kafka.DeadLettersConfig{
		Pipeline: s.config.Pipeline, Topic: s.config.LetterTopic, Objects: letterObjects{s.store, t.storeGuard}, Guard: guard,
	}, logger, t.metrics), guard, &s.letterRate}
}

// letterObjects puts records that are too large for a dead-letter topic into the bucket, as objects below _sluice.
type letterObjects struct {
	store objstore.Store
	guard *reliability.Guard
}

// Put implements [kafka.LetterObjects]. The key contains the record's coordinates, so a repeated Put replaces an object
// with the same bytes.
func (o letterObjects) Put(ctx context.Context, key string, object []byte) error {
	return o.guard.Do(ctx, func(ctx context.Context) error {
		return o.store.Put(ctx, key, bytes.NewReader(object), objstore.Replace)
	})
}
