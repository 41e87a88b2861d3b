package objstore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

// operations has one call of each operation of a store, by its name in errors and traces.
var operations = map[string]func(context.Context, objstore.Store) error{
	"get": func(ctx context.Context, s objstore.Store) error {
		r, err := s.Get(ctx, "key", 0, -1)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			err = errors.Join(err, r.Close())
		}
		return err
	},
	"head": func(ctx context.Context, s objstore.Store) error {
		_, err := s.Head(ctx, "key")
		return err
	},
	"put": func(ctx context.Context, s objstore.Store) error {
		return s.Put(ctx, "key", strings.NewReader("body"), objstore.Replace)
	},
	"put-if-absent": func(ctx context.Context, s objstore.Store) error {
		return s.Put(ctx, "key", strings.NewReader("body"), objstore.IfAbsent)
	},
	"list": func(ctx context.Context, s objstore.Store) error {
		for _, err := range s.List(ctx, "k", "") {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"delete": func(ctx context.Context, s objstore.Store) error { return s.Delete(ctx, "key") },
}

// TestS3Answers is the table of responses of a store and of the errors that they become. Each operation is one request,
// except that a HEAD with 404 is followed by a GET.
func TestS3Answers(t *testing.T) {
	type want struct {
		is    error
		class classify.Class
		none  bool // true if no error is expected
	}
	refused := want{is: objstore.ErrRefused, class: classify.Fatal}
	passes := want{class: classify.Transient}
	missing := want{is: objstore.ErrNotFound, class: classify.Transient}
	absent := map[string]want{"put": passes, "put-if-absent": passes, "delete": {none: true}}
	for _, c := range []struct {
		status int
		code   string
		all    want
		except map[string]want
	}{
		{400, "InvalidArgument", refused, nil},
		{400, "RequestTimeout", passes, nil},
		{400, "IncompleteBody", passes, nil},
		{400, "BadDigest", passes, nil},
		{400, "ExpiredToken", refused, nil},
		{401, "Unauthorized", refused, nil},
		{403, "AccessDenied", refused, nil},
		{403, "SignatureDoesNotMatch", refused, nil},
		{403, "RequestTimeTooSkewed", refused, nil},
		{404, "NoSuchBucket", refused, nil},
		{404, "NoSuchKey", missing, absent},
		{404, "NotFound", missing, absent},
		// Sluice does not request versions of objects, so this cannot mean a missing object.
		{404, "NoSuchVersion", passes, nil},
		{404, "", passes, nil},
		{405, "MethodNotAllowed", refused, nil},
		{408, "", passes, nil},
		{409, "ConditionalRequestConflict", passes, nil},
		{409, "OperationAborted", passes, nil},
		{411, "MissingContentLength", refused, nil},
		{412, "PreconditionFailed", refused, map[string]want{"put-if-absent": {is: objstore.ErrExists, class: classify.Transient}}},
		{429, "TooManyRequests", passes, nil},
		{301, "PermanentRedirect", refused, nil},
		{307, "TemporaryRedirect", refused, nil},
		{500, "InternalError", passes, nil},
		{501, "NotImplemented", refused, nil},
		{502, "", passes, nil},
		{503, "SlowDown", passes, nil},
		{504, "", passes, nil},
		{507, "XMinioStorageFull", passes, nil},
	} {
		for name, do := range operations {
			t.Run(fmt.Sprintf("%d%s/%s", c.status, c.code, name), func(t *testing.T) {
				var requests atomic.Int32
				s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
					requests.Add(1)
					w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
					w.WriteHeader(c.status)
					if c.code != "" {
						_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", c.code)
					}
				})
				w, special := c.except[name]
				switch {
				case special:
				case name == "head" && c.status == 400: // the response to a HEAD has no body, and without it there is no code
					w = refused
				default:
					w = c.all
				}
				checkError(t, do(t.Context(), s), w.is, w.class, w.none)
				want := int32(1)
				if name == "head" && c.status == 404 {
					want = 2 // a GET follows, whose response has a code
				}
				if n := requests.Load(); n != want {
					t.Errorf("%d requests, want %d", n, want)
				}
			})
		}
	}
}

// TestS3NotFound_WithoutACode: a 404 without an S3 code is Transient, because an ingress responds with it while the
// service behind it restarts.
func TestS3NotFound_WithoutACode(t *testing.T) {
	for name, body := range map[string]string{
		"empty":        "",
		"text":         "default backend - 404",
		"page":         "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
		"sound page":   "<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1></body></html>",
		"JSON":         `{"code":"NoSuchKey","message":"no route"}`,
		"another code": "<Error><Code>NoSuchRoute</Code><Message>no</Message></Error>",
	} {
		for operation, do := range operations {
			t.Run(name+"/"+operation, func(t *testing.T) {
				s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, body)
				})
				checkError(t, do(t.Context(), s), nil, classify.Transient, false)
			})
		}
	}
}

