package objstore_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/classify"
	"sluice/secure"
	"sluice/sink/delta/objstore"
	"sluice/test/certs"
)

// keyed returns the configuration of a bucket at an endpoint, with an access key and a secret key.
func keyed(endpoint string) objstore.S3Config {
	return objstore.S3Config{Bucket: "bucket", Endpoint: endpoint, PathStyle: true, AccessKey: "a", SecretKey: "s", SessionToken: "t"}
}

// TestS3_Plaintext: an endpoint on another machine needs TLS, unless the configuration allows plaintext.
func TestS3_Plaintext(t *testing.T) {
	for _, tt := range []struct {
		endpoint string
		insecure bool
		refused  bool
	}{
		{"http://minio:9000", false, true},
		{"HTTP://minio:9000", false, true},
		{"http://10.0.0.1:9000", false, true},
		{"http://127.0.0.1.example:9000", false, true},
		{"http://minio:9000", true, false},
		{"http://127.0.0.1:9000", false, false},
		{"http://[::1]:9000", false, false},
		{"http://localhost:9000", false, false},
		{"https://minio:9000", false, false},
	} {
		c := keyed(tt.endpoint)
		c.InsecurePlaintext = tt.insecure
		_, err := objstore.NewS3(t.Context(), c)
		if (err != nil) != tt.refused || tt.refused && (!errors.Is(err, secure.ErrPlaintext) || classify.Of(err) != classify.Fatal) {
			t.Errorf("%s, insecure %v: %v", tt.endpoint, tt.insecure, err)
		}
	}
}

// TestS3_PlaintextFromEnvironment: an endpoint that an environment variable names gets no request without TLS either.
func TestS3_PlaintextFromEnvironment(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://minio.example:9000")
	var asked atomic.Int32
	c := keyed("")
	c.Region = "us-east-1"
	c.Transport = roundTripper(func(*http.Request) (*http.Response, error) { asked.Add(1); return nil, errors.New("sent") })
	s, err := objstore.NewS3(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), "key"); !errors.Is(err, secure.ErrPlaintext) || classify.Of(err) != classify.Fatal || asked.Load() != 0 {
		t.Errorf("%d requests, class %v: %v", asked.Load(), classify.Of(err), err)
	} else if _, hint := objstore.Explain(err); !strings.Contains(hint, "storage.s3.insecure_plaintext: true") {
		t.Errorf("the hint: %q", hint)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestS3_CAFile: the endpoint's certificate is verified with the authorities in the file.
func TestS3_CAFile(t *testing.T) {
	own := certs.NewCA(t, "own")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"x"`) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own.Issue(t, certs.Leaf{Name: "s3", Hosts: []string{"127.0.0.1"}}).TLS(t)}}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	for file, works := range map[string]bool{
		certs.Write(t, dir, "ca.pem", own.PEM):                        true,
		certs.Write(t, dir, "other.pem", certs.NewCA(t, "other").PEM): false,
		"": false,
	} {
		c := keyed(server.URL)
		c.CAFile = file
		s, err := objstore.NewS3(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Head(t.Context(), "key"); (err == nil) != works {
			t.Errorf("%q: %v", file, err)
		}
		_ = s.Close()
	}
	c := keyed(server.URL)
	c.CAFile = dir + "/none"
	if _, err := objstore.NewS3(t.Context(), c); err == nil || !strings.Contains(err.Error(), "ca_file") {
		t.Error(err)
	}
}
