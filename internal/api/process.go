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
	return exactAnswer(valuesPage{page, next})
}

// valuesPage is a page of the configuration in force.
type valuesPage struct {
	Values []config.Value `json:"values"`
	Next   string         `json:"next,omitempty"`
}

// levelBody is the body of a request that sets the level.
type levelBody struct {
	Level string `json:"level"`
	common
}

// LogLevel is the level of the log of a member. Before is "" unless the request was to set it.
type LogLevel struct {
	Level  string `json:"level"`
	Before string `json:"before,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

func (s *Server) logLevel(*request) (answer, error) {
	return jsonAnswer(LogLevel{Level: levelName(s.Level.Level())})
}

// setLogLevel sets the level of this process until it ends. It is no decision about the pipeline, so the log has it, not
// the operations log.
func (s *Server) setLogLevel(r *request) (answer, error) {
	var body levelBody
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
	return jsonAnswer(LogLevel{body.Level, before, body.DryRun})
}
