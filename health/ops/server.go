package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/health"
)

// The bounds of a request. Nothing here waits for Kafka or the store, so all of them are generous.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 10 * time.Second
	answerTimeout   = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	headerBytes     = 16 << 10
	scrapes         = 4 // at the same time
)

// Server answers GET and HEAD of /health, /health/live, /health/ready and /metrics.
type Server struct {
	listen string
	report func() health.Report
	live   func() error
	log    *slog.Logger
	server *http.Server

	mu       sync.Mutex
	listener net.Listener
	wasReady bool
	failed   bool // the last readiness check did, and it was logged
}

// NewServer returns a server for listen, which is host:port; port 0 takes a free one. report and live are called for
// each request, from any goroutine, and must not block. live says why the process should be restarted, nil if it should
// not.
func NewServer(listen string, report func() health.Report, live func() error, metrics prometheus.Gatherer, log *slog.Logger) *Server {
	s := &Server{listen: listen, report: report, live: live, log: log}
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	routes := http.NewServeMux()
	routes.HandleFunc("GET /health", s.serveReport)
	routes.HandleFunc("GET /health/live", s.serveLive)
	routes.HandleFunc("GET /health/ready", s.serveReady)
	routes.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: errorLog, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: requestTimeout,
	}))
	s.server = &http.Server{
		Handler: routes, ErrorLog: errorLog, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
	}
	return s
}

// Listen binds the address and returns it, so that an address in use is known before anything else starts. Run does it
// if nobody did.
func (s *Server) Listen(ctx context.Context) (net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", s.listen)
		if err != nil {
			return nil, fmt.Errorf("health: listen on %s: %w", s.listen, err)
		}
		s.listener = l
	}
	return s.listener.Addr(), nil
}

// Run serves until ctx ends; then it finishes the requests under way and returns nil. End it last, so that probes see
// the drain.
func (s *Server) Run(ctx context.Context) error {
	if _, err := s.Listen(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("health: serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := s.server.Shutdown(grace)
	if err != nil { // a slow client has no right to hold us up
		err = s.server.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("health: stop: %w", err)
	}
	return nil
}

// answer is what the probes say.
type answer struct {
	Status health.Status `json:"status"`
	Reason string        `json:"reason,omitempty"`
}

func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	if err := s.live(); err != nil {
		s.log.ErrorContext(r.Context(), "Liveness check FAILED", "reason", err.Error())
		s.write(w, r, http.StatusServiceUnavailable, answer{"stalled", err.Error()})
		return
	}
	s.write(w, r, http.StatusOK, answer{Status: health.OK})
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	report := s.report()
	err := report.Ready()
	s.logReady(r.Context(), err)
	if err != nil {
		s.write(w, r, http.StatusServiceUnavailable, answer{report.Status(), err.Error()})
		return
	}
	s.write(w, r, http.StatusOK, answer{Status: report.Status()})
}

// logReady logs when readiness was lost and when it came back. Probes come every few seconds; one line says it.
func (s *Server) logReady(ctx context.Context, err error) {
	s.mu.Lock()
	lost := err != nil && s.wasReady && !s.failed
	back := err == nil && s.failed
	if err == nil {
		s.wasReady, s.failed = true, false
	} else if lost {
		s.failed = true
	}
	s.mu.Unlock()
	switch {
	case lost && !errors.Is(err, health.ErrDraining):
		s.log.WarnContext(ctx, "Readiness check FAILED", "reason", err.Error())
	case back:
		s.log.InfoContext(ctx, "Readiness check passed again")
	}
}

type reportAnswer struct {
	answer
	Ready        bool                `json:"ready"`
	Pipeline     string              `json:"pipeline"`
	Group        string              `json:"group"`
	Joined       bool                `json:"joined"`
	Resumed      bool                `json:"resumed"`
	Draining     bool                `json:"draining"`
	TotalLag     int64               `json:"total_lag"`
	Holds        []holdAnswer        `json:"holds"`
	Partitions   []partitionAnswer   `json:"partitions"`
	Dependencies []health.Dependency `json:"dependencies"`
	Canary       *health.Canary      `json:"canary,omitempty"`
}

type holdAnswer struct {
	health.Hold
	EndsBy string `json:"ends_by"`
}

type partitionAnswer struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Position  *int64 `json:"position"` // null if unknown, like the others
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"`
}

// serveReport answers 200 whatever it says: it describes, the probes judge.
func (s *Server) serveReport(w http.ResponseWriter, r *http.Request) {
	report := s.report()
	a := reportAnswer{
		answer: answer{Status: report.Status()}, Ready: true, Pipeline: report.Pipeline, Group: report.Group,
		Joined: report.Joined, Resumed: report.Resumed, Draining: report.Draining, TotalLag: report.TotalLag(),
		Holds: []holdAnswer{}, Partitions: []partitionAnswer{}, Dependencies: report.Dependencies, Canary: report.Canary,
	}
	if err := report.Ready(); err != nil {
		a.Ready, a.Reason = false, err.Error()
	}
	if a.Dependencies == nil {
		a.Dependencies = []health.Dependency{}
	}
	for _, h := range report.Holds {
		a.Holds = append(a.Holds, holdAnswer{h, health.Ends(h.Reason)})
	}
	for _, p := range report.Partitions {
		pa := partitionAnswer{Topic: p.Topic, Partition: p.ID}
		if p.Position >= 0 {
			pa.Position = &p.Position
		}
		if p.End >= 0 {
			pa.End = &p.End
		}
		if lag, known := p.Lag(); known {
			pa.Lag = &lag
		}
		a.Partitions = append(a.Partitions, pa)
	}
	s.write(w, r, http.StatusOK, a)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		s.log.ErrorContext(r.Context(), "health answer", "err", err)
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if _, err := w.Write(append(body, '\n')); err != nil { // the client went away
		s.log.DebugContext(r.Context(), "health answer", "err", err)
	}
}
