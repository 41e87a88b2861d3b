package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"sluice/health/ops"
	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// code names the kind of a problem. The list is closed: docs/api.md and openapi.yaml have all of them.
type code string

// The codes.
const (
	codeHost         code = "misdirected_request"
	codeOrigin       code = "cross_origin"
	codeRate         code = "rate_limited"
	codeNoToken      code = "unauthenticated"
	codeBadToken     code = "token_invalid"
	codeExpired      code = "token_expired"
	codeLogins       code = "too_many_failed_logins"
	codeNotFound     code = "not_found"
	codeMethod       code = "method_not_allowed"
	codeReadOnly     code = "read_only"
	codeForbidden    code = "forbidden"
	codeBusy         code = "busy"
	codeMediaType    code = "unsupported_media_type"
	codeTooLarge     code = "body_too_large"
	codeInvalid      code = "invalid_request"
	codeCursor       code = "invalid_cursor"
	codeKeyReused    code = "idempotency_key_reused"
	codeRefused      code = "refused"
	codeFound        code = "found_problem"
	codeAmbiguous    code = "ambiguous"
	codeUnconfigured code = "not_configured"
	codeDependency   code = "dependency_unavailable"
	codeUnknown      code = "outcome_unknown"
	codeTimeout      code = "timeout"
	codeInternal     code = "internal_error"
)

// statuses has the HTTP status of each code.
func statuses() map[code]int {
	return map[code]int{
		codeHost: http.StatusMisdirectedRequest, codeOrigin: http.StatusForbidden, codeRate: http.StatusTooManyRequests,
		codeNoToken: http.StatusUnauthorized, codeBadToken: http.StatusUnauthorized, codeExpired: http.StatusUnauthorized,
		codeLogins: http.StatusTooManyRequests, codeNotFound: http.StatusNotFound, codeMethod: http.StatusMethodNotAllowed,
		codeReadOnly: http.StatusForbidden, codeForbidden: http.StatusForbidden, codeBusy: http.StatusTooManyRequests,
		codeMediaType: http.StatusUnsupportedMediaType, codeTooLarge: http.StatusRequestEntityTooLarge,
		codeInvalid: http.StatusBadRequest, codeCursor: http.StatusBadRequest, codeKeyReused: http.StatusUnprocessableEntity,
		codeAmbiguous: http.StatusConflict, codeRefused: http.StatusConflict, codeFound: http.StatusConflict, codeUnconfigured: http.StatusNotFound,
		codeDependency: http.StatusServiceUnavailable, codeUnknown: http.StatusServiceUnavailable,
		codeTimeout: http.StatusGatewayTimeout, codeInternal: http.StatusInternalServerError,
	}
}

// problem is an error as RFC 9457 describes it. Its detail says what the caller can do.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   code   `json:"code"`
	Detail string `json:"detail"`
	// Candidates are the dead letters of which the caller must choose one.
	Candidates []candidate `json:"candidates,omitempty"`

	header http.Header
}

// Error returns the detail.
func (p *problem) Error() string { return p.Detail }

// newProblem returns a problem. detail is a format.
func newProblem(c code, detail string, args ...any) *problem {
	status := statuses()[c]
	return &problem{Type: "urn:sluice:problem:" + string(c), Title: http.StatusText(status), Status: status, Code: c, Detail: fmt.Sprintf(detail, args...)}
}

// with adds a header to the response.
func (p *problem) with(name, value string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// problemOf returns the problem of an error of a handler. For an error without a kind the detail does not quote the
// error; the caller logs it.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if repeated, ok := errors.AsType[*opslog.RepeatedError](err); ok {
		return newProblem(codeKeyReused, "%v: send another Idempotency-Key, or the same request as before", repeated)
	}
	switch {
	case errors.Is(err, opslog.ErrUndecided):
		return newProblem(codeUnknown, "%v. Send the request again with the same Idempotency-Key: it is recorded once", err).with("Retry-After", "5")
	case errors.Is(err, context.DeadlineExceeded):
		return newProblem(codeTimeout, "%v. Nothing is known to have changed: try again, and see GET holds for what does not respond", err)
	}
	if errors.Is(err, admin.ErrNoLetter) {
		return newProblem(codeNotFound, "%v", err)
	}
	switch fail.Of(err) {
	case fail.KindUsage:
		return newProblem(codeInvalid, "%v", err)
	case fail.KindRefused:
		return newProblem(codeRefused, "%v", err)
	case fail.KindFound:
		return newProblem(codeFound, "%v", err)
	case fail.KindDependency:
		return newProblem(codeDependency, "%v. Try again once it responds", err).with("Retry-After", "5")
	}
	return newProblem(codeInternal, "this is a bug: report it with the log line of this request")
}

// writeProblem answers a request with a problem.
func writeProblem(w http.ResponseWriter, p *problem) {
	body, err := json.MarshalIndent(p, "", "  ")
	if err != nil { // texts and a number can always be written
		body = []byte(`{}`)
	}
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(ops.CleanJSON(body), '\n')) // the client may have gone
}
