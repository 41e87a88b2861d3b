package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/health/ops"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
)

// Run builds a member and runs it until ctx ends or, with [Options.UntilCurrent], until its tables are current. Its
// errors have a kind of package fail, from which the command takes the exit code.
func Run(ctx context.Context, cfg *config.Config, o Options, logger *slog.Logger) error {
	cfg.Budget.LimitRuntime(logger, os.Getenv)
	s, err := New(ctx, cfg, o, logger)
	if err != nil {
		return fail.Usage(err)
	}
	if o.Exit != nil {
		ended := make(chan struct{})
		var enforcing sync.WaitGroup
		defer enforcing.Wait()
		defer close(ended)
		enforcing.Go(func() {
			s.watchdog.Enforce(ctx, cfg.Shutdown.Drain+endWithin, ended, o.Exit)
		})
	}
	defer s.Close()
	return s.Run(ctx)
}

// Run starts the member and blocks until it has stopped. It starts, in this order: the health server, so that probes
// get responses; the ops API; the store's self-test; the operations log, for pauses; fetching; the group. The pipeline
// stops first, then all others at once, so that probes see the drain.
func (s *Member) Run(ctx context.Context) error {
	cfg, logger := s.config, s.logger
	ctx, said := untilSaid(ctx, func(ctx context.Context) {
		logger.InfoContext(ctx, "Shutting down gracefully", "drain", cfg.Shutdown.Drain)
	})
	defer said()
	var background sync.WaitGroup
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer background.Wait()
	defer end()
	if err := s.watchdog.Begin(); err != nil {
		return fail.Usage(fmt.Errorf("health.liveness_file: %w", err))
	}
	background.Go(func() { s.watchdog.Run(lasting) })
	if cfg.Health.Enabled {
		server := ops.NewServer(cfg.Health.Listen, s.Report, s.watchdog.Live, s.registry, logger)
		s.registry.MustRegister(ops.NewCollector(s.Report), server.Closed())
		address, err := server.Listen(ctx)
		if err != nil {
			return fail.Usage(fmt.Errorf("health.listen: %w", err))
		}
		logger.InfoContext(ctx, "health", "address", address.String())
		if s.healthListens != nil {
			s.healthListens(address)
		}
		if s.advertiser != nil {
			s.advertiser.listen = address // before the keeper starts
		}
		background.Go(func() {
			if err := server.Run(lasting); err != nil {
				logger.ErrorContext(ctx, "health server failed", "err", err)
			}
		})
	}
	if err := s.startFrontEnd(ctx, lasting, &background); err != nil {
		return err
	}
	if s.keeper != nil {
		background.Go(func() { s.keeper.Run(lasting, ctx.Done()) })
	}
	if err := s.testStore(ctx, logger); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before the pipeline started
		}
		return err
	}
	background.Go(func() { s.operations.Run(lasting) })
	background.Go(func() { s.secrets.watch(lasting) })
	if s.originKeys != nil {
		background.Go(func() { s.originKeys.Watch(lasting) })
	}
	if s.mirror != nil {
		background.Go(func() { s.mirror.Run(lasting) })
	}
	if err := s.awaitOperations(ctx); err != nil {
		return nil // stopped before the pipeline started
	}
	background.Go(func() {
		if err := s.log.Run(lasting); err != nil {
			logger.ErrorContext(ctx, "fetching failed", "err", err)
		}
	})
	if err := s.watchDataLoss(lasting, &background); err != nil {
		return fail.Usage(err)
	}
	if cfg.Health.Enabled { // only the health server shows the count
		if err := s.watchLetters(lasting, &background); err != nil {
			return fail.Usage(err)
		}
	}
	if s.lags != nil {
		background.Go(func() { s.lags.run(lasting) })
	}

	if s.untilCurrent {
		if err := s.fix(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // stopped before the pipeline started
			}
			return err
		}
	}
	if s.canary != nil {
		background.Go(func() { s.canary.Run(ctx) })
	}
	logger.InfoContext(ctx, "starting", "pipeline", cfg.Pipeline, "group", cfg.Kafka.Group, "version", s.version)
	if err := s.pipeline.Run(ctx); err != nil {
		return fail.Usage(err)
	}
	return s.result(ctx, logger)
}

// untilSaid returns a context that outlives ctx until say has returned. When ctx ends, untilSaid calls say, which logs
// the signal to stop; then the returned context ends. So the line about the signal precedes all lines that the signal
// causes. The caller calls end, which waits for a running say and ends the returned context.
func untilSaid(ctx context.Context, say func(context.Context)) (_ context.Context, end func()) {
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		say(ctx)
		cancel(context.Cause(ctx))
	})
	return working, func() {
		if !stop() {
			<-said
		}
		cancel(nil)
	}
}

// testStore tests that the store refuses a second conditional put of the same object, on which every commit depends. It
// returns an error if the store accepts the second put, or if ctx ends. While the store is down or denies access,
// testStore retries and shows a hold, because an outage must not require a restart.
func (s *Member) testStore(ctx context.Context, logger *slog.Logger) error {
	var failing reliability.FailureLog
	for failures := 1; ; failures++ {
		err := objstore.SelfTest(ctx, s.store)
		switch {
		case err == nil:
			s.refused.Store(nil)
			s.tested.Store(true)
			failing.Over(ctx, logger, "the store's self-test passes")
			return nil
		case ctx.Err() != nil:
			return err
		case errors.Is(err, objstore.ErrUnsafe):
			return fail.Refused(fmt.Errorf("storage.url: %w", err))
		}
		h := &hold.Hold{Reason: hold.StoreDenied, Detail: err.Error(), Since: time.Now(), Offset: -1}
		pause, level := time.Minute, slog.LevelError
		if classify.Of(err) == classify.Transient {
			h.Reason, pause, level = hold.StoreDown, s.config.Guard().Pause(failures), slog.LevelWarn
		}
		if before := s.refused.Load(); before != nil && before.Reason == h.Reason {
			h.Since = before.Since
		}
		s.refused.Store(h)
		failing.Failed(ctx, logger, level, "HOLD", "reason", string(h.Reason), "class", classify.Of(err).String(), "detail", err, "pause", pause)
		if err := reliability.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// result logs the holds that are left at the end of a run until current, and returns an error of [fail.KindFound] if
// there are any. For any other run it returns nil.
func (s *Member) result(ctx context.Context, logger *slog.Logger) error {
	st := s.pipeline.Status()
	if !s.untilCurrent {
		return nil
	}
	holds := slices.Clone(st.Left)
	for _, c := range st.Claims {
		if c.Hold != nil {
			holds = append(holds, *c.Hold)
		}
	}
	for _, a := range s.group.Absent() {
		holds = append(holds, hold.Hold{Partition: connector.Partition{Topic: a.Topic, ID: -1}, Reason: a.Reason, Detail: a.Detail, Offset: -1})
	}
	for _, h := range holds {
		logger.ErrorContext(ctx, "held at the end", "topic", h.Partition.Topic, "partition", h.Partition.ID,
			"reason", string(h.Reason), "detail", h.Detail, "offset", h.Offset)
	}
	if len(holds) > 0 {
		return fail.Found(nil)
	}
	return nil
}

// endWithin bounds the time after shutdown.drain in which a stopping process leaves the group, ends its background
// goroutines and closes its connections. With the default drain the sum stays below the 30 s after which Kubernetes
// kills the process.
const endWithin = 8 * time.Second
