package objstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"sluice/classify"
	"sluice/secure"
)

// S3Config configures the bucket and the access to it. With only a bucket it means AWS with the default credential
// chain (environment, shared files, web identity, container and instance roles).
type S3Config struct {
	Bucket string
	Prefix string // prefix of all keys, without slashes around it; empty means the whole bucket
	// Endpoint is the URL of an S3 service other than AWS, like http://127.0.0.1:9000. An empty Region then means
	// us-east-1.
	Endpoint string
	// Region is the region of the bucket. Empty takes it from the environment or the shared configuration of AWS.
	Region string
	// PathStyle puts the bucket into the path instead of the host name. Most services other than AWS need it.
	PathStyle bool
	// AccessKey and SecretKey, with a SessionToken for temporary ones, replace the default credential chain.
	AccessKey, SecretKey, SessionToken string
	// Keys replaces the default credential chain and the keys above. It is called at the first request, and again after
	// ten seconds and after the store has denied a request, so that rotated keys take effect ([KeysFromFiles]).
	Keys func(context.Context) (Keys, error)
	// Timeout is how long a request may make no progress: no response, or no further bytes of a body. Default 30s.
	Timeout time.Duration
	// CAFile holds the authorities that the endpoint's certificate is verified with; empty means those of TLS or the
	// system. It is read once, and not used for the sources of credentials.
	CAFile string
	// InsecurePlaintext allows an http:// endpoint on another host.
	InsecurePlaintext bool
	// TLS replaces the TLS settings. The default has the system's authorities, those of AWS_CA_BUNDLE, and TLS 1.2 or
	// newer.
	TLS *tls.Config
	// Transport replaces the HTTP transport including its TLS settings; for tests.
	Transport http.RoundTripper
}

// Keys are credentials of S3. Session is empty unless they are temporary.
type Keys struct{ Access, Secret, Session string }

const (
	defaultTimeout = 30 * time.Second
	defaultRegion  = "us-east-1"
)

// S3 is a store in a bucket of AWS S3, or of a service with the same protocol and conditional puts. Directory buckets
// (S3 Express) are refused: they do not list in order.
type S3 struct {
	place
	client *s3.Client
	wire   *wire
	slots  chan struct{}         // has one place per request that may be in flight; a request holds one
	keys   *aws.CredentialsCache // nil if the credentials cannot be read again
	idle   time.Duration
}

// NewS3 returns a store on a bucket. It makes no request. An error is Fatal: c is invalid.
func NewS3(ctx context.Context, c S3Config) (*S3, error) {
	s, err := newS3(ctx, c)
	if err != nil {
		return nil, classify.Mark(fmt.Errorf("S3 bucket %q: %w", c.Bucket, err), classify.Fatal)
	}
	return s, nil
}

