//go:build lab

package rights

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"sluice/test/lab"
)

// bucketPolicy is what s3-bucket-policy.json denies. MinIO has no condition key s3:if-none-match, so a proxy before it
// refuses these requests as AWS would.
type bucketPolicy struct {
	denied []denial
	puts   atomic.Int64 // puts of log entries with the condition
}

type denial struct {
	actions       []string
	resource      *regexp.Regexp
	unconditional bool // only requests without If-None-Match
}

func newBucketPolicy(t *testing.T) *bucketPolicy {
	t.Helper()
	p := &bucketPolicy{}
	for _, s := range statements(t, "s3-bucket-policy.json") {
		if s["Effect"] != "Deny" || s["Principal"] != "*" {
			t.Fatalf("%v", s)
		}
		condition, conditional := s["Condition"].(map[string]any)
		if conditional {
			if null, ok := condition["Null"].(map[string]any); !ok || len(condition) != 1 || len(null) != 1 || null["s3:if-none-match"] != "true" {
				t.Fatalf("%v", condition)
			}
		}
		for _, resource := range texts(s["Resource"]) {
			key, ok := strings.CutPrefix(resource, "arn:aws:s3:::")
			if !ok {
				t.Fatalf("%s", resource)
			}
			pattern := regexp.MustCompile("^/" + strings.ReplaceAll(regexp.QuoteMeta(key), `\*`, ".*") + "$")
			p.denied = append(p.denied, denial{texts(s["Action"]), pattern, conditional})
		}
	}
	return p
}

// texts returns a text, or the texts of a list, as policies have them.
func texts(v any) (all []string) {
	if one, ok := v.(string); ok {
		return []string{one}
	}
	for _, one := range v.([]any) {
		all = append(all, one.(string))
	}
	return all
}

// denies reports whether the policy denies a request.
func (p *bucketPolicy) denies(r *http.Request) bool {
	action := map[string]string{http.MethodPut: "s3:PutObject", http.MethodDelete: "s3:DeleteObject"}[r.Method]
	conditional := r.Header.Get("If-None-Match") == "*"
	for _, d := range p.denied {
		if !slices.Contains(d.actions, action) || !d.resource.MatchString(r.URL.Path) {
			continue
		}
		if !d.unconditional || !conditional {
			return true
		}
		p.puts.Add(1)
	}
	return false
}

// before starts a proxy that applies the policy before a server, and returns its address.
func (p *bucketPolicy) before(t *testing.T, endpoint string) string {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	next := httputil.NewSingleHostReverseProxy(u) // it keeps the header Host, which clients have signed
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.denies(r) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>denied by the bucket policy</Message></Error>"))
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestS3_BucketPolicy runs a member and commands behind s3-bucket-policy.json: all entries of logs must be put with the
// condition. Even a client with all rights must not overwrite an entry, or delete one of the operations log.
func TestS3_BucketPolicy(t *testing.T) {
	m, bucket := startLake(t)
	policy := newBucketPolicy(t)
	endpoint := policy.before(t, m.Endpoint)
	b := &bucketServer{endpoint, topic(t)}
	_, env := (&bucketServer{m.Endpoint, b.broker}).session(t, statements(t, "s3-policy.json"))
	p := configured(t, `url: "s3://my-lake/tables", s3: {endpoint: "`+endpoint+`", path_style: true}`, "brokers: ["+b.broker+"]", "}", env...)
	p.member(t, "the bucket policy", func(r *report) bool { return len(r.Holds) == 0 && r.position() >= 3 && r.canarySeen() })
	for _, command := range []string{"pause orders --reason test --yes", "resume orders --reason test --yes", "check", "verify"} {
		if code, text := p.runs(t, strings.Fields(command)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", command, code, text)
		}
	}
	logs, err := bucket.List(t.Context(), "tables/")
	if err != nil {
		t.Fatal(err)
	}
	entries := slices.DeleteFunc(logs, func(key string) bool {
		return !strings.HasSuffix(key, ".json") || !strings.Contains(key, "/_delta_log/") && !strings.Contains(key, "/ops/")
	})
	if n := policy.puts.Load(); len(entries) < 5 || int(n) < len(entries) {
		t.Errorf("%d log entries, %d puts of entries seen by the policy: its resources do not match the keys", len(entries), n)
	}
	client := s3.New(s3.Options{
		BaseEndpoint: &endpoint, Region: lab.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(lab.AccessKey, lab.SecretKey, ""),
	})
	for _, key := range entries {
		if err := request(t, client, "put", "my-lake", key); !isDenied(err) {
			t.Errorf("overwrite %s: %v", key, err)
		}
		if err := request(t, client, "delete", "my-lake", key); strings.Contains(key, "/ops/") && !isDenied(err) {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String("my-lake"), Key: aws.String("tables/orders/_delta_log/00000000000000000999.json"), IfNoneMatch: aws.String("*"), Body: strings.NewReader("x"),
	}); err != nil {
		t.Errorf("a conditional put: %v", err)
	}
}
