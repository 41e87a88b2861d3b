package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"sluice/health/ops"
	"sluice/reliability/panics"
)

// request is an HTTP request with the results of its checks: the caller and the route.
type request struct {
	*http.Request
	who   caller
	route route
	w     http.ResponseWriter // for the bound of the body only
}

// handler returns the handler of all requests.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	byPattern := map[string]route{}
	for _, r := range routes() {
		pattern := r.method + " " + prefix + r.path
		if strings.HasSuffix(r.path, "/") {
			pattern += "{$}"
		}
		byPattern[pattern] = r
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {}) // the mux only finds the route
	}
	find := func(r *http.Request) (route, *problem) {
		if _, pattern := mux.Handler(r); pattern != "" && clean(r.URL.Path) {
			mux.ServeHTTP(unsent{http.Header{}}, r) // sets the values of the path
			return byPattern[pattern], nil
		}
		return route{}, noRoute(mux, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveRequest(w, r, find) })
}

// clean reports whether a path has no empty parts, "." or "..".
func clean(path string) bool {
	return !strings.Contains(path, "//") && !slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// unsent is an http.ResponseWriter that drops the response.
type unsent struct{ header http.Header }

func (u unsent) Header() http.Header         { return u.header }
func (u unsent) Write(b []byte) (int, error) { return len(b), nil }
func (u unsent) WriteHeader(int)             {}

// noRoute returns the problem of a request without a route: the path does not exist, or it exists with other methods
// only.
func noRoute(mux *http.ServeMux, r *http.Request) *problem {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" && strings.HasPrefix(pattern, method+" ") {
			allowed = append(allowed, method)
			if method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if len(allowed) == 0 {
		return newProblem(codeNotFound, "there is nothing here: %sopenapi.yaml has all paths", prefix)
	}
	list := strings.Join(allowed, ", ")
	return newProblem(codeMethod, "the path has the methods %s", list).with("Allow", list)
}

// serveRequest runs the checks and the route, and writes the response.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request, find func(*http.Request) (route, *problem)) {
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		w.Header().Set(name, value)
	}
	if s.web != nil {
		for name, value := range s.web.Value().Headers {
			w.Header().Set(name, value)
		}
	}
	name, who := "other", caller{}
	var a answer
	err := panics.Catch(func() (err error) {
		req, p := s.admit(w, r, find)
		if who = req.who; req.route.path != "" {
			name = req.route.name()
		}
		if p != nil {
			return p
		}
		a, err = s.run(req)
		return err
	})
	status := http.StatusOK
	if err != nil {
		p := problemOf(err)
		status = p.Status
		s.logProblem(r, name, who, p, err)
		writeProblem(w, p)
	} else {
		status = cmp.Or(a.status, status)
		writeAnswer(w, a)
	}
	s.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
}

// logProblem logs a failed request: an internal error as an error with its stack, and a request that host, origin,
// token, role or read-only mode refused as a warning. It logs no other problems.
func (s *Server) logProblem(r *http.Request, name string, who caller, p *problem, err error) {
	switch p.Code {
	case codeInternal:
		stack := ""
		if caught, ok := errors.AsType[*panics.Error](err); ok {
			stack = caught.Stack
		}
		s.Logger.ErrorContext(r.Context(), "request to the ops API failed", "route", name, "operator", who.name, "err", err, "stack", stack)
	case codeHost, codeOrigin, codeBadToken, codeExpired, codeForbidden, codeReadOnly:
		s.Logger.WarnContext(r.Context(), "request to the ops API refused", "route", name, "operator", who.name, "client", r.RemoteAddr, "code", string(p.Code))
	default:
	}
}