func newS3(ctx context.Context, c S3Config) (*S3, error) {
	switch prefix := strings.Trim(c.Prefix, "/"); {
	case c.Bucket == "":
		return nil, errors.New("the name of the bucket is missing")
	case strings.HasSuffix(c.Bucket, "--x-s3"):
		return nil, errors.New("directory buckets (S3 Express) do not list in order; use a general purpose bucket")
	case prefix != "" && checkKey(prefix) != nil:
		return nil, checkKey(prefix)
	case (c.AccessKey == "") != (c.SecretKey == ""):
		return nil, errors.New("access key and secret key belong together")
	}
	if err := c.plain(); err != nil {
		return nil, err
	}
	s := &S3{
		place: place{bucket: c.Bucket, pathStyle: c.PathStyle, source: c.source()},
		idle:  cmp.Or(c.Timeout, defaultTimeout), slots: make(chan struct{}, maxInFlight),
	}
	if prefix := strings.Trim(c.Prefix, "/"); prefix != "" {
		s.prefix = prefix + "/"
	}
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(buildable(c.TLS)), config.WithAppID("sluice"),
		config.WithLogger(logging.Nop{}), // the SDK logs nothing: the returned errors have all that matters
	}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	if p := c.provider(); p != nil {
		s.keys = aws.NewCredentialsCache(p)
		options = append(options, config.WithCredentialsProvider(s.keys))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	if s.keys == nil {
		s.keys, _ = loaded.Credentials.(*aws.CredentialsCache)
	}
	if loaded.Region == "" {
		if c.Endpoint == "" {
			return nil, errors.New("the region is missing: set it here or in AWS_REGION")
		}
		loaded.Region = defaultRegion
	}
	s.region = loaded.Region
	if s.wire, err = newWire(c, loaded.HTTPClient); err != nil {
		return nil, err
	}
	s.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.HTTPClient = &http.Client{
			Transport:     s.wire,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		// One try is one request: the caller decides what a response means and whether to try again.
		o.Retryer = aws.NopRetryer{}
		o.Credentials = signingKeys{o.Credentials}
		o.UsePathStyle = c.PathStyle
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		// Not every service knows the newer checksums. Over HTTP bodies are signed; over HTTPS TLS protects them.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	if e := s.client.Options().BaseEndpoint; e != nil { // the endpoint may also come from the environment
		s.endpoint = cmp.Or(origin(*e), "an endpoint that is no URL")
		if u, err := url.Parse(*e); err == nil && net.ParseIP(u.Hostname()) != nil {
			s.pathStyle = true // like the SDK, which uses path style for such an endpoint
		}
	}
	return s, nil
}

// local reports whether the endpoint is on this host.
func (c S3Config) local() bool {
	u, err := url.Parse(c.Endpoint)
	return err == nil && secure.Loopback(u.Hostname())
}

// plain refuses an endpoint without TLS, unless it is on this host or InsecurePlaintext allows it.
func (c S3Config) plain() error {
	if strings.HasPrefix(strings.ToLower(c.Endpoint), "http://") && !c.InsecurePlaintext && !c.local() {
		return fmt.Errorf("%w: %s has no TLS: write https://, and ca_file if the authority is your own", secure.ErrPlaintext, c.Endpoint)
	}
	return nil
}

// Close closes idle connections. Requests in flight continue.
func (s *S3) Close() error {
	s.wire.closeIdle()
	return nil
}

// Get implements [Store]. ctx and the timeout also cover reading the body.
func (s *S3) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := cmp.Or(begin(ctx.Err(), key), checkRange(off)); err != nil {
		return nil, failed(OpGet, key, err)
	}
	if n == 0 { // HTTP has no range of zero bytes
		_, err := s.Head(ctx, key)
		return http.NoBody, err
	}
	in := s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}
	if off > 0 || n > 0 {
		in.Range = aws.String(httpRange(off, n))
	}
	r, err := s.newRequest(ctx, 0)
	if err != nil {
		return nil, failed(OpGet, key, err)
	}
	out, err := s.client.GetObject(r.ctx, &in)
	switch {
	case err != nil && beyondEnd(err):
		r.end()
		return http.NoBody, nil
	case err != nil:
		defer r.end()
		return nil, failed(OpGet, key, s.translate(r, OpGet, key, err))
	case in.Range != nil && out.ContentRange == nil:
		r.end()
		_ = out.Body.Close() // the error of the refusal is more useful than that of closing the body
		return nil, failed(OpGet, key, refuse("the store ignores the range of a request"))
	}
	r.pause()
	r.gotResponse()
	return &s3Body{body: out.Body, request: r, key: key, s: s}, nil
}

func httpRange(off, n int64) string {
	if n < 0 {
		return fmt.Sprintf("bytes=%d-", off)
	}
	return fmt.Sprintf("bytes=%d-%d", off, off+n-1)
}

