package ops

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sluice/health"
)

// liveJSON is the body of /health/live.
type liveJSON struct {
	Status health.Status `json:"status"`
	Reason string        `json:"reason,omitempty"`
}

func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	if err := s.live(); err != nil {
		// The watchdog has logged it. Nothing is logged here: a blocked log may be why the process hangs.
		s.write(w, r, http.StatusServiceUnavailable, liveJSON{health.Down, err.Error()})
		return
	}
	s.write(w, r, http.StatusOK, liveJSON{Status: health.OK})
}

// readyJSON is the body of /health/ready.
type readyJSON struct {
	Status health.Status `json:"status"`
	// Healthy is true exactly when the status code is 200. Reason says why the member is not healthy.
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`
	// PartitionLags are end - position at the last check, by topic:partition; LastCheckTime is null before the first
	// one.
	PartitionLags map[string]int64 `json:"partition_lags"`
	LastCheckTime *time.Time       `json:"last_check_time"`
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	report := s.report()
	s.logReady(r.Context(), report.Ready())
	sum := report.Sum()
	s.write(w, r, code(sum.Ready), readyJSON{sum.Status, sum.Ready, sum.Reason, sum.PartitionLags, sum.LastCheckTime})
}

// startupJSON is the body of /health/startup.
type startupJSON struct {
	Status health.Status `json:"status"`
	Reason string        `json:"reason,omitempty"`
	// WaitsFor are the holds of all topics, which delay the start.
	WaitsFor []health.Held `json:"waits_for,omitempty"`
}

// serveStartup answers 200 once the member has joined and resumed, and stays at 200: later failures appear in the other
// probes.
func (s *Server) serveStartup(w http.ResponseWriter, r *http.Request) {
	report := s.report()
	if report.Started {
		s.write(w, r, http.StatusOK, startupJSON{Status: health.OK})
		return
	}
	a := startupJSON{Status: report.Status(), WaitsFor: report.WaitsFor()}
	if err := report.Ready(); err != nil {
		a.Reason = err.Error()
	}
	s.write(w, r, http.StatusServiceUnavailable, a)
}

// code returns the HTTP status code 200 for true, 503 for false.
func code(yes bool) int {
	if yes {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// startupGrace is how long a member that was never ready may fail its readiness checks before a log line says so:
// joining a group and reading positions take a while.
const startupGrace = time.Minute

// logReady logs when readiness is lost and when it returns, not each check: probes come every few seconds. A member
// that was never ready is logged after startupGrace; a drain is not logged.
func (s *Server) logReady(ctx context.Context, err error) {
	now := time.Now()
	s.mu.Lock()
	if s.checked.IsZero() {
		s.checked = now
	}
	lost := err != nil && !s.failed && (s.wasReady || now.Sub(s.checked) >= startupGrace)
	back := err == nil && s.failed
	if err == nil {
		s.wasReady, s.failed = true, false
	} else if lost {
		s.failed = true
	}
	s.mu.Unlock()
	switch {
	case lost && !errors.Is(err, health.ErrDraining):
		s.logger.WarnContext(ctx, "Readiness check FAILED", "reason", err.Error())
	case back:
		s.logger.InfoContext(ctx, "Readiness check passed again")
	}
}
