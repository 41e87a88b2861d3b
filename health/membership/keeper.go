package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
	"sluice/reliability"
)

const (
	// drainTTL is the least TTL of a member that shuts down, so that its registration outlives a slow drain.
	drainTTL = time.Minute
	// callTimeout bounds each call of the store: a slower store counts as one that does not answer.
	callTimeout = 1500 * time.Millisecond
	// hopeless bounds the call that unregisters this member if the store is probably down: the last heartbeat failed,
	// or is older than two intervals.
	hopeless = 500 * time.Millisecond
)

// Config of a [Keeper].
type Config struct {
	ID string // id of this member; unique
	// Beat is the interval of heartbeats, TTL how long a heartbeat is valid, Sweep the interval at which expired
	// registrations are removed.
	Beat, TTL, Sweep time.Duration
	// Poll returns how long ago this member last fetched a record, negative if never, and its lag, -1 if unknown. It
	// does not block.
	Poll func() (idle time.Duration, lag int64)
	// Address returns the address to register, "" for none; see [Beat]. The Keeper calls it before each heartbeat, and
	// it must return when ctx ends. If Address is nil, no address is registered.
	Address    func(ctx context.Context) string
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil registers no metrics
}

// Keeper keeps the registration of one member and watches those of all others. It makes its requests in a goroutine of
// its own, so that nothing else waits for the store.
type Keeper struct {
	Config
	store    Store
	metrics  metrics
	beating  reliability.FailureLog // about heartbeats
	polling  reliability.FailureLog // about polls of the members
	sweeping reliability.FailureLog // about sweeps
	foreign  reliability.FailureLog // about entries that other programs wrote
	status   Status
	lost     bool // true if the last heartbeat failed
	// silent has the members that were logged as silent. The value is the time without heartbeats at which the next line
	// is due.
	silent map[string]time.Duration

	mu     sync.Mutex
	last   pollResult
	beatAt time.Time // of the last successful heartbeat; the goroutine of Run alone sets it, and reads it without mu
}

// pollResult is the last response of the store about the members, and the error of the last poll.
type pollResult struct {
	members []Member
	health  health.Members
	at      time.Time // when the request was sent; the zero time before the first response
	err     error     // error of the last poll, which may be newer than the response; nil if that poll succeeded
}

// NewKeeper returns a keeper that does nothing before Run. The caller closes the store. It returns an error if the id
// is too long or the metrics cannot be registered.
func NewKeeper(s Store, c Config) (*Keeper, error) {
	if len(c.ID) > MaxID {
		return nil, fmt.Errorf("the id of this member has %d bytes: shorten the name of the host, %d are the most", len(c.ID), MaxID)
	}
	k := &Keeper{Config: c, store: &caughtStore{Store: s, logger: c.Logger}, status: Running, silent: map[string]time.Duration{}, metrics: newMetrics()}
	if c.Registerer == nil {
		return k, nil
	}
	for _, collector := range []prometheus.Collector{k.metrics.beats, series{k}} {
		if err := c.Registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics of members: %w", err)
		}
	}
	return k, nil
}

// Run registers the member, renews its registration and watches the other members until ctx ends; then it unregisters
// the member. Once draining is closed, the registration has the status of a shutdown. After the end of ctx Run takes
// two seconds at most.
func (k *Keeper) Run(ctx context.Context, draining <-chan struct{}) {
	defer k.leave(ctx)
	beats, sweeps := time.NewTicker(k.Beat), time.NewTicker(k.Sweep)
	defer beats.Stop()
	defer sweeps.Stop()
	k.sendBeat(ctx)
	k.poll(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-draining:
			draining = nil
			k.status = ShuttingDown
			k.sendBeat(ctx)
		case <-beats.C:
			k.sendBeat(ctx)
			k.poll(ctx)
		case <-sweeps.C:
			k.sweep(ctx)
		}
	}
}

