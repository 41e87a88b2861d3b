package ops

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// aliases registers the probes and the metrics under further paths: those of Kubernetes' own servers, and those of
// Spring Boot's actuator.
func (s *Server) aliases(routes *http.ServeMux, scrape http.Handler, metrics prometheus.Gatherer) {
	routes.HandleFunc("GET /livez", s.serveLive)
	routes.HandleFunc("GET /readyz", s.serveReady)

	m := &meters{server: s, metrics: metrics, gathering: make(chan struct{}, scrapes)}
	routes.HandleFunc("GET /actuator", s.serveLinks)
	routes.HandleFunc("GET /actuator/health", s.few(s.reports, s.serveActuator))
	routes.HandleFunc("GET /actuator/health/liveness", s.serveLiveness)
	routes.HandleFunc("GET /actuator/health/readiness", s.serveReadiness)
	routes.HandleFunc("GET /actuator/health/{component}", s.few(s.reports, s.serveComponent))
	routes.Handle("GET /actuator/prometheus", scrape)
	routes.HandleFunc("GET /actuator/metrics", s.few(s.scraped, m.serveNames))
	routes.HandleFunc("GET /actuator/metrics/{name}", s.few(s.scraped, m.serveMeter))
}
