package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// Registry is a server that has what records need, by their key: an HTTP server inside of the process, without a network
// between. Every answer comes late.
type Registry struct {
	Chance *Chance
	// Answer says how a request for a key is answered, as an HTTP status. nil answers 200.
	Answer func(key string) int
	// Slow is how long an answer takes at most, 50 ms if 0.
	Slow time.Duration

	mu    sync.Mutex
	asked map[string]int
}

// Asked returns how often a key was asked for.
func (r *Registry) Asked(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[key]
}

// ServeHTTP answers GET /keys/<key>.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	key := strings.TrimPrefix(q.URL.Path, "/keys/")
	r.mu.Lock()
	if r.asked == nil {
		r.asked = map[string]int{}
	}
	r.asked[key]++
	r.mu.Unlock()
	status := http.StatusOK
	if r.Answer != nil {
		status = r.Answer(key)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "definition of "+key) // a recorder takes everything
}

// RoundTrip hands a request to the server.
func (r *Registry) RoundTrip(q *http.Request) (*http.Response, error) {
	slow := r.Slow
	if slow == 0 {
		slow = 50 * time.Millisecond
	}
	if err := r.Chance.Pause(q.Context(), slow); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, q)
	return rec.Result(), nil
}

// Lookup is a member's way to a Registry.
type Lookup struct {
	client *http.Client
	guard  *reliability.Guard

	mu   sync.Mutex
	have map[string]bool
}

var _ connector.Lookup = (*Lookup)(nil)

// NewLookup returns a way to a registry that has brought nothing yet.
func NewLookup(r *Registry) *Lookup {
	return &Lookup{client: &http.Client{Transport: r}, have: map[string]bool{}, guard: reliability.NewGuard("registry", reliability.Config{
		Backoff:  reliability.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.25},
		Failures: 5, OpenFor: 2 * time.Second, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil, errMissing)}
}

// has tells whether what a record needs is here.
func (l *Lookup) has(r *connector.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.have[string(r.Key)]
}

// Needs is the key of a record that was not asked for yet.
func (l *Lookup) Needs(_ connector.Partition, r *connector.Record) string {
	if l.has(r) {
		return ""
	}
	return string(r.Key)
}

var errMissing = errors.New("404: there is no such thing yet")

// refused is why records of a key are bad.
type refused struct{}

func (refused) Error() string { return "410: gone" }
func (refused) Code() string  { return string(deadletter.UnknownField) }

// Get asks for one key.
func (l *Lookup) Get(ctx context.Context, _ connector.Partition, need string) error {
	return l.guard.Do(ctx, func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://registry/keys/"+need, nil)
		if err != nil {
			return err
		}
		resp, err := l.client.Do(q)
		if err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		defer func() { _ = resp.Body.Close() }() // read only
		switch resp.StatusCode {
		case http.StatusOK:
			l.mu.Lock()
			defer l.mu.Unlock()
			l.have[need] = true
			return nil
		case http.StatusNotFound:
			return errMissing
		case http.StatusGone:
			return classify.Mark(refused{}, classify.Poison)
		case http.StatusUnauthorized:
			return connector.Held(connector.ReasonStoreDenied, "the registry refuses", nil)
		case http.StatusTeapot:
			panic("a response that nobody thought of")
		default:
			return classify.Mark(fmt.Errorf("registry: status %d", resp.StatusCode), classify.Transient)
		}
	})
}
