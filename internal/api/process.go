package api

import (
	_ "embed" // for the document
	"log/slog"
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"
	"slices"
	"strconv"
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

// longestProfile bounds the time of a profile in seconds. It ends well before the deadline of a request.
const longestProfile = 30

func profileNames() (names []string) {
	for _, p := range runtimepprof.Profiles() {
		names = append(names, p.Name())
	}
	names = append(names, "profile", "trace")
	slices.Sort(names)
	return names
}

func (s *Server) profiles(*request) (answer, error) {
	return jsonAnswer(struct {
		Profiles []string `json:"profiles"`
	}{profileNames()})
}

func (s *Server) profile(r *request) (answer, error) {
	name := r.PathValue("profile")
	if !slices.Contains(profileNames(), name) {
		return answer{}, newProblem(codeNotFound, "there is no such profile: %sdebug/pprof/ has all", prefix)
	}
	if text := r.URL.Query().Get("seconds"); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > longestProfile {
			return answer{}, newProblem(codeInvalid, "seconds is not a number from 1 to %d", longestProfile)
		}
	}
	serve := pprof.Handler(name).ServeHTTP
	switch name {
	case "profile":
		serve = pprof.Profile
	case "trace":
		serve = pprof.Trace
	}
	held := &recorder{header: http.Header{}, status: http.StatusOK}
	serve(held, r.Request)
	if held.status != http.StatusOK {
		return answer{}, newProblem(codeRefused, "the profile cannot be taken: another one may be under way")
	}
	return answer{body: held.body, media: held.header.Get("Content-Type")}, nil
}

// recorder keeps a response, so that a failed one becomes a problem.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (r *recorder) Header() http.Header  { return r.header }
func (r *recorder) WriteHeader(code int) { r.status = code }
func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b...)
	return len(b), nil
}
