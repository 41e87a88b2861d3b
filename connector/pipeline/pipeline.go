// Package pipeline starts and stops the parts of a member that move records: the reader with its lanes and writers,
// the writing of committed offsets, and the group membership.
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

// Config is the configuration of a pipeline. Package internal/app fills it from config.yaml, which explains each
// key.
type Config struct {
	Pipeline string
	// Topics are the topics that are known before the group assigns any partitions; the assignment may bring more. With
	// UntilCurrent, the run reads the topics in Topics to the ends that they had at its start.
	Topics               []string
	Queue                connector.QueueConfig
	OffsetCommitInterval time.Duration // how often the group's offsets are committed
	Drain                time.Duration // the longest time of the drain
	Lanes                int           // the number of lanes; 0 for one per core
	// UntilCurrent ends the run once the tables have all records that the topics had when the run started. The run does
	// not wait for claims that are held.
	UntilCurrent bool
	// Member is the name of this process in dead letters and batch ids. It must be unique among all members, past
	// ones included.
	Member string
}

// Pipeline moves every record of its topics into their tables.
type Pipeline struct {
	Config
	Group     connector.Group
	Log       connector.Log
	Tables    intake.Tables
	Decisions intake.Decisions   // nil if operators decide nothing
	Kafka     *reliability.Guard // for requests to Kafka, except fetches
	Pools     connector.Pools
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
	Loops     *pulse.Loops // nil if the loops of a run are not watched

	status atomic.Pointer[connector.Status]
}

// rejoinAfter is how long a member waits before it joins the group again after the cluster refused it.
const rejoinAfter = time.Minute

// Run joins the group, moves records until ctx ends (or until the tables are current, if configured), drains and
// leaves the group. It returns an error only if a topic of Topics feeds no table.
//
// A failing dependency never ends Run: the claims that need the dependency are held, with a reason, and resume by
// themselves.
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
	// When ctx ends, the goroutines of the pipeline continue: the drain waits for a commit that has begun, but no
	// longer than Drain. Then they are canceled.
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var goroutines sync.WaitGroup
	goroutines.Go(func() { offsets.Run(working) })
	inGroup, leave := context.WithCancel(working)
	left := make(chan struct{})
	defer r.Sweep()
	go func() {
		defer close(left)
		p.member(inGroup, r)
	}()

	r.Run(ctx, working, &goroutines)

	stop(classify.Mark(errors.New("drained"), classify.Canceled))
	leave()
	<-left
	goroutines.Wait()
	return nil
}

// reader returns the reader with its lanes and writers.
func (p *Pipeline) reader(m *intake.Metrics, offsets *intake.Offsets) (*intake.Reader, error) {
	lanes, decisions, pools := p.Lanes, p.Decisions, p.Pools.WithDefaults()
	if lanes == 0 {
		lanes = runtime.GOMAXPROCS(0)
	}
	if decisions == nil {
		decisions = intake.NoDecisions{}
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

// member keeps this process in the group until ctx ends. If the cluster refuses the process, it tries again after
// rejoinAfter.
func (p *Pipeline) member(ctx context.Context, r *intake.Reader) {
	deliver := func(a connector.Assignment) { r.Deliver(ctx, a) }
	var refused reliability.FailureLog
	for {
		err := p.Group.Run(ctx, deliver)
		if ctx.Err() != nil {
			return
		}
		refused.Failed(ctx, p.Logger, slog.LevelError, "left the group; joining again", "err", err, "class", classify.Of(err).String(), "pause", rejoinAfter)
		deliver(connector.Assignment{Joined: false})
		if reliability.Wait(ctx, rejoinAfter) != nil {
			return
		}
	}
}

// Status returns the newest status of the member, or the zero value if there is none yet. It never blocks.
func (p *Pipeline) Status() connector.Status {
	if s := p.status.Load(); s != nil {
		return *s
	}
	return connector.Status{}
}
