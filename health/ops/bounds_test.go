package ops

import (
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
)

// TestServer_LargeAnswers: clients that do not read their responses cannot make the server keep many large ones in
// memory. Probes do not wait for these clients.
func TestServer_LargeAnswers(t *testing.T) {
	report := func() health.Report { return health.Report{Joined: true, Resumed: true} }
	s := NewServer("127.0.0.1:0", report, func() error { return nil }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	routes := s.routes(prometheus.NewRegistry(), log.Default())
	for range maxReportRequests {
		s.reports.taken <- struct{}{}
	}
	for range maxMetricRequests {
		s.scraped.taken <- struct{}{}
	}
	want := func(path string, want int) {
		t.Helper()
		got := httptest.NewRecorder()
		routes.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got.Code != want {
			t.Errorf("%s: %d, want %d", path, got.Code, want)
		}
	}
	for _, path := range []string{"/health", "/metrics", "/actuator/health", "/actuator/prometheus", "/actuator/metrics"} {
		want(path, http.StatusTooManyRequests)
	}
	for _, path := range []string{"/health/live", "/livez", "/health/ready", "/readyz", "/health/startup"} {
		want(path, map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[path == "/health/startup"])
	}
	<-s.reports.taken
	want("/health", http.StatusOK)
	<-s.scraped.taken
	want("/metrics", http.StatusOK)
}

// TestServer_Bounds compares the times and sizes that limit a connection with the expected ones.
func TestServer_Bounds(t *testing.T) {
	s := NewServer("", nil, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)).server
	if s.IdleTimeout <= 0 || s.IdleTimeout.Seconds() > 10 || s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.MaxHeaderBytes > 16<<10 {
		t.Errorf("%+v", s)
	}
}
