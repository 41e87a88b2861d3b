package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// S3Proxy is a proxy between one connector and the S3 server that breaks chosen requests. It first reads each request
// completely, so a request may reach the server long after its client has died.
type S3Proxy struct {
	Endpoint string // http://127.0.0.1:port

	upstream  string
	requests  atomic.Int64
	server    *http.Server
	transport *http.Transport

	mu     sync.Mutex
	slow   []slowness
	faults []*Fault
	ends   []func() // the functions that release the held requests of the faults
}

// slowness makes requests for which match returns true wait for the time wait before the proxy forwards them.
type slowness struct {
	match Match
	wait  time.Duration
}

// Match reports whether a rule of the proxy applies to a request.
type Match func(*http.Request) bool

var commitPath = regexp.MustCompile(`/_delta_log/\d{20}\.json$`)

// CommitPut matches the PUT of a commit into a table's log.
func CommitPut(r *http.Request) bool {
	return r.Method == http.MethodPut && commitPath.MatchString(r.URL.Path)
}

// DataPut matches every PUT outside of a table's log, such as the PUT of a data file.
func DataPut(r *http.Request) bool {
	return r.Method == http.MethodPut && !regexp.MustCompile(`/_delta_log/`).MatchString(r.URL.Path)
}

// Any matches every request.
func Any(*http.Request) bool { return true }

// Action is what the proxy does with a request that a fault matches.
type Action struct {
	hold    bool
	forward bool
	drop    bool
	status  int
	reply   http.HandlerFunc
}

var (
	// Hold keeps the request until Release decides whether it takes effect.
	Hold = Action{hold: true}
	// DropAnswer forwards the request and closes the connection without an answer.
	DropAnswer = Action{forward: true, drop: true}
	// DropRequest closes the connection and never forwards the request.
	DropRequest = Action{drop: true}
)

// Answer responds with status. If applied is true, the proxy forwards the request first, so that it takes effect.
func Answer(status int, applied bool) Action { return Action{forward: applied, status: status} }

// Reply makes a handler of the test respond instead of the server.
func Reply(h http.HandlerFunc) Action { return Action{reply: h} }

// Fault is a rule of the proxy for the next requests that match, up to its count.
type Fault struct {
	match  Match
	action Action
	left   int
	hits   chan string   // receives the path of each matched request
	free   chan struct{} // closed by Release
	pass   bool
	once   sync.Once
}

// StartS3Proxy starts a proxy in front of an S3 server. The caller must call Close.
func StartS3Proxy(upstream string) (*S3Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start S3 proxy: %w", err)
	}
	p := &S3Proxy{
		Endpoint: "http://" + l.Addr().String(), upstream: upstream,
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16},
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

// Break adds a fault for the next count requests that match.
func (p *S3Proxy) Break(match Match, count int, action Action) *Fault {
	f := &Fault{match: match, action: action, left: count, hits: make(chan string, count), free: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	p.ends = append(p.ends, func() { f.Release(false) })
	return f
}

// Slow makes every matching request wait before it is forwarded, until Heal.
func (p *S3Proxy) Slow(match Match, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = append(p.slow, slowness{match, wait})
}

// Requests returns the number of requests so far, with any result.
func (p *S3Proxy) Requests() int64 { return p.requests.Load() }

// Left returns how many more requests the fault will match.
func (p *S3Proxy) Left(f *Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.left
}

// Heal removes all faults and slowness. Held requests never take effect.
func (p *S3Proxy) Heal() {
	p.mu.Lock()
	ends := p.ends
	p.faults, p.ends, p.slow = nil, nil, nil
	p.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// Close ends the proxy.
func (p *S3Proxy) Close() error {
	p.Heal()
	err := p.server.Close()
	p.transport.CloseIdleConnections()
	return err
}

// Wait waits until a request has matched the fault, and returns the path in the URL of the request. If ctx ends before,
// it returns an error.
func (f *Fault) Wait(ctx context.Context) (string, error) {
	select {
	case path := <-f.hits:
		return path, nil
	case <-ctx.Done():
		return "", fmt.Errorf("wait for a request to break: %w", ctx.Err())
	}
}

// Release ends Hold. The held requests take effect now if takeEffect is true, and otherwise never.
func (f *Fault) Release(takeEffect bool) {
	f.once.Do(func() {
		f.pass = takeEffect
		close(f.free)
	})
}

// pause returns how long a request must wait: the sum over all calls of Slow that match it, 0 if none does.
func (p *S3Proxy) pause(r *http.Request) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slow {
		if s.match(r) {
			wait += s.wait
		}
	}
	return wait
}

func (p *S3Proxy) choose(r *http.Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.left > 0 && f.match(r) {
			f.left--
			f.hits <- r.URL.Path
			return f
		}
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (p *S3Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	time.Sleep(p.pause(r)) // does not end with the request's context, so that the request takes effect late even if its client has gone
	fault := p.choose(r)
	action := Action{forward: true}
	if fault != nil {
		action = fault.action
	}
	if action.reply != nil {
		action.reply(w, r)
		return
	}
	if action.hold {
		<-fault.free
		action.forward, action.drop = fault.pass, !fault.pass
	}
	var resp *http.Response
	if action.forward {
		if resp, err = p.forward(r, body); err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
	}
	switch {
	case action.drop:
		panic(http.ErrAbortHandler) // makes net/http close the connection without a response
	case action.status != 0:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(action.status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>made by the test lab</Message></Error>", errorCode(action.status))
	default:
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		if _, err := io.Copy(w, resp.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func errorCode(status int) string {
	switch status {
	case http.StatusConflict:
		return "ConditionalRequestConflict"
	case http.StatusForbidden:
		return "AccessDenied"
	case http.StatusServiceUnavailable:
		return "SlowDown"
	default:
		return "InternalError"
	}
}

// forward sends the request to the server, even after the client has gone. It keeps the proxy's host, because the
// signature covers the host.
func (p *S3Proxy) forward(r *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.upstream+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	out.Host = r.Host
	resp, err := p.transport.RoundTrip(out)
	if err != nil {
		return nil, errors.Join(errors.New("forward a request"), err)
	}
	return resp, nil
}