// TestS3Head_NotFound: a HEAD with 404 has no code, so the store sends a GET, and the response to the GET decides.
func TestS3Head_NotFound(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		is     error
		class  classify.Class
	}{
		"no object":           {404, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>", objstore.ErrNotFound, classify.Transient},
		"no bucket":           {404, "<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>", objstore.ErrRefused, classify.Fatal},
		"denied":              {403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>", objstore.ErrRefused, classify.Fatal},
		"down":                {503, "", nil, classify.Transient},
		"an object":           {206, "x", nil, classify.Transient},
		"an object, no bytes": {416, "<Error><Code>InvalidRange</Code><Message>no</Message></Error>", nil, classify.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			s := s3Serving(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				if got := r.Header.Get("Range"); got != "bytes=0-0" {
					t.Errorf("asked for %q", got)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			checkError(t, operations["head"](t.Context(), s), c.is, c.class, false)
		})
	}
}

func checkError(t *testing.T, err, is error, class classify.Class, none bool) {
	t.Helper()
	switch {
	case none:
		if err != nil {
			t.Error(err)
		}
		return
	case err == nil:
		t.Error("no error")
		return
	case is != nil && !errors.Is(err, is):
		t.Errorf("%v, want %v", err, is)
	}
	for _, other := range []error{objstore.ErrExists, objstore.ErrNotFound, objstore.ErrRefused, objstore.ErrNotSent} {
		if errors.Is(err, other) && !errors.Is(is, other) {
			t.Errorf("%v must not be %q", err, other)
		}
	}
	if got, known := classify.Known(err); got != class || !known {
		t.Errorf("%v: %v (known %v), want %v", err, got, known, class)
	}
}

func s3Serving(t *testing.T, h http.HandlerFunc) *objstore.S3 {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return openS3(t, objstore.S3Config{
		Bucket: "bucket", Endpoint: server.URL, Region: "us-east-1", PathStyle: true, AccessKey: "a", SecretKey: "s",
	})
}

// TestS3LostAnswer: if a put gets no response, its outcome is unknown.
func TestS3LostAnswer(t *testing.T) {
	for name, do := range operations {
		s := s3Serving(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = c.Close()
			}
		})
		t.Run(name, func(t *testing.T) { checkError(t, do(t.Context(), s), nil, classify.Transient, false) })
	}
}

// TestS3BrokenAnswer: a response that breaks off counts as no response.
func TestS3BrokenAnswer(t *testing.T) {
	for _, name := range []string{"get", "list", "put-if-absent"} {
		s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = fmt.Fprint(w, "<ListBucketResult><Cont")
		})
		err := operations[name](t.Context(), s)
		if name == "put-if-absent" && err == nil {
			continue // the status decides, whether the body is complete or not
		}
		t.Run(name, func(t *testing.T) { checkError(t, err, nil, classify.Transient, false) })
	}
}

func TestS3_ConnectionRefused(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := openS3(t, objstore.S3Config{
		Bucket: "b", Endpoint: "http://" + l.Addr().String(), PathStyle: true, AccessKey: "a", SecretKey: "s",
	})
	for name, do := range operations {
		t.Run(name, func(t *testing.T) { checkError(t, do(t.Context(), s), objstore.ErrNotSent, classify.Transient, false) })
	}
}

