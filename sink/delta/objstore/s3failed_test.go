package objstore_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/test/certs"
)

// Error bodies as the services write them.
const (
	awsNoSuchBucket = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message><BucketName>lake</BucketName><RequestId>TX0F7QGPZ3JBXK3V</RequestId><HostId>4Ek9r0wJzO5hLXvX+Lz0WQb9Yg7uZlG8=</HostId></Error>`
	minioNoSuchBucket = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message><Key>tables/orders/x</Key><BucketName>lake</BucketName><Resource>/lake/tables/orders/x</Resource><RequestId>18EA7D058D9E394E</RequestId><HostId>15e2e0ddf77294e02e8980566486d695567b365e2e4e501c018549f2589e41e9</HostId></Error>`
	awsBadSignature = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we calculated does not match the signature you provided. Check your key and signing method.</Message><AWSAccessKeyId>AKIAIOSFODNN7EXAMPLE</AWSAccessKeyId><StringToSign>AWS4-HMAC-SHA256
20260131T080000Z
20260131/us-east-1/s3/aws4_request
0e6b6b8a</StringToSign><SignatureProvided>1f2e3d4c5b6a</SignatureProvided><CanonicalRequest>PUT
/lake/x
x-id=PutObject</CanonicalRequest><RequestId>0R5NWQ8PZB2K4S3H</RequestId><HostId>d1b=</HostId></Error>`
	minioBadSignature = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we calculated does not match the signature you provided. Check your key and signing method.</Message><Key>k</Key><BucketName>lake</BucketName><Resource>/lake/k</Resource><RequestId>18EA7D058F2B10A2</RequestId><HostId>15e2</HostId></Error>`
	awsUnknownKey = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided does not exist in our records.</Message><AWSAccessKeyId>AKIAIOSFODNN7EXAMPLE</AWSAccessKeyId><RequestId>9QZ1</RequestId><HostId>h</HostId></Error>`
	minioUnknownKey = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The Access Key Id you provided does not exist in our records.</Message><Key>k</Key><BucketName>lake</BucketName><Resource>/lake/k</Resource><RequestId>18EA7D058E9E394E</RequestId><HostId>15e2</HostId></Error>`
	awsExpiredToken = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message><Token-0>FwoGZXIvYXdzEXAMPLE</Token-0><RequestId>7K</RequestId><HostId>h</HostId></Error>`
	awsDenied = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::111122223333:user/sluice is not authorized to perform: s3:PutObject on resource: "arn:aws:s3:::lake/tables/key" because no identity-based policy allows the s3:PutObject action</Message><RequestId>5B</RequestId><HostId>h</HostId></Error>`
	minioDenied = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>Access Denied.</Message><Key>k</Key><BucketName>lake</BucketName><Resource>/lake/k</Resource><RequestId>18EA7D0594BF3B84</RequestId><HostId>15e2</HostId></Error>`
	awsDisabled = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AllAccessDisabled</Code><Message>All access to this object has been disabled</Message><RequestId>5C</RequestId><HostId>h</HostId></Error>`
	awsRedirect = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must be addressed using the specified endpoint. Please send all future requests to this endpoint.</Message><Endpoint>lake.s3.eu-west-1.amazonaws.com</Endpoint><Bucket>lake</Bucket><RequestId>3F</RequestId><HostId>h</HostId></Error>`
	awsMalformed = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region><RequestId>2D</RequestId><HostId>h</HostId></Error>`
	awsLocation = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>IllegalLocationConstraintException</Code><Message>The eu-west-1 location constraint is incompatible for the region specific endpoint this request was sent to.</Message><RequestId>2E</RequestId><HostId>h</HostId></Error>`
	awsSkewed = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is too large.</Message><RequestTime>20200101T000000Z</RequestTime><ServerTime>2026-01-31T08:00:00Z</ServerTime><MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds><RequestId>8A</RequestId><HostId>h</HostId></Error>`
	minioSkewed = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the server&#39;s time is too large.</Message><Resource>/nolake/k</Resource><RequestId>18EA7D0590637026</RequestId><HostId>15e2</HostId></Error>`
	awsSlowDown = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>6C</RequestId><HostId>h</HostId></Error>`
)

// fake is a server that gives every request the same response, and the configuration of a store at this server. what
// and hint are the expected text and hint of the error.
type fake struct {
	operation string // "put" if empty
	status    int
	header    http.Header
	body      string
	change    func(*objstore.S3Config)
	aws       bool // the store is configured for AWS, but its requests reach this server
	what      string
	hint      string
}

// open returns a store at the server, and the server's endpoint.
func (f fake) open(t *testing.T) (store *objstore.S3, endpoint string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), f.header)
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.body)
	}))
	t.Cleanup(server.Close)
	c := objstore.S3Config{
		Bucket: "lake", Prefix: "tables", Endpoint: server.URL, Region: "us-east-1", PathStyle: true,
		AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI",
	}
	if f.aws {
		c.Endpoint, c.PathStyle, c.AccessKey, c.SecretKey = "", false, "", ""
		c.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			there := r.Clone(r.Context())
			there.URL.Scheme, there.URL.Host = "http", server.Listener.Addr().String()
			return new(http.Transport).RoundTrip(there)
		})
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
		t.Setenv("AWS_SESSION_TOKEN", "FwoGZXIvYXdzEXAMPLE")
	}
	if f.change != nil {
		f.change(&c)
	}
	return openS3(t, c), server.URL
}

func header(name, value string) http.Header { return http.Header{name: {value}} }

// TestExplain_Answers: for each response of a store, the error has a text of one line and a hint that fits that
// response.
func TestExplain_Answers(t *testing.T) {
	const at = `key: bucket "lake" at {endpoint}: `
	const there = `key: bucket "lake" at https://lake.s3.us-east-1.amazonaws.com: `
	files := func(c *objstore.S3Config) {
		c.AccessKey, c.SecretKey = "", ""
		c.Keys = func(context.Context) (objstore.Keys, error) {
			return objstore.Keys{Access: "access", Secret: "secret"}, nil
		}
	}
	named := func(c *objstore.S3Config) { // an endpoint with a host name, before which the SDK puts the bucket's name
		c.Endpoint, c.PathStyle = strings.Replace(c.Endpoint, "127.0.0.1", "localhost", 1), false
		c.Transport = &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(strings.Replace(c.Endpoint, "localhost", "127.0.0.1", 1), "http://"))
		}}
	}
	for name, c := range map[string]fake{
		"missing bucket/AWS": {
			aws: true, status: 404, body: awsNoSuchBucket,
			what: "put " + there + "NoSuchBucket (404): The specified bucket does not exist (request id TX0F7QGPZ3JBXK3V)",
			hint: `create bucket "lake", or correct its name in storage.url`,
		},
		"missing bucket/MinIO": {
			status: 404, body: minioNoSuchBucket,
			what: "put " + at + "NoSuchBucket (404): The specified bucket does not exist (request id 18EA7D058D9E394E)",
			hint: `create bucket "lake", or correct its name in storage.url`,
		},
		"missing bucket/list": { // the SDK has an error type for this response
			operation: "list", status: 404, body: minioNoSuchBucket,
			what: `list k: bucket "lake" at {endpoint}: NoSuchBucket (404): The specified bucket does not exist (request id 18EA7D058D9E394E)`,
			hint: `create bucket "lake", or correct its name in storage.url`,
		},
		"missing bucket/by name": {
			status: 404, body: minioNoSuchBucket, change: named,
			what: `put key: bucket "lake" at {named}: NoSuchBucket (404): The specified bucket does not exist (request id 18EA7D058D9E394E)`,
			hint: `create bucket "lake", or correct its name in storage.url; if the server knows buckets by their path only, set storage.s3.path_style: true`,
		},
		"bad signature/AWS": {
			aws: true, status: 403, body: awsBadSignature,
			what: "put " + there + "SignatureDoesNotMatch (403): The request signature we calculated does not match the signature you provided. " +
				"Check your key and signing method. (request id 0R5NWQ8PZB2K4S3H)",
			hint: "correct the secret key of AWS's environment variables, profile or role, which does not belong to the access key. " +
				"If it does, a proxy changes requests on their way",
		},
		"bad signature/MinIO": {
			status: 403, body: minioBadSignature,
			what: "put " + at + "SignatureDoesNotMatch (403): The request signature we calculated does not match the signature you provided. " +
				"Check your key and signing method. (request id 18EA7D058F2B10A2)",
			hint: "correct storage.s3.secret_key, which does not belong to the access key. If it does, a proxy changes requests on their way",
		},
		"unknown key/AWS": {
			aws: true, status: 403, body: awsUnknownKey,
			what: "put " + there + "InvalidAccessKeyId (403): The AWS Access Key Id you provided does not exist in our records. (request id 9QZ1)",
			hint: "correct the access key of AWS's environment variables, profile or role, which the store does not know",
		},
		"unknown key/MinIO": {
			status: 403, body: minioUnknownKey, change: files,
			what: "put " + at + "InvalidAccessKeyId (403): The Access Key Id you provided does not exist in our records. (request id 18EA7D058E9E394E)",
			hint: "correct storage.s3.access_key_file, which the store does not know, or storage.s3.endpoint if the keys are another store's",
		},
		"expired token": {
			aws: true, status: 400, body: awsExpiredToken,
			what: "put " + there + "ExpiredToken (400): The provided token has expired. (request id 7K)",
			hint: "renew the keys of AWS's environment variables, profile or role; temporary keys expire and need their session token",
		},
		"denied/AWS": {
			aws: true, status: 403, body: awsDenied,
			what: "put " + there + "AccessDenied (403): User: arn:aws:iam::111122223333:user/sluice is not authorized to perform: s3:PutObject " +
				`on resource: "arn:aws:s3:::lake/tables/key" because no identity-based policy allows the s3:PutObject action (request id 5B)`,
			hint: "allow s3:PutObject on arn:aws:s3:::lake/tables/*, in the policy of the user or role that the keys belong to and in that of the bucket",
		},
		"denied/MinIO": {
			operation: "list", status: 403, body: minioDenied,
			what: `list k: bucket "lake" at {endpoint}: AccessDenied (403): Access Denied. (request id 18EA7D0594BF3B84)`,
			hint: "allow s3:ListBucket on arn:aws:s3:::lake, in the policy of the user or role that the keys belong to and in that of the bucket",
		},
		"denied/get": {
			operation: "get", status: 403, body: awsDisabled,
			what: "get " + at + "AllAccessDisabled (403): All access to this object has been disabled (request id 5C)",
			hint: "allow s3:GetObject on arn:aws:s3:::lake/tables/* and s3:ListBucket on arn:aws:s3:::lake, " +
				"in the policy of the user or role that the keys belong to and in that of the bucket",
		},
		"denied/delete": {
			operation: "delete", status: 403, body: minioDenied,
			what: "delete " + at + "AccessDenied (403): Access Denied. (request id 18EA7D0594BF3B84)",
			hint: "allow s3:DeleteObject on arn:aws:s3:::lake/tables/*, in the policy of the user or role that the keys belong to and in that of the bucket",
		},
		"denied/head": { // the response has no body
			operation: "head", status: 403, header: header("X-Amz-Request-Id", "18EA"),
			what: "head " + at + "403 Forbidden without an S3 error code (request id 18EA)",
			hint: "correct storage.s3.access_key and storage.s3.secret_key, or allow s3:GetObject on arn:aws:s3:::lake/tables/* and s3:ListBucket on arn:aws:s3:::lake",
		},
		"region/redirect": {
			aws: true, status: 301, body: awsRedirect, header: header("X-Amz-Bucket-Region", "eu-west-1"),
			what: "put " + there + "PermanentRedirect (301): The bucket you are attempting to access must be addressed using the specified endpoint. " +
				"Please send all future requests to this endpoint. (request id 3F)",
			hint: "set storage.s3.region to eu-west-1; requests go to us-east-1 now",
		},
		"region/head": {
			aws: true, operation: "head", status: 301, header: header("X-Amz-Bucket-Region", "eu-west-1"),
			what: "head " + there + "301 Moved Permanently without an S3 error code",
			hint: "set storage.s3.region to eu-west-1; requests go to us-east-1 now",
		},
		"region/signature": {
			status: 400, body: awsMalformed,
			what: "put " + at + "AuthorizationHeaderMalformed (400): The authorization header is malformed; the region 'us-east-1' is wrong; " +
				"expecting 'eu-west-1' (request id 2D)",
			hint: "set storage.s3.region to the region of the bucket; requests go to us-east-1 now. If storage.s3.endpoint names a region, correct it, too",
		},
		"region/location": {
			aws: true, status: 400, body: awsLocation,
			what: "put " + there + "IllegalLocationConstraintException (400): The eu-west-1 location constraint is incompatible for the region specific " +
				"endpoint this request was sent to. (request id 2E)",
			hint: "set storage.s3.region to the region of the bucket; requests go to us-east-1 now",
		},
		"redirect of a proxy": {
			status: 308, header: header("Location", "https://u:p@s3.example.com/lake?X-Amz-Signature=12345678"), body: "<html>moved</html>",
			what: "put " + at + "308 Permanent Redirect without an S3 error code",
			hint: "set storage.s3.endpoint to the address that the response points to, https://s3.example.com/lake, or correct storage.s3.region",
		},
		"clock/AWS": {
			aws: true, status: 403, body: awsSkewed,
			what: "put " + there + "RequestTimeTooSkewed (403): The difference between the request time and the current time is too large. (request id 8A)",
			hint: "set the clock of this host: it differs too much from the store's",
		},
		"clock/MinIO": {
			status: 403, body: minioSkewed,
			what: "put " + at + "RequestTimeTooSkewed (403): The difference between the request time and the server's time is too large. (request id 18EA7D0590637026)",
			hint: "set the clock of this host: it differs too much from the store's",
		},
		"plain HTTP at a port of TLS": { // the response of net/http to HTTP at a port for TLS, which MinIO uses
			status: 400, body: "Client sent an HTTP request to an HTTPS server.\n",
			what: "put " + at + "400 Bad Request without an S3 error code",
			hint: "write https:// into storage.s3.endpoint if the server speaks TLS at this port, or correct the port",
		},
		"something else than S3": {
			status: 404, body: "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>nginx</body>\r\n</html>\r\n",
			what: "put " + at + "404 Not Found without an S3 error code",
			hint: "correct storage.s3.endpoint if something else than S3 answers there, such as a proxy or a web console",
		},
		"overloaded": {
			status: 503, body: awsSlowDown,
			what: "put " + at + "SlowDown (503): Please reduce your request rate. (request id 6C)",
		},
		"a proxy whose service is down": {
			status: 502, body: "bad gateway",
			what: "put " + at + "502 Bad Gateway without an S3 error code",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, endpoint := c.open(t)
			operation := "put"
			if c.operation != "" {
				operation = c.operation
			}
			err := operations[operation](t.Context(), s)
			what := strings.NewReplacer("{endpoint}", endpoint, "{named}", strings.Replace(endpoint, "127.0.0.1", "localhost", 1)).Replace(c.what)
			explains(t, err, what, c.hint)
		})
	}
}

