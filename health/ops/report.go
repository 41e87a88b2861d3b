package ops

import (
	"bytes"
	"encoding/json"
	"net/http"

	"sluice/health"
)

// reportJSON is the body of /health. Each hold and each dependency is listed once, in the lists beside the components.
type reportJSON struct {
	Status health.Status `json:"status"`
	Reason string        `json:"reason,omitempty"`
	// Ready is true exactly when the status code is 200.
	Ready        bool                `json:"ready"`
	Pipeline     string              `json:"pipeline"`
	Group        string              `json:"group"`
	Member       string              `json:"member"`
	Joined       bool                `json:"joined"`
	Resumed      bool                `json:"resumed"`
	Draining     bool                `json:"draining"`
	TotalLag     int64               `json:"total_lag"`
	Components   components          `json:"components"`
	Holds        []health.Held       `json:"holds"`
	Partitions   []partitionJSON     `json:"partitions"`
	Dependencies []health.Dependency `json:"dependencies"`
}

type partitionJSON struct {
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	Table     string         `json:"table,omitempty"`
	Position  *int64         `json:"position"` // null if unknown, like End, Lag, Adjusted and Freshness
	End       *int64         `json:"end"`
	Lag       *int64         `json:"lag"`
	Adjusted  *int64         `json:"adjusted_lag"`
	Verdict   health.Verdict `json:"verdict,omitempty"`
	Level     health.Level   `json:"level,omitempty"`
	Freshness *float64       `json:"freshness_seconds"`
}

func (s *Server) serveReport(w http.ResponseWriter, r *http.Request) {
	report := s.report()
	sum := report.Sum()
	a := reportJSON{
		Status: sum.Status, Reason: sum.Reason, Ready: sum.Ready, Pipeline: report.Pipeline, Group: report.Group, Member: report.Member,
		Joined: report.Joined, Resumed: report.Resumed, Draining: report.Draining, TotalLag: report.TotalLag(), Components: sum.Components,
		Holds: []health.Held{}, Partitions: []partitionJSON{}, Dependencies: report.Dependencies,
	}
	if a.Dependencies == nil {
		a.Dependencies = []health.Dependency{}
	}
	for _, h := range report.Holds {
		a.Holds = append(a.Holds, h.Held())
	}
	for _, p := range report.Partitions {
		pa := partitionJSON{Topic: p.Topic, Partition: p.ID, Table: p.Table, Adjusted: p.Adjusted, Verdict: p.Verdict, Level: p.Level, Freshness: p.Freshness}
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
	s.write(w, r, code(sum.Ready), a)
}

// components become an object in JSON, with one field per component in this order.
type components []health.Component

type componentJSON struct {
	Status  health.Status `json:"status"`
	Reason  string        `json:"reason,omitempty"`
	Details any           `json:"details"`
}

// MarshalJSON implements json.Marshaler.
func (all components) MarshalJSON() ([]byte, error) {
	return object(all, func(c health.Component) (string, any) {
		return c.Name, componentJSON{c.Status, c.Reason, c.Details}
	})
}

// object makes a JSON object of a list, with the fields in the order of the list.
func object[T any](all []T, field func(T) (name string, value any)) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, v := range all {
		name, value := field(v)
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// write writes a JSON response. It passes every text through [clean], which removes secrets.
func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		s.logger.ErrorContext(r.Context(), "health answer", "err", err)
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if _, err := w.Write(append(CleanJSON(body), '\n')); err != nil { // the client has closed the connection
		s.logger.DebugContext(r.Context(), "health answer", "err", err)
	}
}