func TestS3Request(t *testing.T) {
	var got []http.Header
	s := s3Serving(t, func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header) })
	for _, name := range []string{"put", "put-if-absent"} {
		if err := operations[name](t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for i, condition := range []string{"", "*"} {
		if c := got[i].Get("If-None-Match"); c != condition {
			t.Errorf("condition %q, want %q", c, condition)
		}
		for name := range got[i] {
			if n := strings.ToLower(name); strings.Contains(n, "checksum") || strings.Contains(n, "trailer") || n == "content-encoding" {
				t.Errorf("%s: %s", name, got[i].Get(name))
			}
		}
		if l := got[i].Get("Content-Length"); l != "4" {
			t.Errorf("length %s", l)
		}
	}
}

// TestS3KeysAreReadAgain: the store reads the files with its keys again after the server has denied a request, and only
// then.
func TestS3KeysAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	access, secret := filepath.Join(dir, "access"), filepath.Join(dir, "secret")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(access, "old\n")
	write(secret, " one \n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=new/") {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	reads := 0
	files := objstore.KeysFromFiles(access, secret)
	s := openS3(t, objstore.S3Config{
		Bucket: "bucket", Endpoint: server.URL, PathStyle: true,
		Keys: func(ctx context.Context) (objstore.Keys, error) { reads++; return files(ctx) },
	})
	put := operations["put"]
	checkError(t, put(t.Context(), s), objstore.ErrRefused, classify.Fatal, false)
	write(access, "new")
	for range 3 {
		if err := put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 2 {
		t.Errorf("keys were read %d times", reads)
	}

	missing := openS3(t, objstore.S3Config{
		Bucket: "bucket", Endpoint: server.URL, PathStyle: true, Keys: objstore.KeysFromFiles(access, filepath.Join(dir, "no")),
	})
	checkError(t, put(t.Context(), missing), objstore.ErrNotSent, classify.Fatal, false)
	write(secret, "")
	empty := openS3(t, objstore.S3Config{
		Bucket: "bucket", Endpoint: server.URL, PathStyle: true, Keys: objstore.KeysFromFiles(access, secret),
	})
	checkError(t, put(t.Context(), empty), objstore.ErrNotSent, classify.Fatal, false)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestS3KeysAge: keys are read again after ten seconds, so that no request uses the old keys long after a rotation. While
// their files are broken, the keys before them are used, until the store denies those.
func TestS3KeysAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, broken := "first", error(nil)
		var used []string
		denied := false
		s := openS3(t, objstore.S3Config{
			Bucket: "bucket", Endpoint: "http://127.0.0.1:1", PathStyle: true,
			Keys: func(context.Context) (objstore.Keys, error) { return objstore.Keys{Access: now, Secret: "s"}, broken },
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
				name, _, _ := strings.Cut(rest, "/")
				used = append(used, name)
				status := http.StatusOK
				if denied {
					status = http.StatusForbidden
				}
				return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
			}),
		})
		put := operations["put"]
		works := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if err := put(t.Context(), s); err != nil || used[len(used)-1] != want {
				t.Errorf("%v, with the keys %v, want %s", err, used, want)
			}
		}
		works(0, "first")
		now = "second"
		works(9*time.Second, "first")
		works(time.Second, "second")
		now, broken = "", errors.New("the file is missing")
		works(11*time.Second, "second")
		denied = true
		checkError(t, put(t.Context(), s), objstore.ErrRefused, classify.Fatal, false)
		if err := put(t.Context(), s); !errors.Is(err, broken) {
			t.Errorf("%v, want %v", err, broken)
		}
		now, broken, denied = "third", nil, false
		works(0, "third")
	})
}

// TestS3KeysArePairs: while another process replaces both files at once, an access key comes with its own secret key.
func TestS3KeysArePairs(t *testing.T) {
	dir := t.TempDir()
	swap := func(n int) {
		folder := filepath.Join(dir, strconv.Itoa(n))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"access", "secret"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(strconv.Itoa(n)), 0o600); err != nil {
				t.Error(err)
			}
		}
		next := filepath.Join(dir, "next")
		if err := errors.Join(os.Symlink(folder, next), os.Rename(next, filepath.Join(dir, "data"))); err != nil {
			t.Error(err)
		}
	}
	swap(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
				swap(n)
			}
		}
	}()
	read := objstore.KeysFromFiles(filepath.Join(dir, "data", "access"), filepath.Join(dir, "data", "secret"))
	for range 3000 {
		k, err := read(t.Context())
		if err != nil || k.Access != k.Secret {
			t.Errorf("%+v, %v", k, err)
			break
		}
	}
	close(stop)
	<-done
}

// TestS3LastCheckComesAfterSigning: if the process sleeps between the last check and sending, the signature has become
// old, and the store refuses the request. This would not be so if the check came before signing.
func TestS3LastCheckComesAfterSigning(t *testing.T) {
	var order []string
	s := openS3(t, objstore.S3Config{
		Bucket: "b", Endpoint: "http://127.0.0.1:1", PathStyle: true,
		Keys: func(context.Context) (objstore.Keys, error) {
			order = append(order, "sign")
			return objstore.Keys{Access: "a", Secret: "s"}, nil
		},
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			order = append(order, "send")
			if r.Header.Get("Authorization") == "" {
				t.Error("not signed")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		}),
	})
	ctx := objstore.WithLastCheck(t.Context(), func() error { order = append(order, "check"); return nil })
	if err := operations["put-if-absent"](ctx, s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"sign", "check", "send"}, order); d != "" {
		t.Error(d)
	}
}

func TestS3OverTLS(t *testing.T) {
	var hash string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hash = r.Header.Get("X-Amz-Content-Sha256")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	c := objstore.S3Config{Bucket: "b", Endpoint: server.URL, PathStyle: true, AccessKey: "a", SecretKey: "s"}
	checkError(t, operations["put"](t.Context(), openS3(t, c)), objstore.ErrNotSent, classify.Fatal, false)
	c.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	c.TLS.RootCAs.AddCert(server.Certificate())
	if err := operations["put"](t.Context(), openS3(t, c)); err != nil {
		t.Fatal(err)
	}
	if hash != "UNSIGNED-PAYLOAD" {
		t.Errorf("the body is hashed, although TLS protects it: %s", hash)
	}
}