// explains fails the test unless the error has this text and this hint, and Error returns both.
func explains(t *testing.T, err error, what, hint string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	gotWhat, gotHint := objstore.Explain(err)
	if d := cmp.Diff([]string{what, hint}, []string{gotWhat, gotHint}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text := what
	if hint != "" {
		text += ": " + hint
	}
	if d := cmp.Diff(text, err.Error()); d != "" {
		t.Errorf("the text (-want +got):\n%s", d)
	}
	oneLine(t, err)
}

// maxHint is how many characters a hint may add to a text of 400 characters.
const maxHint = 400

// oneLine fails the test unless the text of err is one line, is short, and shows no part of the credentials or of a
// query.
func oneLine(t *testing.T, err error) {
	t.Helper()
	what, hint := objstore.Explain(err)
	for text, limit := range map[string]int{what: 400, hint: maxHint, err.Error(): 400 + len(": ") + maxHint + len("self-test: ")} {
		if n := utf8.RuneCountInString(text); n > limit || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%d characters, want at most %d printable ones: %q", n, limit, text)
		}
		for _, secret := range []string{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI", "FwoGZXIvYXdzEXAMPLE", "x-id=", "Signature="} {
			if strings.Contains(text, secret) {
				t.Errorf("shows %s: %s", secret, text)
			}
		}
	}
}