// sendBeat sends one heartbeat. It counts and logs the result, and keeps the time of a successful one.
func (k *Keeper) sendBeat(ctx context.Context) {
	b := Beat{ID: k.ID, Status: k.status, TTL: k.TTL}
	if b.Status == ShuttingDown {
		b.TTL = max(b.TTL, drainTTL)
	}
	b.Idle, b.Lag = k.Poll()
	if k.Address != nil {
		looking, cancel := context.WithTimeout(ctx, callTimeout)
		b.Address = k.Address(looking)
		cancel()
	}
	sent := time.Now()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	fresh, err := k.store.Beat(call, b)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if k.lost = err != nil; k.lost {
		k.metrics.beats.WithLabelValues("failed").Inc()
		k.beating.Failed(ctx, k.Logger, slog.LevelWarn, "heartbeat failed", "consumer_id", k.ID, "err", err)
		return
	}
	k.beating.Over(ctx, k.Logger, "heartbeats work again", "consumer_id", k.ID)
	result := "renewed"
	if fresh {
		result = "registered"
		if k.beatAt.IsZero() {
			k.Logger.InfoContext(ctx, "registered", "consumer_id", k.ID)
		} else {
			k.Logger.InfoContext(ctx, "registered again: the registration was lost", "consumer_id", k.ID,
				"last_heartbeat", k.beatAt, "seconds", sent.Sub(k.beatAt).Seconds())
		}
	}
	k.metrics.beats.WithLabelValues(result).Inc()
	k.mu.Lock()
	k.beatAt = sent
	k.mu.Unlock()
}

// poll lists the members, judges them, and logs those that are silent.
func (k *Keeper) poll(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	asked := time.Now()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	members, err := k.store.Members(call)
	cancel()
	if ctx.Err() != nil {
		return
	}
	switch {
	case err == nil:
		k.foreign.Over(ctx, k.Logger, "no other program writes among the registrations any more")
	case errors.Is(err, ErrForeign) && members != nil:
		k.foreign.Failed(ctx, k.Logger, slog.LevelWarn, "another program wrote among the registrations", "err", err)
	default:
		k.polling.Failed(ctx, k.Logger, slog.LevelWarn, "members cannot be listed", "err", err)
		k.mu.Lock()
		k.last.err = err
		k.mu.Unlock()
		return
	}
	k.polling.Over(ctx, k.Logger, "members can be listed again")
	k.mu.Lock()
	k.last = pollResult{members: members, health: Judge(members, asked), at: asked}
	k.mu.Unlock()
	k.say(ctx, members)
}

// sweep removes the registrations whose TTL is over, and members that were not seen for the time Forget. It logs the
// number of removed registrations.
func (k *Keeper) sweep(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	swept, err := k.store.Sweep(call, Forget)
	cancel()
	switch level := slog.LevelInfo; {
	case ctx.Err() != nil:
	case err != nil:
		k.sweeping.Failed(ctx, k.Logger, slog.LevelWarn, "stale consumers cannot be removed", "err", err)
	default:
		k.sweeping.Over(ctx, k.Logger, "stale consumers can be removed again")
		if swept == 0 {
			level = slog.LevelDebug
		}
		k.Logger.Log(ctx, level, "Removed stale consumers", "count", swept)
	}
}

// leave unregisters the member, if it may have registered.
func (k *Keeper) leave(ctx context.Context) {
	if k.beatAt.IsZero() && !k.lost {
		return
	}
	timeout := callTimeout
	if k.lost || time.Since(k.beatAt) > 2*k.Beat {
		timeout = hopeless
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if err := k.store.Leave(call, k.ID); err != nil {
		k.Logger.WarnContext(ctx, "could not unregister: others will miss this member", "consumer_id", k.ID, "err", err)
	}
}

// Members returns the health of the members, judged by the last response of the store. If that response is too old, or
// the last poll failed, the status is unknown, and the members are the last known ones without findings.
func (k *Keeper) Members() health.Members {
	k.mu.Lock()
	last := k.last
	k.mu.Unlock()
	h := last.health
	switch why := k.unknown(last); {
	case why == "":
	case last.at.IsZero():
		h = health.Members{Status: health.MembersUnknown, Reason: why, Members: []health.Member{}, Findings: []health.MemberFinding{}}
	default: // keeps the members of the last response, without a verdict
		h.Status, h.Reason, h.Findings = health.MembersUnknown, why, []health.MemberFinding{}
	}
	return h
}

// unknown returns why the state of the members is unknown, "" if it is known.
func (k *Keeper) unknown(a pollResult) string {
	switch old := time.Since(a.at); {
	case a.err != nil:
		return a.err.Error()
	case a.at.IsZero():
		return "the store of registrations has not answered yet"
	case old > 3*k.Beat+callTimeout:
		return fmt.Sprintf("what is known of members is %s old", old.Round(time.Second))
	}
	return ""
}
