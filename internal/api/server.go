package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"sluice/health"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/reliability/connlimit"
	"sluice/secure/reload"
	"sluice/secure/tokens"
	"sluice/secure/webconfig"
)

// The bounds of a connection and a request.
const (
	headerTimeout   = 5 * time.Second
	readTimeout     = 15 * time.Second
	writeTimeout    = 60 * time.Second
	idleTimeout     = 30 * time.Second
	shutdownTimeout = 5 * time.Second
	headerBytes     = 16 << 10
	bodyBytes       = 1 << 20
	connectionLimit = 64
)

// Options has the configuration, and the parts of the member that the API shows or changes.
type Options struct {
	Config  *config.Config
	Version string               // of this program
	Member  string               // name of this member
	Report  func() health.Report // of this member; called from any goroutine
	Flushes func() []admin.Flush
	Level   *slog.LevelVar // of the log
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Server serves the API. It never waits for the pipeline, and the pipeline never waits for it.
type Server struct {
	Options

	config   *config.Config
	tokens   *reload.File[tokens.Set]       // nil without a tokens file
	web      *reload.File[webconfig.Config] // nil without a web configuration
	origins  *http.CrossOriginProtection
	logins   *logins
	rate     *rate.Limiter // nil without a limit
	places   [kinds]chan struct{}
	jobs     jobs
	requests *prometheus.CounterVec
	conns    *connlimit.Listener
	server   *http.Server
	now      func() time.Time // replaced in tests
	within   time.Duration    // deadline of a request; shorter in tests
}

// New returns a server. It returns an error if the tokens file or the web configuration cannot be used.
func New(ctx context.Context, o Options) (*Server, error) {
	s := &Server{
		Options: o, config: o.Config, origins: http.NewCrossOriginProtection(), logins: newLogins(), now: time.Now, within: requestDeadline, jobs: jobs{logger: o.Logger},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_api_requests_total", Help: "Requests to the ops API, by route and HTTP status; other is a path without a route.",
		}, []string{"route", "code"}),
	}
	var err error
	if path := o.Config.Ops.TokensFile; path != "" {
		if s.tokens, err = tokens.Open(ctx, path, o.Logger); err != nil {
			return nil, fmt.Errorf("ops.tokens_file: %w", err)
		}
	}
	if path := o.Config.Ops.WebConfigFile; path != "" {
		if s.web, err = webconfig.Open(ctx, path, o.Logger); err != nil {
			return nil, fmt.Errorf("ops.web_config_file: %w", err)
		}
		if limit := s.web.Value().Rate; limit.Interval > 0 {
			s.rate = rate.NewLimiter(rate.Every(limit.Interval), limit.Burst)
		}
	}
	for k, n := range places() {
		s.places[k] = make(chan struct{}, n)
	}
	closed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_api_connections_closed_total", Help: "Connections that the ops API closed to make room for newer ones.",
	})
	s.conns = connlimit.New("api", connectionLimit, closed, o.Logger)
	o.Metrics.MustRegister(s.requests, closed)
	s.server = s.httpServer()
	return s, nil
}

func (s *Server) httpServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: s.conns.Marks(s.handler()), ConnState: s.conns.Follow, ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
		MaxHeaderBytes: headerBytes, Protocols: &protocols,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	if s.hasTLS() {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.web.Value().TLS, nil
		}}
	}
	return server
}

func (s *Server) hasTLS() bool { return s.web != nil && s.web.Value().TLS != nil }

// Listen binds the address and returns it, so that an address in use is known before anything else starts. Run calls it
// unless the caller did.
func (s *Server) Listen(ctx context.Context) (net.Addr, error) {
	return s.conns.Listen(ctx, s.config.Ops.Listen)
}

// Run serves until ctx ends; then it finishes the requests under way and returns nil. Jobs end once draining is closed, or
// ctx ends.
func (s *Server) Run(ctx context.Context, draining <-chan struct{}) error {
	if _, err := s.Listen(ctx); err != nil {
		return err
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, end := context.WithCancel(ctx)
	defer end()
	watching.Go(func() {
		select {
		case <-draining:
		case <-watched.Done():
		}
		s.jobs.stop()
	})
	if s.tokens != nil {
		watching.Go(func() { s.tokens.Watch(watched) })
	}
	if s.web != nil {
		watching.Go(func() { s.web.Watch(watched) })
	}
	if err := connlimit.Serve(ctx, s.server, shutdownTimeout, s.serve); err != nil {
		return fmt.Errorf("ops API: %w", err)
	}
	return nil
}

func (s *Server) serve() error {
	if s.hasTLS() {
		return s.server.ServeTLS(s.conns, "", "")
	}
	return s.server.Serve(s.conns)
}