func TestS3RefusesAnUnorderedList(t *testing.T) {
	s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "<ListBucketResult><Contents><Key>k2</Key></Contents><Contents><Key>k1</Key></Contents></ListBucketResult>")
	})
	checkError(t, operations["list"](t.Context(), s), objstore.ErrUnsafe, classify.Fatal, false)
}

func TestS3RefusesAnIgnoredRange(t *testing.T) {
	s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "all of it") })
	_, err := s.Get(t.Context(), "key", 3, 2)
	checkError(t, err, objstore.ErrRefused, classify.Fatal, false)
}

func TestS3Config(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	for want, c := range map[string]objstore.S3Config{
		"the name of the bucket is missing": {},
		"directory buckets":                 {Bucket: "logs--use1-az4--x-s3"},
		"shortest form":                     {Bucket: "b", Prefix: "a//b"},
		"belong together":                   {Bucket: "b", AccessKey: "a"},
		"the region is missing":             {Bucket: "b"},
	} {
		if _, err := objstore.NewS3(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) || classify.Of(err) != classify.Fatal {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// pipes is a network in a synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubble runs test in a synctest bubble, with a store whose server is h and whose clock is that of the bubble.
func inBubble(t *testing.T, h http.HandlerFunc, test func(*testing.T, *objstore.S3)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: h}
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		transport := &http.Transport{DialContext: p.DialContext}
		s, err := objstore.NewS3(t.Context(), objstore.S3Config{
			Bucket: "b", Endpoint: "http://127.0.0.1:1", PathStyle: true, AccessKey: "a", SecretKey: "s", Transport: transport,
		})
		if err != nil {
			t.Fatal(err)
		}
		test(t, s)
		if err := errors.Join(s.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // handlers that sleep end in this time
	})
}

// TestS3Silence: a request without a response ends after the timeout of the store, and its outcome is unknown.
func TestS3Silence(t *testing.T) {
	for name, do := range operations {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}, func(t *testing.T, s *objstore.S3) {
				t.Helper()
				began := time.Now()
				checkError(t, do(t.Context(), s), nil, classify.Transient, false)
				if d := time.Since(began); d != 30*time.Second {
					t.Errorf("after %v", d)
				}
			})
		})
	}
}

// TestS3CanceledOnItsWay: if ctx ends after the request of a put was sent, the outcome of the put is unknown.
func TestS3CanceledOnItsWay(t *testing.T) {
	inBubble(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, s *objstore.S3) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		checkError(t, operations["put-if-absent"](ctx, s), context.Canceled, classify.Canceled, false)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		checkError(t, operations["put-if-absent"](ctx, s), context.DeadlineExceeded, classify.Transient, false)
	})
}

// TestS3StalledBody: if a response body stops arriving, the read fails after the timeout.
func TestS3StalledBody(t *testing.T) {
	inBubble(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = fmt.Fprint(w, "12345")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(t *testing.T, s *objstore.S3) {
		t.Helper()
		began := time.Now()
		checkError(t, operations["get"](t.Context(), s), nil, classify.Transient, false)
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// TestS3SlowReader: the time that a reader spends between two reads of a body does not count towards the timeout.
func TestS3SlowReader(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 1<<20)
	inBubble(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }, func(t *testing.T, s *objstore.S3) {
		t.Helper()
		r, err := s.Get(t.Context(), "key", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for part := make([]byte, 300<<10); err == nil; {
			var n int
			n, err = io.ReadFull(r, part)
			got = append(got, part[:n]...)
			time.Sleep(time.Hour)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, body) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestS3Trickle: a put that makes progress far too slowly also ends after the timeout.
func TestS3Trickle(t *testing.T) {
	inBubble(t, func(_ http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(25 * time.Second)
		defer tick.Stop()
		for b := make([]byte, 64<<10); ; {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				return
			}
			<-tick.C
		}
	}, func(t *testing.T, s *objstore.S3) {
		t.Helper()
		began := time.Now()
		err := s.Put(t.Context(), "key", bytes.NewReader(make([]byte, 8<<20)), objstore.Replace)
		checkError(t, err, nil, classify.Transient, false)
		if d := time.Since(began); d != (60+128)*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// TestS3Folders: List leaves out the empty objects that consoles create for folders.
func TestS3Folders(t *testing.T) {
	c := objstoretest.ServeS3(t, nil)
	c.Prefix = "tables"
	s := openS3(t, c)
	for _, key := range []string{"", "a/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, c.Endpoint+"/bucket/tables/"+key, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := new(http.Client).Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		_ = resp.Body.Close()
	}
	if err := s.Put(t.Context(), "a/b", strings.NewReader("x"), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, i.Key)
	}
	if !slices.Equal(keys, []string{"a/b"}) {
		t.Errorf("listed %q", keys)
	}
}