// TestExplain_NoAnswer: for each way in which a request gets no response, the error has a text of one line and a hint
// that fits.
func TestExplain_NoAnswer(t *testing.T) {
	silent := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		t.Cleanup(s.Close)
		return s
	}
	plain := silent(httptest.NewServer(http.NotFoundHandler()))
	own := certs.NewCA(t, "own")
	serve := func(leaf certs.Leaf) string {
		s := silent(httptest.NewUnstartedServer(http.NotFoundHandler()))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{own.Issue(t, leaf).TLS(t)}}
		s.StartTLS()
		return s.URL
	}
	trusted := certs.Write(t, t.TempDir(), "ca.pem", own.PEM)
	strange := serve(certs.Leaf{Hosts: []string{"127.0.0.1"}})
	expired := serve(certs.Leaf{Hosts: []string{"127.0.0.1"}, From: time.Now().Add(-48 * time.Hour), To: time.Now().Add(-24 * time.Hour)})
	other := serve(certs.Leaf{Hosts: []string{"other.example"}})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // a TLS server that responds with an alert
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// Read the whole request first, or the client would report that it could not send the end of the request.
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			_, _ = c.Write([]byte("\x15\x03\x01\x00\x02\x02\x46"))
			_ = c.Close()
		}
	}()
	const sent = `put key: bucket "lake" at `
	failing := func(err error) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) { return nil, err })
	}
	notFound := func(name string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: name, Server: "10.0.0.2:53", IsNotFound: true}}
	}
	for name, c := range map[string]struct {
		config     objstore.S3Config
		what, hint string // {…} stands for text of the operating system
	}{
		"no TLS": {
			objstore.S3Config{Endpoint: strings.Replace(plain.URL, "http:", "https:", 1)},
			"request not sent: http: server gave HTTP response to HTTPS client",
			"write http:// into storage.s3.endpoint (with storage.s3.insecure_plaintext: true for another machine), or the port at which the server speaks TLS",
		},
		"no TLS, and not HTTP": {
			objstore.S3Config{Endpoint: "https://s3.example", Transport: failing(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"})},
			"tls: first record does not look like a TLS handshake",
			"write http:// into storage.s3.endpoint (with storage.s3.insecure_plaintext: true for another machine), or the port at which the server speaks TLS",
		},
		"TLS at a plain port": {
			objstore.S3Config{Endpoint: "http://" + l.Addr().String()},
			`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x15\x03\x01\x00\x02\x02F"`,
			"write https:// into storage.s3.endpoint: the server speaks TLS at this port",
		},
		"unknown authority": {
			objstore.S3Config{Endpoint: strange},
			"request not sent: tls: failed to verify certificate: x509: certificate signed by unknown authority",
			"set storage.s3.ca_file to the certificate of the authority that signed the server's certificate",
		},
		"expired certificate": {
			objstore.S3Config{Endpoint: expired, CAFile: trusted},
			"request not sent: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time {…}",
			"renew the server's certificate, or set the clock of this host",
		},
		"another host": {
			objstore.S3Config{Endpoint: other, CAFile: trusted},
			"request not sent: tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
			"write a host into storage.s3.endpoint that the server's certificate is for",
		},
		"unknown host": {
			objstore.S3Config{Endpoint: "https://minio.example:9000", PathStyle: true, Transport: failing(notFound("minio.example"))},
			"dial tcp: lookup minio.example on 10.0.0.2:53: no such host",
			"correct the host in storage.s3.endpoint, or the DNS of this host",
		},
		"unknown host with the bucket": {
			objstore.S3Config{Endpoint: "https://minio.example:9000", Transport: failing(notFound("lake.minio.example"))},
			"dial tcp: lookup lake.minio.example on 10.0.0.2:53: no such host",
			"correct the host in storage.s3.endpoint, or set storage.s3.path_style: true if the server knows buckets by their path only",
		},
		"unknown host of AWS": {
			objstore.S3Config{Region: "eu-wset-1", Transport: failing(notFound("lake.s3.eu-wset-1.amazonaws.com"))},
			"dial tcp: lookup lake.s3.eu-wset-1.amazonaws.com on 10.0.0.2:53: no such host",
			"correct storage.s3.region, which is part of the host's name, or the DNS of this host",
		},
		"DNS is down": {
			objstore.S3Config{Endpoint: "https://minio.example", Transport: failing(&net.DNSError{Err: "i/o timeout", Name: "minio.example", IsTimeout: true})},
			"lookup minio.example: i/o timeout",
			"check the DNS of this host",
		},
		"refused": {
			objstore.S3Config{Endpoint: "http://127.0.0.1:1"},
			"request not sent: dial tcp 127.0.0.1:1: connect: connection refused",
			"start the server, or correct host and port in storage.s3.endpoint",
		},
		"proxy": {
			objstore.S3Config{Transport: failing(&net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("no route to host")})},
			"proxyconnect tcp: no route to host",
			"correct HTTPS_PROXY or HTTP_PROXY in the environment, or name the store's host in NO_PROXY",
		},
		"reset": {
			objstore.S3Config{Endpoint: "https://minio.example", Transport: failing(io.ErrUnexpectedEOF)},
			"unexpected EOF",
			"check storage.s3.endpoint, and the network between this host and the store",
		},
		"reset by AWS": {
			objstore.S3Config{Transport: failing(io.ErrUnexpectedEOF)},
			"unexpected EOF",
			"check the network between this host and AWS",
		},
		"a URL in a text": {
			objstore.S3Config{Transport: failing(errors.New(`redirect to "https://u:p@s3.example/lake?X-Amz-Signature=12345678" failed`))},
			`redirect to "https://s3.example/lake" failed`,
			"check the network between this host and AWS",
		},
		"files of keys": {
			objstore.S3Config{Endpoint: plain.URL, Keys: objstore.KeysFromFiles("/nowhere/access", "/nowhere/secret")},
			"request not sent: no credentials: read access key: open /nowhere/access: no such file or directory",
			"correct storage.s3.access_key_file and storage.s3.secret_key_file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.config.Keys == nil {
				c.config.AccessKey, c.config.SecretKey, c.config.SessionToken = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI", "FwoGZXIvYXdzEXAMPLE"
			}
			c.config.Bucket = "lake"
			at := c.config.Endpoint
			if at == "" {
				if c.config.Region == "" {
					c.config.Region = "us-east-1"
				}
				at = "https://lake.s3." + c.config.Region + ".amazonaws.com"
			}
			err := operations["put"](t.Context(), openS3(t, c.config))
			if begin, _, ok := strings.Cut(c.what, "{…}"); ok {
				what, hint := objstore.Explain(err)
				if !strings.HasPrefix(what, sent+at+": "+begin) || hint != c.hint {
					t.Errorf("%s: %s", what, hint)
				}
				oneLine(t, err)
				return
			}
			explains(t, err, sent+at+": "+c.what, c.hint)
		})
	}
}

