package api

import (
	"net/http"
	"time"

	"sluice/secure/tokens"
)

const prefix = "/internal/v1/"

// kind groups requests by what they need: only memory, Kafka or the store, a write, a job, or a profile. places bounds
// how many requests of each kind run at a time.
type kind int

const (
	light    kind = iota // answered from memory
	heavy                // opens Kafka or the store
	change               // writes to the operations log
	starting             // starts a job, and may wait for its end
	profile              // profiles the process
	kinds
)

// places returns how many requests of each kind may run at the same time.
func places() [kinds]int { return [kinds]int{light: 32, heavy: 4, change: 2, starting: 2, profile: 1} }

// route is a method and a path of the API, with what serves it. Each constructor below sets a role, so no route can
// lack one.
type route struct {
	method, path string // below prefix
	role         tokens.Role
	kind         kind
	query        []string // accepted parameters
	do           func(s *Server, r *request) (answer, error)
}

func (r route) name() string { return r.method + " " + r.path }

// bodiless reports whether requests of the route have no body.
func (r route) bodiless() bool { return r.method == http.MethodGet || r.method == http.MethodDelete }

// answer is the response of a route.
type answer struct {
	status int // 0 for 200
	body   []byte
	media  string // "" for JSON
	header map[string]string
}

// The deadlines of a request. After its deadline a request has the time until writeTimeout to send the response to a
// slow client.
const (
	requestDeadline = 30 * time.Second
	profileDeadline = 40 * time.Second
)

func view(path string, k kind, do func(*Server, *request) (answer, error), query ...string) route {
	return route{http.MethodGet, path, tokens.Viewer, k, query, do}
}

func decide(path string, do func(*Server, *request) (answer, error)) route {
	return route{http.MethodPost, path, tokens.Operator, change, nil, do}
}

// ofLetters returns a route of the role that may see the contents of records, and decide about dead letters.
func ofLetters(method, path string, k kind, do func(*Server, *request) (answer, error), query ...string) route {
	return route{method, path, tokens.Replayer, k, query, do}
}

func administer(method, path string, k kind, do func(*Server, *request) (answer, error), query ...string) route {
	return route{method, path, tokens.Admin, k, query, do}
}

// routes returns all routes.
func routes() []route {
	return []route{
		view("whoami", light, (*Server).whoami),
		view("status", light, (*Server).status),
		view("holds", heavy, (*Server).holds, "topic", "cursor", "limit"),
		decide("holds/recheck", (*Server).recheck),
		view("positions", heavy, (*Server).positions, "topic", "cursor", "limit"),
		view("partitions", light, (*Server).partitions, "topic", "cursor", "limit"),
		view("members", heavy, (*Server).members, "cursor", "limit"),
		view("tables", heavy, (*Server).tables, "topic", "cursor", "limit"),
		view("audit", heavy, (*Server).audit, "cursor", "limit"),
		decide("pause", (*Server).pause),
		decide("resume", (*Server).resume),
		decide("flush", (*Server).flush),
		view("flush", light, (*Server).flushes, "cursor", "limit"),
		view("deadletters", heavy, (*Server).deadLetters, "topic", "code", "since", "state", "cursor", "limit"),
		decide("deadletters/allow", (*Server).allow),
		ofLetters(http.MethodGet, "deadletters/{topic}/{partition}/{offset}", heavy, (*Server).deadLetter, "topic_id"),
		ofLetters(http.MethodPost, "deadletters/discard", change, (*Server).discard),
		ofLetters(http.MethodPost, "deadletters/acknowledge", change, (*Server).acknowledge),
		ofLetters(http.MethodPost, "deadletters/reopen", change, (*Server).reopen),
		ofLetters(http.MethodDelete, "dlq/{topic}/{offset}", change, (*Server).discardAt, "partition", "reason", "dry_run"),
		ofLetters(http.MethodPost, "dlq/replay", starting, (*Server).replay),
		ofLetters(http.MethodPost, "dlq/replay-all", starting, (*Server).replayAll, "topic"),
		view("jobs", light, (*Server).listJobs, "cursor", "limit"),
		view("jobs/{id}", light, (*Server).getJob),
		ofLetters(http.MethodDelete, "jobs/{id}", light, (*Server).cancelJob, "reason", "dry_run"),
		view("config", light, (*Server).configuration, "cursor", "limit"),
		view("loglevel", light, (*Server).logLevel),
		administer(http.MethodPut, "loglevel", light, (*Server).setLogLevel),
		view("openapi.yaml", light, (*Server).openAPI),
		administer(http.MethodGet, "debug/pprof/", light, (*Server).profiles),
		administer(http.MethodGet, "debug/pprof/{profile}", profile, (*Server).profile, "seconds", "debug", "gc"),
	}
}
