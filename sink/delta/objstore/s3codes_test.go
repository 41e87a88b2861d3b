package objstore_test

import (
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"sluice/classify"
	"sluice/classify/classtest"
	"sluice/sink/delta/objstore"
)

// answering returns a store whose server responds to each request with the same error. Its texts quote bucket and key,
// as those of S3 do.
func answering(t *testing.T, status int, code string) *objstore.S3 {
	t.Helper()
	return s3Serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		var quoted strings.Builder
		if err := xml.EscapeText(&quoted, []byte(r.URL.Path)); err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no: %s</Message><Key>%[2]s</Key></Error>", code, quoted.String())
	})
}

// TestS3Codes: each error of S3 that classes.txt lists has the class from that file, after a read and after a put of a
// commit.
func TestS3Codes(t *testing.T) {
	known := map[string]error{}
	for _, row := range classtest.Rows("s3") {
		digits, code, _ := strings.Cut(row.Key, " ")
		status, err := strconv.Atoi(digits)
		if err != nil {
			continue // this row is for an error without a response, which is tested below
		}
		s := answering(t, status, code)
		get, put := operations["get"](t.Context(), s), operations["put-if-absent"](t.Context(), s)
		known[row.Key] = get
		answers := errors.Is(get, objstore.ErrNotFound) || errors.Is(put, objstore.ErrExists)
		if got := classtest.Class(put); row.Class != "answer" && got != row.Class {
			t.Errorf("%s after a put is %s, classes.txt says %s", row.Key, got, row.Class)
		}
		if answers != (row.Class == "answer") {
			t.Errorf("%s is an answer: %v; classes.txt says %s", row.Key, answers, row.Class)
		}
		if row.Class == "fatal" && (!errors.Is(get, objstore.ErrRefused) || !errors.Is(put, objstore.ErrRefused)) {
			t.Errorf("%s: %v, %v; want a refusal", row.Key, get, put)
		}
		if answers {
			known[row.Key] = answer{}
		}
	}

	known["404 of something else than S3"] = operations["put-if-absent"](t.Context(), s3Serving(t, http.NotFound))
	gone := s3Serving(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	known["no answer"] = operations["put-if-absent"](t.Context(), gone)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	known["HTTP where HTTPS is spoken"] = operations["get"](t.Context(), openS3(t, objstore.S3Config{
		Bucket: "b", Endpoint: strings.Replace(plain.URL, "http:", "https:", 1), PathStyle: true, AccessKey: "a", SecretKey: "s",
		TLS: &tls.Config{MinVersion: tls.VersionTLS12},
	}))
	checkRows(t, known)
}

// answer replaces ErrNotFound and ErrExists, which are results and no failures. classes.txt gives them the class
// "answer".
type answer struct{}

func (answer) Error() string { return "an answer" }

// checkRows compares the classes of errors with classes.txt, as [classtest.Check] does. It also accepts the class
// "answer", which only errors of S3 have.
func checkRows(t *testing.T, known map[string]error) {
	t.Helper()
	for _, row := range classtest.Rows("s3") {
		err, ok := known[row.Key]
		var got string
		switch {
		case !ok:
			t.Errorf("%s stands in classes.txt and nobody makes it", row.Key)
			continue
		case errors.Is(err, answer{}):
			got = "answer"
		default:
			got = classtest.Class(err)
		}
		if got != row.Class {
			t.Errorf("%s (%v) is %s, classes.txt says %s", row.Key, err, got, row.Class)
		}
	}
}

// TestS3CodesOfTheSDK: classes.txt has every code that the SDK knows, so a new one fails the test. Codes that the SDK
// would retry have the class Transient there.
func TestS3CodesOfTheSDK(t *testing.T) {
	rows := map[string][]string{}
	for _, row := range classtest.Rows("s3") {
		_, code, _ := strings.Cut(row.Key, " ")
		rows[code] = append(rows[code], row.Class)
	}
	for _, names := range []map[string]struct{}{retry.DefaultThrottleErrorCodes, retry.DefaultRetryableErrorCodes} {
		for name := range names {
			if c := rows[name]; len(c) == 0 || slices.ContainsFunc(c, func(c string) bool { return c != "transient" }) {
				t.Errorf("the SDK would try %s again, classes.txt says %q", name, c)
			}
		}
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/s3/types").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "errors.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`return "(\w+)"`).FindAllSubmatch(source, -1)
	if len(names) < 15 {
		t.Fatalf("%d codes in the SDK", len(names))
	}
	for _, name := range names {
		if rows[string(name[1])] == nil {
			t.Errorf("the SDK knows %s, classes.txt does not", name[1])
		}
	}
}

// TestNamesDoNotSteer: no name of a bucket, prefix or key changes the class of an error, although stores quote the
// names in their responses.
func TestNamesDoNotSteer(t *testing.T) {
	for _, lie := range []string{
		"connection timeout 503", "AccessDenied", "SlowDown", "context canceled", "NoSuchBucket",
		"<Code>AccessDenied</Code>", "</Message><Code>SlowDown</Code>", "throttl rate limit unavailable",
	} {
		for _, c := range []struct {
			status int
			code   string
			is     error
			class  classify.Class
		}{
			{404, "NoSuchKey", objstore.ErrNotFound, classify.Transient},
			{403, "AccessDenied", objstore.ErrRefused, classify.Fatal},
			{503, "SlowDown", nil, classify.Transient},
			{400, "InvalidArgument", objstore.ErrRefused, classify.Fatal},
		} {
			s := objstore.Sub(answering(t, c.status, c.code), lie)
			_, err := s.Get(t.Context(), lie, 0, -1)
			checkError(t, err, c.is, c.class, false)
		}
		config := objstore.S3Config{
			Bucket: lie, Prefix: lie, Endpoint: "http://127.0.0.1:1", PathStyle: true, AccessKey: "a", SecretKey: "s",
		}
		if s, err := objstore.NewS3(t.Context(), config); err == nil {
			_, err := s.Get(t.Context(), lie, 0, -1)
			if got := classify.Of(err); got != classify.Transient || errors.Is(err, objstore.ErrRefused) {
				t.Errorf("a bucket named %q where nobody listens: %v is %v", lie, err, got)
			}
		}
	}
}

// TestOneTryIsOneRequest: if the store responds with 503 or 429, resets a connection or closes it, neither the SDK nor
// the transport repeats the request; only the guard may. There is one exception, in net/http: if the store closes an
// idle connection, a read (never a put) on it is repeated on another one, as HTTP allows (RFC 9110, section 9.2.2).
func TestOneTryIsOneRequest(t *testing.T) {
	for name, do := range operations {
		for failure, fail := range map[string]func(http.ResponseWriter){
			"overrun": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
			"throttled": func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			"reset": func(w http.ResponseWriter) {
				if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
					_ = c.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
			},
			"closed": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		} {
			t.Run(name+"/"+failure, func(t *testing.T) {
				var requests atomic.Int32
				s := s3Serving(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if requests.Add(1) == 1 { // the first request succeeds, so that its connection is idle and used again
						w.WriteHeader(http.StatusNoContent)
						return
					}
					fail(w)
				})
				if err := operations["put"](t.Context(), s); err != nil {
					t.Fatal(err)
				}
				checkError(t, do(t.Context(), s), nil, classify.Transient, false)
				most := int32(1)
				if read := name == "get" || name == "head" || name == "list"; read && (failure == "reset" || failure == "closed") {
					most = 2
				}
				if n := requests.Load() - 1; n < 1 || n > most {
					t.Errorf("one try made %d requests", n)
				}
			})
		}
	}
}