// TestExplain_NoCredentials compares the text and the hint of the error if the SDK's default chain finds no
// credentials.
func TestExplain_NoCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	err := operations["put"](t.Context(), openS3(t, objstore.S3Config{Bucket: "lake", Region: "eu-west-1"}))
	what, hint := objstore.Explain(err)
	if begin := `put key: bucket "lake" in eu-west-1: request not sent: no credentials: no EC2 IMDS role found`; !strings.HasPrefix(what, begin) {
		t.Errorf("%s, want %s", what, begin)
	}
	if want := "set storage.s3.access_key and storage.s3.secret_key (or their files), or give this process keys by AWS's environment variables, profile or role"; hint != want {
		t.Errorf("%s, want %s", hint, want)
	}
	checkError(t, err, objstore.ErrNotSent, classify.Transient, false)
	oneLine(t, err)
}

// TestExplain_GaveUp: if ctx ended, the error says so and has no hint.
func TestExplain_GaveUp(t *testing.T) {
	inBubble(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(t *testing.T, s *objstore.S3) {
		t.Helper()
		const at = `put key: bucket "b" at http://127.0.0.1:1: `
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		explains(t, operations["put"](ctx, s), at+"context canceled", "")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		explains(t, operations["put"](ctx, s), at+"context deadline exceeded", "check storage.s3.endpoint, and the network between this host and the store")
		explains(t, operations["put"](t.Context(), s), at+"request made no progress in time (30s)", "check storage.s3.endpoint, and the network between this host and the store")
		checked := objstore.WithLastCheck(t.Context(), func() error { return errors.New("the offer is too old") })
		explains(t, operations["put"](checked, s), at+"request not sent: the offer is too old", "")
	})
}

