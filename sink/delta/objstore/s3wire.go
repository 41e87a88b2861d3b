package objstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"sluice/classify"
	"sluice/secure"
)

// wire is the HTTP transport. It runs the last check of a put when the request is signed and ready, and records when a
// request got a connection: before that, no byte of it was sent.
//
// If plaintext is false, it refuses requests over http:// to another host. It checks each request, because the endpoint
// may also come from the environment.
type wire struct {
	base      http.RoundTripper
	plaintext bool
}

// newWire returns a wire over the transport of c, else over that of the SDK's client, which trusts the authorities of
// AWS_CA_BUNDLE.
func newWire(c S3Config, client any) (*wire, error) {
	w := &wire{base: c.Transport, plaintext: c.InsecurePlaintext || c.local()}
	if w.base != nil {
		return w, nil
	}
	b, ok := client.(*awshttp.BuildableClient)
	if !ok {
		return nil, fmt.Errorf("the HTTP client of the AWS configuration is a %T", client)
	}
	t := b.GetTransport()
	if c.CAFile != "" { // only S3 is verified with CAFile: credentials may come from AWS
		roots, err := secure.Roots(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		t.TLSClientConfig = t.TLSClientConfig.Clone()
		t.TLSClientConfig.RootCAs = roots
	}
	w.base = t
	return w, nil
}

// buildable returns the HTTP client for S3 and for the sources of credentials. given has its TLS settings; nil means
// the defaults. TLS below 1.2 is never used.
func buildable(given *tls.Config) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) {
		d.Timeout, d.KeepAlive = 5*time.Second, 15*time.Second
	}).WithTransportOptions(func(t *http.Transport) {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if given != nil {
			t.TLSClientConfig = given.Clone()
			t.TLSClientConfig.MinVersion = max(given.MinVersion, tls.VersionTLS12)
		}
		t.TLSHandshakeTimeout = 5 * time.Second
		t.ExpectContinueTimeout = time.Second
		t.ForceAttemptHTTP2 = false
		t.MaxIdleConns = 128
		t.MaxIdleConnsPerHost = maxInFlight // S3 is used over HTTP/1.1, which needs one connection per request in flight
		t.IdleConnTimeout = 60 * time.Second
		t.WriteBufferSize = 128 << 10
		t.ReadBufferSize = 64 << 10
		t.DisableCompression = true // the transport must not decompress objects
	})
}

func (w *wire) closeIdle() {
	if c, ok := w.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	r, ours := ctx.Value(requestKey{}).(*request)
	if !ours { // a request of the credential chain, not of this store
		return w.base.RoundTrip(req)
	}
	r.sent = req
	if req.URL.Scheme != "https" && !w.plaintext && !secure.Loopback(req.URL.Hostname()) {
		return nil, classify.Mark(fmt.Errorf("%w: %s has no TLS", secure.ErrPlaintext, req.URL.Host), classify.Fatal)
	}
	if req.Method == http.MethodPut {
		if err := LastCheck(ctx); err != nil {
			return nil, err
		}
	}
	if _, ok := w.base.(*http.Transport); !ok {
		r.left.Store(true)
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { r.left.Store(true) }}
	return w.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
}

type requestKey struct{}

// minThroughput is the lowest throughput of a put, in bytes per second: it decides how much time a put gets for its
// body. A put that needs more is given up.
const minThroughput = 64 << 10

// maxInFlight is the limit of a store's requests in flight, and of its connections. Each takes a quarter of a mebibyte
// of buffers and stacks, so a thousand tables that commit in the same second must take turns.
const maxInFlight = 64

// request is one request in flight. Its context ends after the idle time without progress.
type request struct {
	slots  chan struct{}   // pool to which the request returns its place; nil once it has done so
	parent context.Context // the caller's context; in a field because it lives as long as one request
	ctx    context.Context // ends with parent, or when a timer fires; in a field for the same reason
	cancel context.CancelCauseFunc
	timer  *time.Timer // ends ctx after the idle time without progress
	whole  *time.Timer // ends ctx after the total time of a put; nil for other requests
	idle   time.Duration
	left   atomic.Bool   // true once the request has a connection: some of its bytes may have been sent
	sent   *http.Request // the signed HTTP request; nil before it is signed
}

var errStalled = errors.New("request made no progress in time")

// newRequest waits for a slot, then starts the timers. size is the length of the request body. A caller that holds a
// slot must not wait for a second one.
func (s *S3) newRequest(ctx context.Context, size int64) (*request, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotSent, ctx.Err())
	}
	r := &request{parent: ctx, idle: s.idle, slots: s.slots}
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(ctx, requestKey{}, r))
	r.timer = time.AfterFunc(r.idle, r.stalled)
	if size > 0 {
		r.whole = time.AfterFunc(2*r.idle+time.Duration(size)*time.Second/minThroughput, r.stalled)
	}
	return r, nil
}

// gotResponse returns the slot. The response body needs none: its reader may make other requests.
func (r *request) gotResponse() {
	if r.slots != nil {
		<-r.slots
		r.slots = nil
	}
}

func (r *request) stalled() { r.cancel(fmt.Errorf("%w (%v)", errStalled, r.idle)) }

// moved restarts the timer of the idle time, because the request has made progress.
func (r *request) moved() { r.timer.Reset(r.idle) }

// pause stops the timer of the idle time while the reader of a body does other things.
func (r *request) pause() { r.timer.Stop() }

func (r *request) end() {
	r.gotResponse()
	r.timer.Stop()
	if r.whole != nil {
		r.whole.Stop()
	}
	r.cancel(nil)
}

// progress is the body of a put. Each read of it counts as progress of the request.
type progress struct {
	io.ReadSeeker
	request *request
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.ReadSeeker.Read(b)
	p.request.moved()
	return n, err
}

// s3Body is the body of a Get. The idle time runs only while it reads.
type s3Body struct {
	body    io.ReadCloser
	request *request
	key     string
	s       *S3
}

func (b *s3Body) Read(p []byte) (int, error) {
	b.request.moved()
	n, err := b.body.Read(p)
	b.request.pause()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.s.describe(b.request, OpGet, b.key, 0, "", err, b.request.noResponse(err))
	}
	return n, err
}

func (b *s3Body) Close() error {
	defer b.request.end()
	if err := b.body.Close(); err != nil {
		return b.s.describe(b.request, OpGet, b.key, 0, "", err, classify.Mark(err, classify.Transient))
	}
	return nil
}
