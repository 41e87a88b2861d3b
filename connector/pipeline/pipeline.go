// Package pipeline starts and ends what moves records: the reader with its lanes and writers, the group offsets, the membership.
package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/intake"
	"sluice/connector/lane"
	"sluice/reliability"
	"sluice/reliability/pulse"
)

// Config is what steers a pipeline. internal/app fills it from config.yaml, where each key is explained.
type Config struct {
	Pipeline string
	// Topics are those known before any assignment. A run until current ends at their ends; others come by assignment.
	Topics               []string
	Queue                connector.QueueConfig
	OffsetCommitInterval time.Duration // group offsets are at most this stale
	Drain                time.Duration // from the signal to stop to the end
	Lanes                int           // 0: one per core
	// UntilCurrent ends the run once the table has what the topics held at its start, or holds.
	UntilCurrent bool
	// Member names this process in dead letters and in the ids of batches: unlike any other's, now and before.
	Member string
}

// Pipeline moves every record of its topics into their tables.
type Pipeline struct {
	Config
	Group     connector.Group
	Log       connector.Log
	Tables    intake.Tables
	Decisions intake.Decisions   // nil: none are made
	Kafka     *reliability.Guard // around questions to Kafka that no record waits for
	Pools     connector.Pools
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
	Loops     *pulse.Loops // where the loops of a run are seen, nil if nobody looks

	status atomic.Pointer[connector.Status]
}

// rejoinAfter is how long a member that was refused waits before it joins the group again.
const rejoinAfter = time.Minute

// Run joins the group, works until ctx ends (or until current, if so configured), drains and leaves. The error is nil
// unless the configuration cannot work.
//
// A failing dependency never ends it: claims hold, with a reason, and go on by themselves.
func (p *Pipeline) Run(ctx context.Context) error {
	m := intake.NewMetrics(p.Metrics)
	offsets := intake.NewOffsets(p.Group, p.OffsetCommitInterval, p.Logger, m, p.Loops)
	r, err := p.reader(m, offsets)
	if err != nil {
		return err
	}
	if p.Metrics != nil {
		p.Metrics.MustRegister(intake.NewLastRecords(p.Status))
	}
	// Work in flight outlives the signal to stop: a started commit is finished, or given up at the end of the drain.
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var goroutines sync.WaitGroup
	goroutines.Go(func() { offsets.Run(working) })
	member, leave := context.WithCancel(working)
	left := make(chan struct{})
	defer r.Sweep()
	go func() {
		defer close(left)
		p.member(member, r)
	}()

	r.Run(ctx, working, &goroutines)

	stop(classify.Mark(errors.New("drained"), classify.Canceled))
	leave()
	<-left
	goroutines.Wait()
	return nil
}

// reader returns the reader, with lanes and writers that work with the same things.
func (p *Pipeline) reader(m *intake.Metrics, offsets *intake.Offsets) (*intake.Reader, error) {
	lanes, decisions, pools := p.Lanes, p.Decisions, p.Pools.WithDefaults()
	if lanes == 0 {
		lanes = runtime.GOMAXPROCS(0)
	}
	if decisions == nil {
		decisions = intake.Undecided{}
	}
	return intake.New(intake.Config{
		Topics: p.Topics, Queue: p.Queue, Drain: p.Drain, UntilCurrent: p.UntilCurrent, Member: p.Member,
		Log: p.Log, Tables: p.Tables, Decisions: decisions, Offsets: offsets, Pools: pools, Count: lanes,
		Lanes: lane.Config{Metrics: lane.NewMetrics(p.Metrics), Records: lane.NewRecordLog(p.Logger), Loops: p.Loops},
		Writers: commit.Config{
			Pipeline: p.Pipeline, Member: p.Member, Group: p.Group, Log: p.Log, Kafka: p.Kafka, Decisions: decisions,
			Lanes: lanes, Batch: pools.Batch, Fills: commit.NewFills(),
			Logger: p.Logger, Metrics: commit.NewMetrics(p.Metrics), Loops: p.Loops,
		},
		Publish: func(s *connector.Status) { p.status.Store(s) },
		Logger:  p.Logger, Metrics: m, Loops: p.Loops,
	})
}

// member stays in the group until ctx ends. A cluster that refuses us is a hold, looked at again each minute.
func (p *Pipeline) member(ctx context.Context, r *intake.Reader) {
	deliver := func(a connector.Assignment) { r.Deliver(ctx, a) }
	var refused reliability.FailureLog
	for {
		err := p.Group.Run(ctx, deliver)
		if ctx.Err() != nil {
			return
		}
		refused.Failed(ctx, p.Logger, slog.LevelError, "left the group, will join again", "err", err, "class", classify.Of(err).String(), "pause", rejoinAfter)
		deliver(connector.Assignment{Joined: false})
		if reliability.Wait(ctx, rejoinAfter) != nil {
			return
		}
	}
}

// Status returns the latest status; it never waits for the work.
func (p *Pipeline) Status() connector.Status {
	if s := p.status.Load(); s != nil {
		return *s
	}
	return connector.Status{}
}