// TestExplain_Body compares the texts for bodies that break off: bodies of objects and of error responses.
func TestExplain_Body(t *testing.T) {
	s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "<ListBucketResult><Cont")
	})
	for operation, text := range map[string]string{
		"get": "unexpected EOF", "list": "the response cannot be read: unexpected EOF",
	} {
		err := operations[operation](t.Context(), s)
		what, hint := objstore.Explain(err)
		if !strings.Contains(what, `bucket "bucket" at http://127.0.0.1:`) || !strings.HasSuffix(what, ": "+text) ||
			hint != "check storage.s3.endpoint, and the network between this host and the store" {
			t.Errorf("%s: %s: %s", operation, what, hint)
		}
		oneLine(t, err)
	}
}

// TestExplain_Echo: if a store repeats credentials and signature in its response, the text hides them.
func TestExplain_Echo(t *testing.T) {
	var signed string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed = r.Header.Get("Authorization")
		token := r.Header.Get("X-Amz-Security-Token")
		_, signature, _ := strings.Cut(signed, "Signature=")
		w.Header().Set("X-Amz-Request-Id", "id-"+signature)
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>AccessDenied</Code><Message>no %s, no %s and no %s for %s at http://u:p@h/b?X-Amz-Signature=%[2]s</Message></Error>",
			token, signature, signed, "AKIAIOSFODNN7EXAMPLE")
	}))
	t.Cleanup(server.Close)
	err := operations["put"](t.Context(), openS3(t, objstore.S3Config{
		Bucket: "lake", Endpoint: server.URL, AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI", SessionToken: "FwoGZXIvYXdzEXAMPLE",
	}))
	explains(t, err, `put key: bucket "lake" at `+server.URL+": AccessDenied (403): no ***, no *** and no *** for *** at http://h/b (request id id-***)",
		"allow s3:PutObject on arn:aws:s3:::lake/*, in the policy of the user or role that the keys belong to and in that of the bucket")
	if _, signature, _ := strings.Cut(signed, "Signature="); len(signature) != 64 || strings.Contains(err.Error(), signature) {
		t.Errorf("the signature %q is in %v", signature, err)
	}
}

