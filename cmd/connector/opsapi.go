package main

import (
	"context"
	"log/slog"

	"sluice/internal/api"
	"sluice/internal/app"
	"sluice/internal/config"
)

// opsAPI returns the constructor of a member's ops API, nil if the configuration turns it off.
func opsAPI(cfg *config.Config, level *slog.LevelVar, logger *slog.Logger) func(context.Context, *app.Member) (app.FrontEnd, error) {
	if cfg.Ops.Listen == "" {
		return nil
	}
	return func(ctx context.Context, m *app.Member) (app.FrontEnd, error) {
		return api.New(ctx, api.Options{
			Config: cfg, Version: readBuild().Version, Member: m.Name(), Report: m.Report, Flushes: m.Flushes, Level: level, Logger: logger, Metrics: m.Registry(),
		})
	}
}