// admit runs the checks of a request up to its role. If a check fails, the returned request has only the results of the
// checks before it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, find func(*http.Request) (route, *problem)) (*request, *problem) {
	req := &request{Request: r, w: w}
	if p := s.checkHost(r); p != nil {
		return req, p
	}
	if p := s.checkOrigin(r); p != nil {
		return req, p
	}
	now := s.now()
	if s.rate != nil && !s.rate.AllowN(now, 1) {
		return req, newProblem(codeRate, "the limit of rate_limit in ops.web_config_file is reached: try again later").with("Retry-After", "1")
	}
	var p *problem
	if req.who, p = s.authenticate(r, now); p != nil {
		return req, p
	}
	if req.route, p = find(r); p != nil {
		return req, p
	}
	switch {
	case req.who.role.Includes(req.route.role):
		return req, nil
	case req.who.anonymous:
		return req, newProblem(codeReadOnly, "the API is read-only without tokens, and shows no contents of records: set ops.tokens_file, or use the command line")
	}
	return req, newProblem(codeForbidden, "this needs the role %v, and the token of %s has %v", req.route.role, req.who.name, req.who.role)
}

// run checks the query and the body of an admitted request, and runs its route within the deadline. It returns a
// problem if the allowed number of requests of the same kind is already running.
func (s *Server) run(r *request) (answer, error) {
	select {
	case s.places[r.route.kind] <- struct{}{}:
		defer func() { <-s.places[r.route.kind] }()
	default:
		return answer{}, newProblem(codeBusy, "%d other requests of this kind are under way: try again", cap(s.places[r.route.kind])).with("Retry-After", "1")
	}
	if err := r.checkQuery(); err != nil {
		return answer{}, err
	}
	if err := r.checkBody(); err != nil {
		return answer{}, err
	}
	within := s.within
	if r.route.kind == profile {
		within = profileDeadline
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	r.Request = r.WithContext(ctx)
	return r.route.do(s, r)
}

// checkQuery refuses parameters that the route does not have. The error does not quote them: one may be a token.
func (r *request) checkQuery() error {
	query, err := urlQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(codeInvalid, "the query cannot be parsed")
	}
	for name, values := range query {
		if !slices.Contains(r.route.query, name) {
			return newProblem(codeInvalid, "a query parameter is unknown: this route has %s", orNone(r.route.query))
		}
		if len(values) > 1 {
			return newProblem(codeInvalid, "the query parameter %s is given twice", name)
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// checkBody checks the length and the media type of a body before it is read.
func (r *request) checkBody() error {
	has := r.ContentLength != 0
	switch {
	case r.ContentLength > bodyBytes:
		return tooLarge()
	case r.route.bodiless() && has:
		return newProblem(codeInvalid, "this route takes no body")
	case r.route.bodiless():
		return nil
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset := params["charset"]; err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return newProblem(codeMediaType, "send the body as Content-Type: application/json")
	}
	return nil
}

func tooLarge() *problem {
	return newProblem(codeTooLarge, "the body may have %d bytes", bodyBytes)
}

// decode reads the JSON body into v. Unknown and repeated fields are errors.
func (r *request) decode(v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, bodyBytes))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return tooLarge()
	}
	if err != nil {
		return newProblem(codeInvalid, "the body did not arrive")
	}
	if err := jsonv2.Unmarshal(body, v, jsonv2.RejectUnknownMembers(true)); err != nil {
		if p, ok := errors.AsType[*problem](err); ok {
			return p
		}
		return newProblem(codeInvalid, "the body is not the JSON that %sopenapi.yaml describes for this route%s", prefix, atField(err))
	}
	return nil
}

// atField returns a text that names the wrong field of a body, "" if it is unknown. The text has no values of the body.
func atField(err error) string {
	if at, ok := errors.AsType[*jsonv2.SemanticError](err); ok && at.JSONPointer != "" && len(at.JSONPointer) < 100 {
		return fmt.Sprintf(": see %s", at.JSONPointer)
	}
	return ""
}

// writeAnswer writes the response of a route.
func writeAnswer(w http.ResponseWriter, a answer) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	media := a.media
	if media == "" {
		media = "application/json"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = w.Write(a.body) // the client may have gone
}

// jsonAnswer encodes a response. It removes secrets from all texts and cuts long ones.
func jsonAnswer(v any) (answer, error) {
	a, err := exactAnswer(v)
	a.body = ops.CleanJSON(a.body)
	return a, err
}

// exactAnswer encodes a response whose texts have no secrets and must not be cut.
func exactAnswer(v any) (answer, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return answer{}, fmt.Errorf("encode the response: %w", err)
	}
	return answer{body: b.Bytes()}, nil
}

// expiry returns a time for JSON, nil if it is zero.
func expiry(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