// Head implements [Store]. The response to a HEAD has no body, so a 404 says neither what is missing nor who answers.
// A GET of the first byte then decides.
func (s *S3) Head(ctx context.Context, key string) (Info, error) {
	if err := begin(ctx.Err(), key); err != nil {
		return Info{}, failed(OpHead, key, err)
	}
	r, err := s.newRequest(ctx, 0)
	if err != nil {
		return Info{}, failed(OpHead, key, err)
	}
	defer r.end()
	out, err := s.client.HeadObject(r.ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	r.gotResponse()
	if status, _ := responseError(err); status == http.StatusNotFound {
		return Info{}, failed(OpHead, key, s.missing(ctx, key))
	}
	if err != nil {
		return Info{}, failed(OpHead, key, s.translate(r, OpHead, key, err))
	}
	return Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}, nil
}

// missing returns the error after a HEAD with 404: that of a GET of the object's first byte.
func (s *S3) missing(ctx context.Context, key string) error {
	r, err := s.newRequest(ctx, 0)
	if err != nil {
		return err
	}
	defer r.end()
	out, err := s.client.GetObject(r.ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key), Range: aws.String(httpRange(0, 1))})
	if err != nil && !beyondEnd(err) {
		return s.translate(r, OpHead, key, err)
	}
	if err == nil {
		_ = out.Body.Close() // only the status of the response matters
	}
	return classify.Mark(errors.New("the store answered a HEAD with 404, but a GET finds the object"), classify.Transient)
}

// Put implements [Store].
func (s *S3) Put(ctx context.Context, key string, body io.ReadSeeker, mode Mode) error {
	kind := PutKind(mode)
	if err := begin(ctx.Err(), key); err != nil {
		return failed(kind, key, err)
	}
	size, err := body.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = body.Seek(0, io.SeekStart)
	}
	if err != nil {
		return failed(kind, key, notSent(fmt.Errorf("rewind the body: %w", err)))
	}
	r, err := s.newRequest(ctx, size)
	if err != nil {
		return failed(kind, key, err)
	}
	defer r.end()
	in := s3.PutObjectInput{Bucket: &s.bucket, Key: s.key(key), Body: &progress{ReadSeeker: body, request: r}, ContentLength: &size}
	if mode == IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	_, err = s.client.PutObject(r.ctx, &in)
	return failed(kind, key, s.translate(r, kind, key, err))
}

// List implements [Store]. It skips objects whose keys end with a slash, which consoles use as folders.
func (s *S3) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		in := s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}
		if after != "" {
			in.StartAfter = aws.String(s.prefix + after)
		}
		for last := after; ; {
			page, err := s.page(ctx, &in)
			if err != nil {
				yield(Info{}, failed(OpList, prefix, err))
				return
			}
			for _, o := range page.Contents {
				key := strings.TrimPrefix(aws.ToString(o.Key), s.prefix)
				if key == "" || strings.HasSuffix(key, "/") {
					continue
				}
				if key <= last {
					yield(Info{}, failed(OpList, prefix, unsafe("%q is listed after %q: lists are not in byte order", shortKey(key), shortKey(last))))
					return
				}
				last = key
				if !yield(Info{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
			if !aws.ToBool(page.IsTruncated) {
				return
			}
			in.ContinuationToken, in.StartAfter = page.NextContinuationToken, nil
		}
	}
}

func (s *S3) page(ctx context.Context, in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	r, err := s.newRequest(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer r.end()
	page, err := s.client.ListObjectsV2(r.ctx, in)
	if err != nil {
		return nil, s.translate(r, OpList, aws.ToString(in.Prefix)[len(s.prefix):], err)
	}
	return page, nil
}

// Delete implements [Store].
func (s *S3) Delete(ctx context.Context, key string) error {
	if err := begin(ctx.Err(), key); err != nil {
		return failed(OpDelete, key, err)
	}
	r, err := s.newRequest(ctx, 0)
	if err != nil {
		return failed(OpDelete, key, err)
	}
	defer r.end()
	_, err = s.client.DeleteObject(r.ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err = s.translate(r, OpDelete, key, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return failed(OpDelete, key, err)
}

func (s *S3) key(key string) *string { return aws.String(s.prefix + key) }
