package ops

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/health"
	"sluice/reliability"
	"sluice/reliability/connlimit"
)

// The bounds of a request. Handlers wait for neither Kafka nor the store, so the times are generous. Together the
// bounds limit the memory that clients can make the server use: some 25 KiB for each connection, plus the large
// answers.
const (
	headerTimeout     = 5 * time.Second
	requestTimeout    = 10 * time.Second
	responseTimeout   = 15 * time.Second
	idleTimeout       = 10 * time.Second
	shutdownTimeout   = 5 * time.Second
	headerBytes       = 16 << 10
	connectionLimit   = 256
	scrapes           = 4  // requests that gather metrics at the same time, for Prometheus and for the actuator each
	maxReportRequests = 8  // reports that are being computed, or that their clients have not read yet
	maxMetricRequests = 12 // metrics that are being gathered, or that their clients have not read yet
	unreadLogEvery    = time.Minute
)

// Server answers GET and HEAD of /health, /health/live, /health/ready, /health/startup and /metrics, and of the names
// that other systems use for them; see docs/health.md.
type Server struct {
	listen string
	report func() health.Report
	live   func() error
	logger *slog.Logger
	server *http.Server
	conns  *connlimit.Listener
	closed prometheus.Counter
	unread *reliability.Sparse // limits the log lines about responses that clients do not read

	// reports and scraped limit how many reports and how many responses with metrics exist at the same time.
	reports, scraped *places

	mu       sync.Mutex
	checked  time.Time // time of the first readiness check
	wasReady bool
	failed   bool // true if the last readiness check failed and that was logged
}

// NewServer returns a server for listen, which is host:port; port 0 takes a free one. report and live are called for
// each request, from any goroutine, and must not block. live says why the process should be restarted, nil if it should
// not.
func NewServer(listen string, report func() health.Report, live func() error, metrics prometheus.Gatherer, logger *slog.Logger) *Server {
	s := &Server{
		listen: listen, report: report, live: live, logger: logger, closed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_health_connections_closed_total",
			Help: "Connections that the health server closed to make room for newer ones, or for responses that other clients read.",
		}),
		unread: reliability.NewSparse(1, unreadLogEvery),
	}
	s.conns = connlimit.New("health", connectionLimit, s.closed, logger)
	s.reports = newPlaces(maxReportRequests, s.conns.Abort, s.endedUnread)
	s.scraped = newPlaces(maxMetricRequests, s.conns.Abort, s.endedUnread)
	errorLog := slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	s.server = &http.Server{
		Handler: s.conns.Marks(s.routes(metrics, errorLog)), ConnState: s.conns.Follow, ErrorLog: errorLog, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: responseTimeout, IdleTimeout: idleTimeout,
	}
	return s
}

// Closed returns the counter of connections that the server closed to make room for newer ones.
func (s *Server) Closed() prometheus.Collector { return s.closed }

// few passes a request to next if it gets a place, and answers 429 otherwise.
func (s *Server) few(p *places, next http.HandlerFunc) http.HandlerFunc {
	return p.limit(next, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		s.fail(w, r, http.StatusTooManyRequests, fmt.Sprintf("%d others read such an answer: try again", cap(p.taken)))
	})
}

// endedUnread counts a response that was ended because its client did not read it, and logs the first one in each
// minute.
func (s *Server) endedUnread() {
	s.closed.Inc()
	if left, ok := s.unread.Next(); ok {
		s.logger.Warn("clients do not read their responses; closing their connections for others", "left_out", left)
	}
}

// routes are the server's addresses.
func (s *Server) routes(metrics prometheus.Gatherer, errorLog *log.Logger) http.Handler {
	scrape := s.few(s.scraped, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: errorLog, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: requestTimeout,
	}).ServeHTTP)
	routes := http.NewServeMux()
	routes.HandleFunc("GET /health", s.few(s.reports, s.serveReport))
	routes.HandleFunc("GET /health/live", s.serveLive)
	routes.HandleFunc("GET /health/ready", s.serveReady)
	routes.HandleFunc("GET /health/startup", s.serveStartup)
	routes.Handle("GET /metrics", scrape)
	s.aliases(routes, scrape, metrics)
	return s.known(routes)
}

// known answers a request that no route matches with an error in JSON, and passes all other requests to routes.
func (s *Server) known(routes *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := routes.Handler(r); pattern != "" {
			routes.ServeHTTP(w, r)
			return
		}
		get := r.Clone(r.Context())
		get.Method = http.MethodGet
		if _, pattern := routes.Handler(get); pattern != "" {
			w.Header().Set("Allow", "GET, HEAD")
			s.fail(w, r, http.StatusMethodNotAllowed, "only GET and HEAD")
			return
		}
		s.fail(w, r, http.StatusNotFound, "there is nothing here: try /health, /health/live, /health/ready, /health/startup or /metrics")
	})
}

// failure is the body of an error response.
type failure struct {
	Error string `json:"error"`
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, code int, why string) {
	s.write(w, r, code, failure{why})
}

// Listen binds the address and returns it. Call it before Run, so that an address in use is known before anything else
// starts; otherwise Run calls it.
func (s *Server) Listen(ctx context.Context) (net.Addr, error) {
	address, err := s.conns.Listen(ctx, s.listen)
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	return address, nil
}

// Run serves until ctx ends; then it finishes the requests under way and returns nil. End it last, so that probes see
// the drain.
func (s *Server) Run(ctx context.Context) error {
	if _, err := s.Listen(ctx); err != nil {
		return err
	}
	if err := connlimit.Serve(ctx, s.server, shutdownTimeout, func() error { return s.server.Serve(s.conns) }); err != nil {
		return fmt.Errorf("health: %w", err)
	}
	return nil
}