// TestExplain_Long: even with the longest names and keys, the text has room for the store's own text.
func TestExplain_Long(t *testing.T) {
	key := "orders/" + strings.Repeat("p/", 450) + "00000000000000000007.json"
	s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>AccessDenied</Code><Message>%s</Message><RequestId>42</RequestId></Error>", strings.Repeat("no ", 1000))
	})
	_, err := s.Get(t.Context(), key, 0, -1)
	what, _ := objstore.Explain(err)
	if !strings.HasPrefix(what, "get orders/p/p/p/") || !strings.Contains(what, "p/00000000000000000007.json: bucket") ||
		!strings.Contains(what, "AccessDenied (403): no no no") || !strings.HasSuffix(what, "… (request id 42)") || utf8.RuneCountInString(what) != 400 {
		t.Error(what)
	}
	oneLine(t, err)
}

// TestExplain_Local compares the hints for errors of a local directory, and for errors that are not from a store.
func TestExplain_Local(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lake")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := objstore.NewLocal(t.Context(), file)
	if err == nil {
		t.Fatal("no error")
	}
	if _, hint := objstore.Explain(err); hint != "let storage.url name a directory" {
		t.Errorf("%v: %s", err, hint)
	}
	refused := func(err error) error {
		return fmt.Errorf("%w: %w", objstore.ErrRefused, &os.PathError{Op: "open", Path: "/lake", Err: err})
	}
	for want, err := range map[string]error{
		"let the user of this process read and write the directory of storage.url": refused(syscall.EACCES),
		"mount the file system of storage.url writable":                            refused(syscall.EROFS),
		"free space in the file system":                                            &os.PathError{Op: "write", Path: "/lake", Err: syscall.ENOSPC},
		"":                                                                         &os.PathError{Op: "open", Path: "/ca.pem", Err: os.ErrNotExist}, // of a file that is not in the store
	} {
		if _, hint := objstore.Explain(err); hint != want {
			t.Errorf("%v: %s, want %s", err, hint, want)
		}
	}
	what, _ := objstore.Explain(errors.New("a\nb\tc\x1b[2Jd\u202e " + strings.Repeat("x", 1000)))
	if !strings.HasPrefix(what, "a b c [2Jd xxx") || utf8.RuneCountInString(what) != 400 {
		t.Error(what)
	}
}

