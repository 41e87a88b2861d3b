package main

// ofOutages has the mutants that break the rules for retries, counters, logs and reports while a dependency does not
// answer.
var ofOutages = []mutant{
	// The breaker.
	{
		name: "a timeout does not count as a failure",
		file: "reliability/guard.go",
		old:  "errors.Is(ctx.Err(), context.Canceled) && !g.answer(err)", new: "ctx.Err() != nil && !g.answer(err)",
		pkg: "./reliability", test: "^TestGuard_NoAnswerInTime$",
	},
	{
		name: "a canceled request counts as a failure",
		file: "reliability/guard.go",
		old:  "errors.Is(ctx.Err(), context.Canceled) && !g.answer(err)", new: "err == nil && !g.answer(err)",
		pkg: "./reliability", test: "^TestGuard_NoAnswerInTime$",
	},
	{
		name: "the error of an open breaker does not name the failure",
		file: "reliability/guard.go",
		old:  "if last := g.Status().Err; last != nil {", new: "if last := g.Status().Err; last == errOpen {",
		pkg: "./reliability", test: "^TestGuard_OpenBreakerNamesTheFailure$",
	},

	// The command holds.
	{
		name: "holds: one dependency may take the whole time limit",
		file: "internal/admin/holds_ask.go",
		old:  "\teach := timeout / 2", new: "\teach := timeout",
		pkg: "./cmd/connector", test: "^TestHolds_NothingKnown$",
	},
	{
		name: "holds: a member that hangs counts as not running",
		file: "internal/admin/holds_ask.go",
		old:  "named || !errors.Is(err, syscall.ECONNREFUSED)", new: "named && !errors.Is(err, syscall.ECONNREFUSED)",
		pkg: "./cmd/connector", test: "^TestHolds_NothingKnown$",
	},
	{
		name: "holds: a dependency without a response hides the holds found",
		file: "cmd/connector/holds.go",
		old:  "case len(found.Holds) > 0:", new: "case len(found.Holds) > 0 && len(found.Missed) == 0:",
		pkg: "./cmd/connector", test: "^TestHolds_Outages$",
	},

	// Log lines and counters.
	{
		name: "a failure writes a line each minute",
		file: "reliability/failurelog.go",
		old:  "laterLines = 5 * time.Minute", new: "laterLines = time.Minute",
		pkg: "./reliability", test: "^TestFailureLog_TenHours$",
	},
	{
		name: "a failure that comes back soon counts as new",
		file: "reliability/failurelog.go",
		old:  "f.lines == 0 || now.Sub(f.ended) >= secondLine", new: "true",
		pkg: "./reliability", test: "^TestFailureLog_NowAndThen$",
	},
	{
		name: "each failed probe is logged",
		file: "reliability/guard.go",
		old:  "g.opening.Failed(ctx, g.log, slog.LevelWarn, \"circuit breaker\", about...)", new: "g.log.Warn(\"circuit breaker\", about...)",
		pkg: "./reliability", test: "^TestGuard_TenHours$",
	},
	{
		name: "a retry does not name its batch",
		file: "reliability/guard.go",
		old:  "append(slices.Clip(about), \"dependency\"", new: "append(slices.Clip(about[:0]), \"dependency\"",
		pkg: "./reliability", test: "^TestGuard_TenHours$",
	},
	{
		name: "a claim that waits for a dependency is not counted",
		file: "connector/intake/outage.go",
		old:  "if !o.claims[h.Partition] {", new: "if o.claims[h.Partition] {",
		pkg: "./connector/intake", test: "^TestStatus_OutageIsHold$",
	},
	{
		name: "the end of an outage is not logged",
		file: "connector/intake/outage.go",
		old:  "if len(now[why]) == 0 {", new: "if len(now[why]) < 0 {",
		pkg: "./connector/intake", test: "^TestStatus_OutageIsHold$",
	},

	// The report of /health.
	{
		name: "a member that has worked is STARTING again while Kafka is down",
		file: "health/status.go",
		old:  "errors.Is(err, ErrNotResumed)) && !r.Started:", new: "errors.Is(err, ErrNotResumed)):",
		pkg: "./health", test: "^TestReady_NamesTheDependency$",
	},
	{
		name: "readiness does not name the dependency",
		file: "health/health.go",
		old:  "if t.status == OK {\n\t\treturn err", new: "if t.status != \"\" {\n\t\treturn err",
		pkg: "./health", test: "^TestReady_NamesTheDependency$",
	},
	{
		name: "a server that is not Kafka is taken for one that denies access",
		file: "connector/kafka/errors.go",
		old:  "return e.Cause == dial.NotKafka ||", new: "return",
		pkg: "./connector/kafka", test: "^TestNotKafka$",
	},
	{
		name: "a broker that is too old is taken for one that is down",
		file: "connector/kafka/errors.go",
		old:  "return errors.Is(err, errVersion) ||", new: "return",
		pkg: "./connector/kafka", test: "^TestLogOldBroker$",
	},
	{
		name: "a member that was never ready does not log it",
		file: "health/ops/probes.go",
		old:  "(s.wasReady || now.Sub(s.checked) >= startupGrace)", new: "s.wasReady",
		pkg: "./health/ops", test: "^TestReadiness_NeverReady$",
	},
	{
		name: "retries of a commit do not name their batch",
		file: "sink/delta/commit.go",
		old:  "t.refresh(ctx, t.store.of(c.Batch))", new: "t.refresh(ctx, t.store)",
		pkg: "./sink/delta", test: "^TestRetries_NameTheirBatch$",
	},
	{
		name: "retries of fingerprints do not name their batch",
		file: "idempotency/postgres/store.go",
		old:  "	}, s.about...)", new: "	})",
		pkg: "./idempotency/postgres", test: "^TestOpen$",
	},
	{
		name: "a commit of unknown outcome shows the open breaker alone",
		file: "internal/app/report.go",
		old:  "if h, undecided := t.Undecided(); undecided {", new: "if h, undecided := t.Undecided(); undecided && s.fingerprintGuard == nil {",
		pkg: "./internal/app", test: "^TestOutage_NewPartition$",
	},
	{
		name: "claims that wait for Postgres show no hold",
		file: "internal/app/report.go",
		old:  "h := waiting(s.fingerprintGuard, hold.FingerprintsUnavailable); h != nil", new: "h := waiting(s.fingerprintGuard, hold.FingerprintsUnavailable); h != nil && !s.tested.Load()",
		pkg: "./internal/app", test: "^TestOutage_NewPartition$",
	},
}
