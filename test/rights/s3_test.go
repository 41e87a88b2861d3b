//go:build lab

package rights

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/test/lab"
)

// statement is one statement of a policy.
type statement map[string]any

// statements returns the statements of a policy in deploy/rights.
func statements(t *testing.T, name string) []statement {
	t.Helper()
	var policy struct{ Statement []statement }
	if err := json.Unmarshal([]byte(file(t, name)), &policy); err != nil {
		t.Fatal(err)
	}
	return policy.Statement
}

// bucketServer is a MinIO with the bucket my-lake.
type bucketServer struct {
	endpoint string
	broker   string
}

// session returns keys that may do what a policy allows, as a client and as the environment of the connector.
func (b *bucketServer) session(t *testing.T, allowed []statement) (*s3.Client, []string) {
	t.Helper()
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": allowed})
	if err != nil {
		t.Fatal(err)
	}
	root := credentials.NewStaticCredentialsProvider(lab.AccessKey, lab.SecretKey, "")
	out, err := sts.New(sts.Options{BaseEndpoint: &b.endpoint, Region: lab.Region, Credentials: root}).AssumeRole(t.Context(), &sts.AssumeRoleInput{
		Policy: aws.String(string(policy)), RoleArn: aws.String("arn:aws:iam::123456789012:role/sluice"), RoleSessionName: aws.String("sluice"),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := out.Credentials
	client := s3.New(s3.Options{
		BaseEndpoint: &b.endpoint, Region: lab.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken),
	})
	return client, []string{
		"AWS_ACCESS_KEY_ID=" + *c.AccessKeyId, "AWS_SECRET_ACCESS_KEY=" + *c.SecretAccessKey, "AWS_SESSION_TOKEN=" + *c.SessionToken, "AWS_REGION=" + lab.Region,
	}
}

// pipeline returns a pipeline whose tables lie in the bucket, with the rights of allowed.
func (b *bucketServer) pipeline(t *testing.T, allowed []statement) *pipeline {
	t.Helper()
	_, env := b.session(t, allowed)
	return configured(t, `url: "s3://my-lake/tables", s3: {endpoint: "`+b.endpoint+`", path_style: true}`, "brokers: ["+b.broker+"]", "}", env...)
}

// startLake starts MinIO with the bucket of the policies.
func startLake(t *testing.T) (*lab.MinIO, *lab.Bucket) {
	t.Helper()
	m, err := lab.StartMinIO(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Kill() })
	bucket, err := lab.CreateBucket(t.Context(), m.Endpoint, "my-lake")
	if err != nil {
		t.Fatal(err)
	}
	return m, bucket
}

// TestS3 runs a member and commands with deploy/rights/s3-policy.json, and with one statement less. Requests that the
// policy does not allow must be denied: other prefixes, other buckets, and deletes where no member deletes.
func TestS3(t *testing.T) {
	m, bucket := startLake(t)
	other, err := lab.CreateBucket(t.Context(), m.Endpoint, "other-lake")
	if err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	b := &bucketServer{m.Endpoint, broker.ListenAddrs()[0]}
	produce(t, b.broker, 0)
	all := statements(t, "s3-policy.json")

	p := b.pipeline(t, all)
	p.member(t, "all statements", func(r *report) bool {
		return len(r.Holds) == 0 && r.position() >= 3 && r.canarySeen()
	})
	for _, command := range []string{
		"check", "verify", "verify --kafka", "offsets show", "table inspect", "deadletters list", "pause orders --reason test --yes",
		"resume orders --reason test --yes", "audit verify", "audit list",
	} {
		if code, text := p.runs(t, strings.Fields(command)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", command, code, text)
		}
	}
	reader := b.pipeline(t, statements(t, "s3-read-policy.json"))
	for _, command := range []string{"verify", "table inspect", "audit verify", "audit list", "deadletters list"} {
		if code, text := reader.runs(t, strings.Fields(command)...); code != 0 {
			t.Errorf("%s with s3-read-policy.json: exit code %d: %s", command, code, text)
		}
	}

	for _, key := range []string{"another/object", "tables-of-others/object", "tables/orders/part-1.parquet", "tables/_sluice/selftest/x", "tables/_sluice/orders/letters/x", "tables/orders/_delta_log/99999999999999999999.json"} {
		if err := bucket.Create(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Create(t.Context(), "tables/object", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ops, err := bucket.List(t.Context(), "tables/_sluice/orders/ops/")
	if err != nil || len(ops) == 0 {
		t.Fatalf("the operations log has no entry: %v", err)
	}
	client, _ := b.session(t, all)
	for _, a := range []struct {
		do, bucket, key string
		allowed         bool
	}{
		{"get", "my-lake", "another/object", false},
		{"get", "my-lake", "tables-of-others/object", false},
		{"get", "other-lake", "tables/object", false},
		{"put", "my-lake", "another/new", false},
		{"put", "my-lake", "tables-of-others/new", false},
		{"put", "other-lake", "tables/new", false},
		{"list", "my-lake", "", false},
		{"list", "my-lake", "another/", false},
		{"list", "my-lake", "tables-of-others/", false},
		{"list", "other-lake", "tables/", false},
		{"list", "my-lake", "tables/orders/", true},
		{"delete", "my-lake", "another/object", false},
		{"delete", "my-lake", "tables/orders/_delta_log/00000000000000000000.json", false},
		{"delete", "my-lake", "tables/orders/_delta_log/99999999999999999999.json", false},
		{"delete", "my-lake", "tables/_sluice/orders/letters/x", false},
		{"delete", "my-lake", ops[0], false},
		{"delete", "my-lake", "tables/orders/part-1.parquet", true},
		{"delete", "my-lake", "tables/_sluice/selftest/x", true},
		{"policy", "my-lake", "", false},
	} {
		err := request(t, client, a.do, a.bucket, a.key)
		if denied := isDenied(err); denied == a.allowed || !denied && err != nil {
			t.Errorf("%s %s/%s: %v, want allowed: %t", a.do, a.bucket, a.key, err, a.allowed)
		}
	}

	for i, s := range all {
		sid := s["Sid"].(string)
		t.Run("without "+sid, func(t *testing.T) {
			less := without(all, i)
			if strings.HasPrefix(sid, "Delete") { // a member works without them and leaves the objects behind
				client, _ := b.session(t, less)
				key := map[string]string{"DeleteFilesOfLostCommits": "tables/orders/part-2.parquet", "DeleteObjectsOfTheSelfTest": "tables/_sluice/selftest/y"}[sid]
				if err := request(t, client, "delete", "my-lake", key); !isDenied(err) {
					t.Errorf("delete %s: %v", key, err)
				}
				return
			}
			if code, text := b.pipeline(t, less).runs(t, "check"); code != 3 || !strings.Contains(text, "to do: allow "+s["Action"].(string)) {
				t.Errorf("check: exit code %d: %s", code, text)
			}
		})
	}
}

// request sends one request and returns its error.
func request(t *testing.T, client *s3.Client, do, bucket, key string) (err error) {
	t.Helper()
	switch do {
	case "get":
		var out *s3.GetObjectOutput
		if out, err = client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key}); err == nil {
			_ = out.Body.Close()
		}
	case "put":
		_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader([]byte("x"))})
	case "list":
		_, err = client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &key})
	case "delete":
		_, err = client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	case "policy":
		_, err = client.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: aws.String(`{"Version":"2012-10-17","Statement":[]}`)})
	default:
		t.Fatalf("unknown request %s", do)
	}
	return err
}

// isDenied reports whether a server refused a request for lack of rights.
func isDenied(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "AccessDenied"
}