// TestSelfTest_OneFailure: if all requests of the self-test fail for the same reason, the error names the reason once.
func TestSelfTest_OneFailure(t *testing.T) {
	ids := make(chan string, 100)
	for i := range cap(ids) {
		ids <- fmt.Sprintf("18EA7D05%08d", i)
	}
	s := s3Serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, strings.Replace(minioNoSuchBucket, "18EA7D058D9E394E", <-ids, 1))
	})
	err := objstore.SelfTest(t.Context(), s)
	checkError(t, err, objstore.ErrRefused, classify.Fatal, false)
	oneLine(t, err)
	want := regexp.MustCompile(`^self-test: put-if-absent _sluice/selftest/\w{26}: bucket "bucket" at http://127\.0\.0\.1:\d+: NoSuchBucket \(404\): ` +
		`The specified bucket does not exist \(request id 18EA7D05\d{8}\): create bucket "bucket", or correct its name in storage\.url$`)
	if !want.MatchString(err.Error()) {
		t.Errorf("%v, want %v", err, want)
	}

	refused := openS3(t, objstore.S3Config{Bucket: "lake", Endpoint: "http://127.0.0.1:1", PathStyle: true, AccessKey: "a", SecretKey: "s"})
	err = objstore.SelfTest(t.Context(), refused)
	checkError(t, err, objstore.ErrNotSent, classify.Transient, false)
	oneLine(t, err)
	if n := strings.Count(err.Error(), "connection refused"); n != 1 {
		t.Errorf("said %d times: %v", n, err)
	}
}

