package api

import (
	_ "embed" // for the document
	"log/slog"
	"slices"
	"strings"

	"sluice/internal/admin"
	"sluice/internal/config"
)

//go:embed openapi.yaml
var document []byte

func (s *Server) openAPI(*request) (answer, error) {
	return answer{body: document, media: "application/yaml"}, nil
}

func (s *Server) configuration(r *request) (answer, error) {
	values, err := s.config.Values()
	if err != nil {
		return answer{}, err
	}
	order := map[string]string{} // the order of the file
	for i, v := range values {
		order[v.Key] = leftPad(int64(i))
	}
	page, next, err := pageOf(r, values, func(v config.Value) string { return order[v.Key] })
	if err != nil {
		return answer{}, err
	}
	return exactAnswer(struct {
		Values []config.Value `json:"values"`
		Next   string         `json:"next,omitempty"`
	}{page, next})
}

type levelAnswer struct {
	Level  string `json:"level"`
	Before string `json:"before,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

func (s *Server) logLevel(*request) (answer, error) {
	return jsonAnswer(levelAnswer{Level: levelName(s.Level.Level())})
}

// setLogLevel sets the level of this process until it ends. It is no decision about the pipeline, so the log has it, not
// the operations log.
func (s *Server) setLogLevel(r *request) (answer, error) {
	var body struct {
		Level  string `json:"level"`
		Reason string `json:"reason"`
		DryRun bool   `json:"dry_run"`
	}
	if err := r.decode(&body); err != nil {
		return answer{}, err
	}
	var level slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, body.Level) || level.UnmarshalText([]byte(body.Level)) != nil {
		return answer{}, newProblem(codeInvalid, "level is not one of debug, info, warn, error")
	}
	by := admin.By{Operator: r.who.name, Reason: body.Reason}
	if err := by.Check(); err != nil && !body.DryRun {
		return answer{}, err
	}
	before := levelName(s.Level.Level())
	if !body.DryRun {
		s.Logger.WarnContext(r.Context(), "log level changed", "operator", by.Operator, "reason", by.Reason, "before", before, "level", body.Level)
		s.Level.Set(level)
	}
	return jsonAnswer(levelAnswer{body.Level, before, body.DryRun})
}
