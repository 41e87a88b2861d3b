package ops

import (
	"encoding/json"
	"net/http"

	"sluice/health"
)

// This file serves the report in the format of Spring Boot's actuator, for tools that read that format.

// springStatus translates a status for the actuator. OUT_OF_SERVICE means healthy but not ready for work.
func springStatus(s health.Status) string {
	switch s {
	case health.OK:
		return "UP"
	case health.Degraded:
		return "DEGRADED"
	case health.Down:
		return "DOWN"
	case health.Draining, health.Starting:
		return "OUT_OF_SERVICE"
	case health.Unknown:
	}
	return "UNKNOWN"
}

// springComponent returns the status of a component in Spring's words. A component that was not checked yet is unknown,
// not out of service.
func springComponent(s health.Status) string {
	if s == health.Starting {
		return "UNKNOWN"
	}
	return springStatus(s)
}

// springCode returns the HTTP status code of the actuator for a status.
func springCode(status string) int { return code(status != "DOWN" && status != "OUT_OF_SERVICE") }

type springHealth struct {
	Status     string           `json:"status"`
	Components springComponents `json:"components,omitempty"`
	Groups     []string         `json:"groups,omitempty"`
}

type springComponents []health.Component

type springComponentJSON struct {
	Status  string `json:"status"`
	Details any    `json:"details,omitempty"`
}

// springDetails are the details of a component together with the reason of its status; the reason is "" if there is
// none.
type springDetails struct {
	reason  string
	details any
}

// MarshalJSON implements json.Marshaler.
func (all springComponents) MarshalJSON() ([]byte, error) {
	return object(all, func(c health.Component) (string, any) { return c.Name, springOf(c) })
}

func springOf(c health.Component) springComponentJSON {
	return springComponentJSON{springComponent(c.Status), springDetails{c.Reason, c.Details}}
}

// MarshalJSON implements json.Marshaler: the reason comes first, then the details as they are.
func (d springDetails) MarshalJSON() ([]byte, error) {
	details, err := json.Marshal(d.details)
	if err != nil || d.reason == "" {
		return details, err
	}
	reason, err := json.Marshal(d.reason)
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"reason":`), reason...)
	return append(append(b, ','), details[1:]...), nil // the JSON of details is a non-empty object without a field reason
}

func (s *Server) serveActuator(w http.ResponseWriter, r *http.Request) {
	sum := s.report().Sum()
	s.write(w, r, code(sum.Ready), springHealth{springStatus(sum.Status), springComponents(sum.Components), []string{"liveness", "readiness"}})
}

func (s *Server) serveComponent(w http.ResponseWriter, r *http.Request) {
	for _, c := range s.report().Components() {
		if c.Name == r.PathValue("component") {
			a := springOf(c)
			s.write(w, r, springCode(a.Status), a)
			return
		}
	}
	s.fail(w, r, http.StatusNotFound, "no such component: /actuator/health has all")
}

func (s *Server) serveLiveness(w http.ResponseWriter, r *http.Request) {
	if s.live() != nil {
		s.write(w, r, http.StatusServiceUnavailable, springHealth{Status: "DOWN"})
		return
	}
	s.write(w, r, http.StatusOK, springHealth{Status: "UP"})
}

// serveReadiness answers UP or OUT_OF_SERVICE and nothing else, like the actuator.
func (s *Server) serveReadiness(w http.ResponseWriter, r *http.Request) {
	err := s.report().Ready()
	s.logReady(r.Context(), err)
	if err != nil {
		s.write(w, r, http.StatusServiceUnavailable, springHealth{Status: "OUT_OF_SERVICE"})
		return
	}
	s.write(w, r, http.StatusOK, springHealth{Status: "UP"})
}

type link struct {
	Href      string `json:"href"`
	Templated bool   `json:"templated"`
}

// serveLinks lists the addresses of the actuator.
func (s *Server) serveLinks(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, http.StatusOK, struct {
		Links map[string]link `json:"_links"`
	}{map[string]link{
		"self":                       {Href: "/actuator"},
		"health":                     {Href: "/actuator/health"},
		"health-path":                {"/actuator/health/{*path}", true},
		"metrics":                    {Href: "/actuator/metrics"},
		"metrics-requiredMetricName": {"/actuator/metrics/{requiredMetricName}", true},
		"prometheus":                 {Href: "/actuator/prometheus"},
	}})
}