// TestSelfTest_SeveralFailures: if the puts fail for different reasons, the error names each once, in one line, with a
// hint.
func TestSelfTest_SeveralFailures(t *testing.T) {
	var requests atomic.Int32
	err := objstore.SelfTest(t.Context(), s3Serving(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, awsSlowDown)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, minioDenied)
	}))
	oneLine(t, err)
	what, hint := objstore.Explain(err)
	for _, text := range []string{"SlowDown", "AccessDenied", "; other requests failed with "} {
		if n := strings.Count(what, text); n != 1 {
			t.Errorf("%q stands there %d times: %v", text, n, err)
		}
	}
	if !strings.HasPrefix(hint, "allow s3:PutObject on arn:aws:s3:::bucket/*") {
		t.Errorf("the hint: %q", hint)
	}

	err = objstore.SelfTest(t.Context(), objstoretest.NewFaulty(objstore.NewMem(), func(o objstore.Op) objstoretest.Fault {
		switch {
		case o.Kind != objstore.OpPutIfAbsent:
			return objstoretest.Fault{}
		case o.N%3 == 0:
			return objstoretest.Fault{Err: objstoretest.ErrUnavailable}
		case o.N%3 == 1:
			return objstoretest.Fault{Err: objstoretest.ErrDenied}
		}
		return objstoretest.Fault{Err: objstoretest.ErrTimeout}
	}))
	oneLine(t, err)
	if !errors.Is(err, objstoretest.ErrUnavailable) || !errors.Is(err, objstore.ErrRefused) || !errors.Is(err, objstoretest.ErrTimeout) {
		t.Errorf("an error is lost: %v", err)
	}
}

// FuzzExplain: for any response, the text is one line, is short, and has no characters that steer a terminal.
func FuzzExplain(f *testing.F) {
	f.Add(403, "AccessDenied", "no\nnewline\r\x1b[2J\u2028\u202e", "id\n1", "", "Location\nx")
	f.Add(404, strings.Repeat("c", 500), strings.Repeat("é", 5000), strings.Repeat("1", 500), "", "http://a b/\x7f")
	f.Add(500, "", "", "", "<html>\n<head>\n<hr></html>", "https://u:p@h/p?q=1")
	f.Add(200, "", "", "", "<ListBucketResult><Contents><Key>b&#10;</Key></Contents><Contents><Key>a&#10;</Key></Contents></ListBucketResult>", "")
	f.Add(200, "", "", "", "<ListBucketResult><Cont", "")
	f.Add(200, "InternalError", "a\nb", "", "", "")
	f.Add(301, "PermanentRedirect", "", "", "", "eu-west-1\n\n")
	f.Add(400, "AuthorizationHeaderMalformed", "\xff\xfe", "\xff", "", "\xff")
	f.Fuzz(func(t *testing.T, status int, code, message, id, body, pointer string) {
		if status < 200 || status > 599 {
			return // not a status that ends an HTTP exchange
		}
		if all := code + message + id + body + pointer; strings.Contains(all, "x-id=") || strings.Contains(all, "Signature=") {
			return // the fuzzer copied credentials from the request into the response
		}
		if body == "" {
			var b strings.Builder
			for _, field := range [][2]string{{"Code", code}, {"Message", message}, {"RequestId", id}} {
				b.WriteString("<" + field[0] + ">")
				if err := xml.EscapeText(&b, []byte(field[1])); err != nil {
					t.Fatal(err)
				}
				b.WriteString("</" + field[0] + ">")
			}
			body = "<Error>" + b.String() + "</Error>"
		}
		s := openS3(t, objstore.S3Config{
			Bucket: "lake", Region: "us-east-1", AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI",
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: status, Request: r, Body: io.NopCloser(strings.NewReader(body)),
					Header: http.Header{"X-Amz-Request-Id": {id}, "X-Amz-Bucket-Region": {pointer}, "Location": {pointer}},
				}, nil
			}),
		})
		for _, do := range operations {
			if err := do(t.Context(), s); err != nil {
				oneLine(t, err)
			}
		}
		if err := objstore.SelfTest(t.Context(), s); err != nil && !errors.Is(err, objstore.ErrUnsafe) {
			oneLine(t, err)
		}
	})
}
